"""The report as one HTML file that needs nothing beside itself."""

from runner.report.page.document import page, write_page

__all__ = ["page", "write_page"]

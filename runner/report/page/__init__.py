"""The report of a run, or the verdict of a validation, as one HTML file that needs nothing beside itself."""

from runner.report.page.document import page, write_page
from runner.report.page.validation import validation_page

__all__ = ["page", "validation_page", "write_page"]

"""A browser and a server that the tests of one session share; each test has tenants of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.report_page.browser import Tab
from tests.report_page.conftest import browser as browser
from tests.report_page.conftest import open_folder as open_folder
from tests.report_page.conftest import shared_tab as shared_tab
from tests.report_page.conftest import tab as tab
from tests.report_page.test_page_accessible import axe as axe
from tests.service.http.conftest import folder as folder
from tests.service.http.conftest import plain_server as plain_server
from tests.service.http.conftest import plain_tenant as plain_tenant
from tests.service.http.conftest import strict_server as strict_server
from tests.service.http.conftest import strict_tenant as strict_tenant
from tests.service.http.servers import ServerProcess, Tenant
from tests.service.web.person import Person


@pytest.fixture
def tenant(plain_tenant: Tenant) -> Tenant:
    """A new tenant."""
    return plain_tenant


@pytest.fixture
def other(plain_server: ServerProcess) -> Iterator[Tenant]:
    """Another new tenant of the same server."""
    with plain_server.tenant() as made:
        yield made


@pytest.fixture
def person(tab: Tab, tenant: Tenant) -> Person:
    """Somebody who has signed in with the tenant's key."""
    return Person.of(tab, tenant)

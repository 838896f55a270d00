"""What these tests share with those of the HTTP server."""

from tests.service.http.conftest import plain_server as plain_server
from tests.service.http.conftest import plain_tenant as plain_tenant
from tests.service.http.conftest import strict_server as strict_server
from tests.service.http.conftest import strict_tenant as strict_tenant

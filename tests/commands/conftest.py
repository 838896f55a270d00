"""What these tests share with the integration tests."""

from tests.integration.conftest import cache as cache
from tests.integration.conftest import index as index
from tests.integration.conftest import shared_cache as shared_cache

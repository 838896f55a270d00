"""What tests of sandboxes share with the integration tests."""

from tests.integration.conftest import shared_cache as shared_cache

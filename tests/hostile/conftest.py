"""What hostile tests share with others."""

from tests.integration.conftest import cache as cache
from tests.integration.conftest import index as index
from tests.integration.conftest import shared_cache as shared_cache
from tests.trials.conftest import of_root as of_root
from tests.trials.conftest import talk as talk

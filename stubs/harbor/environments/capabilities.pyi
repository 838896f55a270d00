class EnvironmentCapabilities:
    disable_internet: bool
    mounted: bool
    def __init__(self, *, disable_internet: bool = False, mounted: bool = False) -> None: ...

class EnvironmentResourceCapabilities:
    cpu_limit: bool
    memory_limit: bool
    # of fields that a release does not know it makes nothing
    def __init__(self, *, cpu_limit: bool = False, memory_limit: bool = False, **others: bool) -> None: ...

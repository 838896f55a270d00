from enum import Enum

class ArtifactConfig:
    source: str

class TaskOS(Enum):
    LINUX = "linux"
    WINDOWS = "windows"

class NetworkMode(Enum):
    NO_NETWORK = "no-network"
    PUBLIC = "public"
    ALLOWLIST = "allowlist"

class NetworkPolicy:
    network_mode: NetworkMode
    allowed_hosts: list[str]

class TpuSpec: ...

class EnvironmentConfig:
    os: TaskOS
    docker_image: str | None
    workdir: str | None
    gpus: int | None
    tpu: TpuSpec | None

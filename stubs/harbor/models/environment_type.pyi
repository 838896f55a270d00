from enum import Enum

class EnvironmentType(Enum):
    DOCKER = "docker"
    DAYTONA = "daytona"
    MODAL = "modal"

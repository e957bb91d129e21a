"""What can go wrong in the agent of machine configuration.

ConfigAgentError
├── ApiError                  the API server does not answer, or refuses
│   └── RenderedMissingError  the configuration that the node is to have does not exist
├── RefusedConfigError        the configuration is not what its hash says, or has what none may have
├── HostError                 the host's disk does not do what was asked of it
│   └── LinkInPathError       a path leads through a link or something else that is no folder
├── UnitError                 systemd does not do what was asked of it
├── RebootError               the machine does not reboot
├── FolderTakenError          another agent configures this host
└── AccessError               the agent's settings name no usable API server
"""


class ConfigAgentError(Exception):
    """The message says what is wrong and what to do; the node's annotation shows it."""


class ApiError(ConfigAgentError):
    """The API server does not answer, or refuses; `status` is the HTTP status, None where there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RenderedMissingError(ApiError):
    """The configuration that the node is to have does not exist."""


class RefusedConfigError(ConfigAgentError):
    """The configuration is not what its hash says, or has what none may have."""


class HostError(ConfigAgentError):
    """The host's disk does not do what was asked of it."""


class LinkInPathError(HostError):
    """A path leads through a link, or through something else that is no folder."""


class UnitError(ConfigAgentError):
    """systemd does not do what was asked of it."""


class RebootError(ConfigAgentError):
    """The machine does not reboot."""


class FolderTakenError(ConfigAgentError):
    """Another agent configures this host."""


class AccessError(ConfigAgentError):
    """The agent's settings name no usable API server."""

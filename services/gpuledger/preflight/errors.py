"""Why a check ends without a verdict on hardware. Every message says what is wrong, where, and what to do.

PreflightError
├── ConfigurationError   a setting of the check is missing or invalid
├── NotRunError          the check cannot be carried out here
├── GangTimeoutError     the pod's gang was not complete in time
└── NotReportedError     nobody took the report of the result
"""


class PreflightError(Exception):
    """A check ends without a verdict on hardware."""


class ConfigurationError(PreflightError):
    """A setting of the check is missing or invalid."""

    def __init__(self, variable: str, message: str) -> None:
        super().__init__(message)
        self.variable = variable


class NotRunError(PreflightError):
    """The check cannot be carried out here, such as for want of a program; no hardware is to blame."""


class GangTimeoutError(PreflightError):
    """The pod's gang was not complete in time; no hardware is to blame."""

    def __init__(self, message: str, waited_s: float, gang: str) -> None:
        super().__init__(message)
        self.waited_s = waited_s
        self.gang = gang


class NotReportedError(PreflightError):
    """Nobody took the report of the result."""

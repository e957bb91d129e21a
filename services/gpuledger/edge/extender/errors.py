"""Errors of the extender.

ExtenderError
├── ArgumentsError     a request is not what kube-scheduler sends
└── BindError          a pod was not bound; nothing is left of the attempt
"""


class ExtenderError(Exception):
    """The extender cannot do what it was asked for."""


class ArgumentsError(ExtenderError):
    """A request is not what kube-scheduler sends to an extender."""


class BindError(ExtenderError):
    """A pod was not bound.

    Attributes:
        reason: one word, by which attempts are counted and recorded.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

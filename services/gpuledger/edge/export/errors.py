"""Errors of the export.

ExportError
├── UndeliveredError      a request did not reach the endpoint, or no answer came back
└── ExportStoppedError    the export stops at an event until somebody acts
"""

from gpuledger.edge.export.decide import FailureReason


class ExportError(Exception):
    """Something is wrong with the export; the message says what to do, and never holds a token."""


class UndeliveredError(ExportError):
    """A request did not reach the endpoint, or no answer came back: it may or may not have the events."""

    def __init__(self, reason: FailureReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class ExportStoppedError(ExportError):
    """The export stops at an event until somebody acts."""

"""What can go wrong in admission.

AdmissionError
└── DenialError         a rule denies the request; `reason` is a name that people can search for
"""


class AdmissionError(Exception):
    """Admission could not do its work."""


class DenialError(AdmissionError):
    """A rule denies the request. The message says what is wrong, where, and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

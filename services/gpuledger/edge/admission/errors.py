"""What can go wrong in admission.

AdmissionError
├── DenialError         a rule denies the request; `reason` is a name that people can search for
├── ReviewError         the body is not an AdmissionReview
├── PatchError          a hint would change what the user set; a bug of ours
└── CertificateError    a secret holds no certificate with its key
"""


class AdmissionError(Exception):
    """Admission could not do its work."""


class DenialError(AdmissionError):
    """A rule denies the request. The message says what is wrong, where, and what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ReviewError(AdmissionError):
    """The body is not an AdmissionReview."""


class PatchError(AdmissionError):
    """A hint would change what the user set, which it never may."""


class CertificateError(AdmissionError):
    """A secret holds no certificate with its key."""

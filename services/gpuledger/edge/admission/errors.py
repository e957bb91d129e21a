"""What can go wrong in admission.

AdmissionError
├── ReviewError         what was asked is no AdmissionReview
├── PatchError          a hint would change what the user set; a bug of ours
└── CertificateError    what a secret holds is no certificate with its key
"""


class AdmissionError(Exception):
    """Admission could not do its work."""


class ReviewError(AdmissionError):
    """What was asked is no AdmissionReview."""


class PatchError(AdmissionError):
    """A hint would change what the user set, which it never may."""


class CertificateError(AdmissionError):
    """What a secret holds is no certificate with its key."""

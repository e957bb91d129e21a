"""What can go wrong in what all webhooks share.

WebhookError
├── ReviewError         the body is not an AdmissionReview
├── PatchError          a patch would change what the user set; a bug of ours
└── CertificateError    a secret holds no certificate with its key
"""


class WebhookError(Exception):
    """A webhook could not do its work."""


class ReviewError(WebhookError):
    """The body is not an AdmissionReview."""


class PatchError(WebhookError):
    """A patch would change what the user set, which it never may."""


class CertificateError(WebhookError):
    """A secret holds no certificate with its key."""

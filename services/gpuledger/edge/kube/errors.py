"""What can go wrong between us and a Kubernetes API server.

KubeError
├── KubeConfigError         how to reach the server cannot be found out
├── ResponseError           the answer is none of Kubernetes, or too large to be kept
├── TransientError          may succeed later; `retry_after_s` is what the server asks for
│   ├── UnavailableError        nobody answers, the connection broke, or the server is failing (5xx)
│   │   └── WebhookAwayError        the server answers, and a webhook that it has to ask does not (500)
│   └── TooManyRequestsError    the server, or a disruption budget, has us wait (429)
├── RefusedError            the server will not do it, however often it is asked
│   ├── BadRequestError         400
│   ├── UnauthorizedError       401
│   ├── ForbiddenError          403
│   ├── NotFoundError           404
│   ├── ConflictError           409; `causes` names the fields and managers of an apply
│   │   └── AlreadyExistsError      409 on creation
│   ├── GoneError               410; list again
│   └── InvalidError            422; `causes` names the fields
│       └── SchemaError             its kind has no such field, or one of another type (500, on an apply)
└── CrdError                what is shipped cannot be installed
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

UNPROCESSABLE = 422
INTERNAL = 500
SERVER_ERRORS = range(500, 600)
NOT_IMPLEMENTED = 501
TOO_LARGE_VERSION = "ResourceVersionTooLarge"
"""The cause where a server knows less than we do, such as one restored from a backup."""

NOT_OF_ITS_SCHEMA = "failed to create typed patch object"
"""How a server begins, with a 500, where what is applied does not fit the schema of its kind."""

WEBHOOK = "admission webhook"
"""How a server begins, with any code, where a webhook turned the request down; what to do about it the webhook says."""

WEBHOOK_IS_AWAY = "failed calling webhook"
"""What a server says, in a 500, where a webhook that it has to ask about this kind of object does not answer."""

MESSAGE_CHARS_MAX = 1_000
CAUSES_SHOWN_MAX = 8


class Cause(NamedTuple):
    """One thing that is wrong. `field` is a path such as `.status.state`; `reason` is Kubernetes' own word."""

    reason: str
    message: str
    field: str


class KubeError(Exception):
    """The Kubernetes API could not be used."""


class KubeConfigError(KubeError):
    """How to reach the API server cannot be found out."""


class ResponseError(KubeError):
    """The answer is none of Kubernetes, or too large to be kept."""


class CrdError(KubeError):
    """What is shipped cannot be installed."""


class TransientError(KubeError):
    """It may succeed later.

    Attributes:
        retry_after_s: how long the server asks us to wait; None where it says nothing.
        causes: what the server gives as reasons.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.causes = causes


class UnavailableError(TransientError):
    """Nobody answers, the connection broke, or the server is failing."""


class WebhookAwayError(UnavailableError):
    """The server answers, and a webhook that it has to ask about this kind of object does not."""


class TooManyRequestsError(TransientError):
    """The server, or a disruption budget, has us wait."""


class RefusedError(KubeError):
    """The server will not do it, however often it is asked.

    Attributes:
        code: the HTTP status, 0 where an error came without.
        reason: Kubernetes' own word (`NotFound`).
        causes: what exactly is wrong, where the server says so.
    """

    def __init__(self, message: str, code: int = 0, reason: str = "", causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes


class BadRequestError(RefusedError):
    """The request cannot be understood."""


class UnauthorizedError(RefusedError):
    """The server does not know who asks."""


class ForbiddenError(RefusedError):
    """The server knows who asks, and does not allow it."""


class NotFoundError(RefusedError):
    """There is no such object, or no such kind."""


class ConflictError(RefusedError):
    """The object is another than supposed, or somebody else owns a field."""


class AlreadyExistsError(ConflictError):
    """There is an object of that name."""


class GoneError(RefusedError):
    """The server no longer, or not yet, knows that resource version."""


class InvalidError(RefusedError):
    """The object does not hold up."""


class SchemaError(InvalidError):
    """The server's schema of the kind has no such field, or one of another type."""


SCHEMAS_HINT = "Compare the versions of gpuledger and of the cluster's CRDs (`gpuledger crds diff`)."

_REFUSALS: Mapping[int, tuple[type[RefusedError], str]] = {
    400: (BadRequestError, SCHEMAS_HINT),
    401: (UnauthorizedError, "Renew the credentials in the kubeconfig."),
    403: (ForbiddenError, "Grant the account that right, or use another kubeconfig."),
    404: (NotFoundError, "Check the name, and that its CRD is installed (`gpuledger crds install`)."),
    409: (ConflictError, "Read the object again before writing it, or settle with who owns the fields."),
    410: (GoneError, "List again."),
    UNPROCESSABLE: (InvalidError, "Correct the fields that are named."),
}


def error_of(what: str, where: str, code: int, status: Mapping[str, Any], retry_after_s: float | None) -> KubeError:
    """The error that a `Status` amounts to.

    `what` was asked (`get gpudevices.gpu.deckhouse.io "x"`) of the server at `where`. `status` may be empty.
    """
    code = code or int(status.get("code") or 0)
    details = status.get("details") or {}
    causes = _causes(details)
    retry_after_s = retry_after_s if retry_after_s is not None else details.get("retryAfterSeconds")
    said = f"{where} answered {what} with {_said(code, status, causes)}"
    if any(cause.reason == TOO_LARGE_VERSION for cause in causes):
        return GoneError(f"{said} List again.", code, str(status.get("reason", "")), causes)
    if code == 429:
        return TooManyRequestsError(f"{said} Wait and repeat.", retry_after_s, causes)
    if code == INTERNAL and str(status.get("message", "")).startswith(NOT_OF_ITS_SCHEMA):
        return SchemaError(f"{said} {SCHEMAS_HINT}", code, str(status.get("reason", "")), causes)
    if code == INTERNAL and WEBHOOK_IS_AWAY in str(status.get("message", "")):
        return WebhookAwayError(f"{said} Look after the webhook, or repeat it later.", retry_after_s, causes)
    if code in SERVER_ERRORS and code != NOT_IMPLEMENTED:
        return UnavailableError(f"{said} Repeat it later, and look into the server's log.", retry_after_s, causes)
    return _refusal(said, code, str(status.get("reason", "")), causes)


def _refusal(said: str, code: int, reason: str, causes: tuple[Cause, ...]) -> RefusedError:
    kind, hint = _REFUSALS.get(code, (RefusedError, "Check that the server is a Kubernetes API of 1.34 or newer."))
    if reason == "AlreadyExists":
        kind, hint = AlreadyExistsError, "Use another name, or change the object that is there."
    if reason in ("Expired", "Gone"):
        kind, hint = GoneError, "List again."
    if f"{code}: {WEBHOOK}" in said:
        hint = ""
    return kind(f"{said} {hint}".rstrip(), code, reason, causes)


def _said(code: int, status: Mapping[str, Any], causes: tuple[Cause, ...]) -> str:
    message = str(status.get("message") or status.get("reason") or "no message").strip()[:MESSAGE_CHARS_MAX]
    told = [f"{cause.field}: {cause.message}" for cause in causes if cause.field and cause.field not in message]
    shown = "; ".join([message.rstrip("."), *told[:CAUSES_SHOWN_MAX]])
    return f"{code}: {shown}."


def _causes(details: Mapping[str, Any]) -> tuple[Cause, ...]:
    given = details.get("causes") or ()
    return tuple(Cause(*(str(one.get(key, "")) for key in ("reason", "message", "field"))) for one in given)

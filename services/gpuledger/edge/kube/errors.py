"""Errors of requests to a Kubernetes API server.

KubeError
├── KubeConfigError         how to reach the server cannot be found out
├── ResponseError           the answer is not from Kubernetes, or too large
├── TransientError          may succeed later; `retry_after_s` is what the server requests
│   ├── UnavailableError        nobody answers, the connection broke, or the server is failing (5xx)
│   │   └── WebhookAwayError        the server answers, but a webhook that it has to call does not (500)
│   ├── TooManyRequestsError    the server makes the client wait (429)
│   └── DisruptionBudgetError   disruption budgets do not allow an eviction (429; 500 where a pod has several)
├── RefusedError            the server refuses, and would refuse a repeated request
│   ├── BadRequestError         400
│   ├── UnauthorizedError       401
│   ├── ForbiddenError          403
│   ├── NotFoundError           404
│   ├── ConflictError           409; `causes` names the fields and managers of an apply
│   │   └── AlreadyExistsError      409 on creation
│   ├── GoneError               410; list again
│   └── InvalidError            422; `causes` names the fields
│       └── SchemaError             its kind has no such field, or one of another type (500, on an apply)
├── CrdError                a shipped CRD cannot be installed
└── ForeignClusterError     the cluster belongs to another ledger
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

UNPROCESSABLE = 422
INTERNAL = 500
SERVER_ERRORS = range(500, 600)
NOT_IMPLEMENTED = 501
TOO_LARGE_VERSION = "ResourceVersionTooLarge"
"""The cause where a server is behind the client, such as one restored from a backup."""

NOT_OF_ITS_SCHEMA = "failed to create typed patch object"
"""How the message of a 500 begins where the applied object does not fit the schema of its kind."""

WEBHOOK = "admission webhook"
"""How a message begins, with any code, where a webhook rejected the request; the webhook says what to do."""

WEBHOOK_IS_AWAY = "failed calling webhook"
"""In the message of a 500, where a webhook that the server has to call for this kind of object does not answer."""

DISRUPTION_BUDGET = "DisruptionBudget"
"""The cause of a 429 where a budget does not allow an eviction."""

SEVERAL_BUDGETS = "This pod has more than one PodDisruptionBudget"
"""How the message of a 500 begins where an eviction is not supported."""

MESSAGE_CHARS_MAX = 1_000
CAUSES_SHOWN_MAX = 8


class StatusCause(NamedTuple):
    """One thing that is wrong. `field` is a path such as `.status.state`; `reason` is Kubernetes' own word."""

    reason: str
    message: str
    field: str


class KubeError(Exception):
    """The Kubernetes API could not be used."""


class KubeConfigError(KubeError):
    """How to reach the API server cannot be found out."""


class ResponseError(KubeError):
    """The answer is not from Kubernetes, or too large."""


class CrdError(KubeError):
    """What is shipped cannot be installed."""


class ForeignClusterError(KubeError):
    """The cluster belongs to another ledger."""


class UnclaimedClusterError(ForeignClusterError):
    """The cluster belongs to no ledger yet."""


class TransientError(KubeError):
    """It may succeed later.

    Attributes:
        retry_after_s: how long the server requests to wait; None where it requests nothing.
        causes: the reasons that the server gives.
    """

    def __init__(self, message: str, retry_after_s: float | None = None, causes: tuple[StatusCause, ...] = ()) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.causes = causes


class UnavailableError(TransientError):
    """Nobody answers, the connection broke, or the server is failing."""


class WebhookAwayError(UnavailableError):
    """The server answers, but a webhook that it has to call for this kind of object does not."""


class TooManyRequestsError(TransientError):
    """The server makes the client wait."""


class DisruptionBudgetError(TransientError):
    """Disruption budgets do not allow an eviction, for now; the causes name them. Other requests may well succeed."""


class RefusedError(KubeError):
    """The server refuses, and would refuse a repeated request.

    Attributes:
        code: the HTTP status, 0 where an error came without.
        reason: Kubernetes' own word (`NotFound`).
        causes: the details, where the server gives any.
    """

    def __init__(self, message: str, code: int = 0, reason: str = "", causes: tuple[StatusCause, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes


class BadRequestError(RefusedError):
    """The request cannot be understood."""


class UnauthorizedError(RefusedError):
    """The server does not accept the credentials."""


class ForbiddenError(RefusedError):
    """The server knows the user, and does not allow the request."""


class NotFoundError(RefusedError):
    """There is no such object, or no such kind."""


class ConflictError(RefusedError):
    """The object has changed, or somebody else owns a field."""


class AlreadyExistsError(ConflictError):
    """There is an object of that name."""


class GoneError(RefusedError):
    """The server no longer, or not yet, has that resource version."""


class InvalidError(RefusedError):
    """The object is not valid."""


class SchemaError(InvalidError):
    """The server's schema of the kind has no such field, or one of another type."""


SCHEMAS_HINT = "Compare the versions of gpuledger and of the cluster's CRDs (`gpuledger crds diff`)."

_REFUSALS: Mapping[int, tuple[type[RefusedError], str]] = {
    400: (BadRequestError, SCHEMAS_HINT),
    401: (UnauthorizedError, "Renew the credentials in the kubeconfig."),
    403: (ForbiddenError, "Grant the account that right, or use another kubeconfig."),
    404: (NotFoundError, "Check the name, and that its CRD is installed (`gpuledger crds install`)."),
    409: (ConflictError, "Read the object again before writing it, or agree with whoever owns the fields."),
    410: (GoneError, "List again."),
    UNPROCESSABLE: (InvalidError, "Correct the fields that are named."),
}


def error_of(what: str, where: str, code: int, status: Mapping[str, Any], retry_after_s: float | None) -> KubeError:
    """The error for a `Status`.

    `what` is the request (`get gpudevices.gpu.deckhouse.io "x"`), `where` the server. `status` may be empty.
    """
    code = code or int(status.get("code") or 0)
    details = status.get("details") or {}
    causes = _causes(details)
    retry_after_s = retry_after_s if retry_after_s is not None else details.get("retryAfterSeconds")
    text = f"{where} answered {what} with {_message(code, status, causes)}"
    if any(cause.reason == TOO_LARGE_VERSION for cause in causes):
        return GoneError(f"{text} List again.", code, str(status.get("reason", "")), causes)
    is_of_budget = _is_of_budget(code, status, causes)
    if is_of_budget or code == 429:
        kind = DisruptionBudgetError if is_of_budget else TooManyRequestsError
        return kind(f"{text} Wait and repeat.", retry_after_s, causes)
    if code == INTERNAL and str(status.get("message", "")).startswith(NOT_OF_ITS_SCHEMA):
        return SchemaError(f"{text} {SCHEMAS_HINT}", code, str(status.get("reason", "")), causes)
    if code == INTERNAL and WEBHOOK_IS_AWAY in str(status.get("message", "")):
        return WebhookAwayError(f"{text} Look after the webhook, or repeat it later.", retry_after_s, causes)
    if code in SERVER_ERRORS and code != NOT_IMPLEMENTED:
        return UnavailableError(f"{text} Repeat it later, and look into the server's log.", retry_after_s, causes)
    return _refusal(text, code, str(status.get("reason", "")), causes)


def _is_of_budget(code: int, status: Mapping[str, Any], causes: tuple[StatusCause, ...]) -> bool:
    if code == 429:
        return any(cause.reason == DISRUPTION_BUDGET for cause in causes)
    return code == INTERNAL and str(status.get("message", "")).startswith(SEVERAL_BUDGETS)


def _refusal(text: str, code: int, reason: str, causes: tuple[StatusCause, ...]) -> RefusedError:
    kind, hint = _REFUSALS.get(code, (RefusedError, "Check that the server is a Kubernetes API of 1.34 or newer."))
    if reason == "AlreadyExists":
        kind, hint = AlreadyExistsError, "Use another name, or change the object that is there."
    if reason in ("Expired", "Gone"):
        kind, hint = GoneError, "List again."
    if f"{code}: {WEBHOOK}" in text:
        hint = ""
    return kind(f"{text} {hint}".rstrip(), code, reason, causes)


def _message(code: int, status: Mapping[str, Any], causes: tuple[StatusCause, ...]) -> str:
    message = str(status.get("message") or status.get("reason") or "no message").strip()[:MESSAGE_CHARS_MAX]
    named = [f"{cause.field}: {cause.message}" for cause in causes if cause.field and cause.field not in message]
    shown = "; ".join([message.rstrip("."), *named[:CAUSES_SHOWN_MAX]])
    return f"{code}: {shown}."


def _causes(details: Mapping[str, Any]) -> tuple[StatusCause, ...]:
    given = details.get("causes") or ()
    return tuple(StatusCause(*(str(one.get(key, "")) for key in ("reason", "message", "field"))) for one in given)

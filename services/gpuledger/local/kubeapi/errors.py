"""Defines the errors of the server, each of which becomes a `Status` as Kubernetes words it.

Clients branch on reasons, codes and details, so these are exact; messages are for people and only resemble the
original.
"""

from collections.abc import Iterable

from gpuledger.edge.kube.schema.causes import Cause, Object

UNPROCESSABLE = 422


class ApiError(Exception):
    """An answer other than success, as a `Status`.

    `details` has whichever of name, group, kind, uid, causes and retryAfterSeconds apply; None leaves details out.
    """

    def __init__(
        self, code: int, reason: str, message: str, details: Object | None = None, *, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s

    def status(self) -> Object:
        """The answer's body."""
        body: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        body |= {"message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return body | {"code": self.code}


class PlainError(Exception):
    """A plain-text answer, as Kubernetes gives outside of resources."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def bad_request(message: str) -> ApiError:
    """The request cannot be read."""
    return ApiError(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> ApiError:
    """There is no such object."""
    of = f"{plural}.{group}" if group else plural
    return ApiError(404, "NotFound", f'{of} "{name}" not found', _details(name, group, plural))


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """An object of that name exists."""
    of = f"{plural}.{group}" if group else plural
    return ApiError(409, "AlreadyExists", f'{of} "{name}" already exists', _details(name, group, plural))


def conflict(group: str, kind: str, name: str, message: str) -> ApiError:
    """The stored object is not the one that the request expects. `kind` is the plural, except for preconditions."""
    of = f"{kind}.{group}" if group else kind
    text = f'Operation cannot be fulfilled on {of} "{name}": {message}'
    return ApiError(409, "Conflict", text, _details(name, group, kind))


def denied(group: str, plural: str, name: str, message: str) -> ApiError:
    """The request is forbidden."""
    of = f"{plural}.{group}" if group else plural
    return ApiError(403, "Forbidden", f'{of} "{name}" is forbidden: {message}', _details(name, group, plural))


def unprocessable(group: str, kind: str, name: str, causes: Iterable[Cause]) -> ApiError:
    """An object is invalid; details list every cause."""
    every = list(causes)
    of = f"{kind}.{group}" if group else kind
    text = ", ".join(f"{cause.field}: {cause.message}" for cause in every)
    if len(every) > 1:
        text = f"[{text}]"
    details = _details(name, group, kind) | {"causes": [cause._asdict() for cause in every]}
    return ApiError(UNPROCESSABLE, "Invalid", f'{of} "{name}" is invalid: {text}', details)


def method_not_allowed(verb: str) -> ApiError:
    """The resource does not take this method."""
    message = f"the server does not allow this method on the requested resource ({verb})"
    return ApiError(405, "MethodNotAllowed", message, {})


def not_implemented(what: str) -> ApiError:
    """501 for a feature that Kubernetes has and this server lacks."""
    return ApiError(501, "NotImplemented", f"The embedded API server does not implement {what}.", {})


def internal(message: str) -> ApiError:
    """Kubernetes answers some bad requests with a bare 500."""
    return ApiError(500, "", message)


def _details(name: str, group: str, kind: str) -> Object:
    parts = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in parts.items() if value}

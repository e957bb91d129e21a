"""What an API server asks, and what it is answered: the AdmissionReview of `admission.k8s.io/v1` as values. Pure.

A refusal's message begins with its reason, one word that people can search for.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.edge.admission.errors import ReviewError

Object = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
FORBIDDEN: Final = 403

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"

NOTHING: Final[Object] = {}


class User(NamedTuple):
    """Who asks."""

    name: str
    groups: frozenset[str] = frozenset()


class Review(NamedTuple):
    """What is to be done to which object. `new` is empty when one is deleted, `old` when one is created.

    `manager` is the field manager that the request gives itself; anybody may give themselves any.
    """

    uid: str
    operation: str
    plural: str
    name: str
    namespace: str
    user: User
    new: Object = NOTHING
    old: Object = NOTHING
    manager: str = ""


class Verdict(NamedTuple):
    """Whether it may be done. `reason` is empty where it may; `patch` is a JSON Patch (RFC 6902)."""

    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[Object, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Whether nothing is against it."""
        return not self.reason


ALLOWED: Final = Verdict()


class Problem(NamedTuple):
    """Why something is refused. The message says what is wrong, where, and what to do."""

    reason: str
    message: str

    def verdict(self) -> Verdict:
        """The refusal."""
        return Verdict(self.reason, self.message)


def read_review(document: object) -> Review:
    """The question in an AdmissionReview.

    Raises:
        ReviewError: it is none.
    """
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise ReviewError(f"The body is no {KIND} of {API_VERSION}.")
    request = document.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ReviewError("The AdmissionReview has no request with a uid.")
    user = part(request, "userInfo")
    return Review(
        request["uid"],
        str(request.get("operation", "")),
        str(part(request, "resource").get("resource", "")),
        str(request.get("name") or ""),
        str(request.get("namespace") or ""),
        User(str(user.get("username") or ""), frozenset(map(str, items(user, "groups")))),
        part(request, "object"),
        part(request, "oldObject"),
        str(part(request, "options").get("fieldManager") or ""),
    )


def answer(uid: str, verdict: Verdict) -> dict[str, Any]:
    """The AdmissionReview that answers the question of that uid."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.is_allowed}
    if not verdict.is_allowed:
        message = f"{verdict.reason}: {verdict.message}"
        response["status"] = {"code": FORBIDDEN, "reason": verdict.reason, "message": message}
    if verdict.warnings:
        response["warnings"] = list(verdict.warnings)
    if verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(verdict.patch)).decode()
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}


def part(holder: object, *path: str) -> Object:
    """The object at a path, empty where there is none."""
    for name in path:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    return holder if isinstance(holder, Mapping) else NOTHING


def items(holder: object, *path: str) -> list[Any]:
    """The list at a path, empty where there is none."""
    found = part(holder, *path[:-1]).get(path[-1])
    return found if isinstance(found, list) else []

"""Requests and responses of webhooks: the AdmissionReview of `admission.k8s.io/v1` as values. Pure.

A refusal's message begins with its reason, one word that people can search for.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.edge.kube.objects import NOTHING, items, mapping
from gpuledger.edge.webhooks.errors import ReviewError

Object = Mapping[str, Any]
"""A Kubernetes object, or a part of one, as JSON has it."""

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
FORBIDDEN: Final = 403

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"
DELETE: Final = "DELETE"


class Requester(NamedTuple):
    """The user who makes a request."""

    name: str
    groups: frozenset[str] = frozenset()


class AdmissionRequest(NamedTuple):
    """A change of an object that the API server asks about. `new` is empty in a deletion, `old` in a creation.

    `manager` is the field manager that the request names; anybody may name any. A dry run stores nothing.
    """

    uid: str
    operation: str
    plural: str
    name: str
    namespace: str
    user: Requester
    new: Object = NOTHING
    old: Object = NOTHING
    manager: str = ""
    subresource: str = ""
    is_dry_run: bool = False


class AdmissionResponse(NamedTuple):
    """Whether the change is allowed: `reason` is empty if it is. `patch` is a JSON Patch (RFC 6902)."""

    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[Object, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Whether the API server may go on."""
        return not self.reason


ALLOWED: Final = AdmissionResponse()


def read_request(document: object) -> AdmissionRequest:
    """The request in an AdmissionReview.

    Raises:
        ReviewError: the document is not an AdmissionReview with a request.
    """
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise ReviewError(f"The body is not an {KIND} of {API_VERSION}.")
    request = document.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise ReviewError("The AdmissionReview has no request with a uid.")
    user = mapping(request, "userInfo")
    return AdmissionRequest(
        request["uid"],
        str(request.get("operation", "")),
        str(mapping(request, "resource").get("resource", "")),
        str(request.get("name") or ""),
        str(request.get("namespace") or ""),
        Requester(str(user.get("username") or ""), frozenset(map(str, items(user, "groups")))),
        mapping(request, "object"),
        mapping(request, "oldObject"),
        str(mapping(request, "options").get("fieldManager") or ""),
        str(request.get("subResource") or ""),
        request.get("dryRun") is True,
    )


def review_document(uid: str, response: AdmissionResponse) -> dict[str, Any]:
    """The AdmissionReview that answers the request of that uid."""
    answer: dict[str, Any] = {"uid": uid, "allowed": response.is_allowed}
    if not response.is_allowed:
        message = f"{response.reason}: {response.message}"
        answer["status"] = {"code": FORBIDDEN, "reason": response.reason, "message": message}
    if response.warnings:
        answer["warnings"] = list(response.warnings)
    if response.patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(orjson.dumps(response.patch)).decode()
    return {"apiVersion": API_VERSION, "kind": KIND, "response": answer}

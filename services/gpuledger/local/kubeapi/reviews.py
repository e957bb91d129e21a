"""Answers access reviews (`kubectl auth can-i`, `auth whoami`) from the stored RBAC objects. Pure."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import bad_request, unprocessable
from gpuledger.local.kubeapi.resources import timestamp
from gpuledger.local.kubeapi.strategies import rbac

AUTHORIZATION = "authorization.k8s.io"

_BOTH = "cannot be specified in combination with resourceAttributes"
_NEITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_ATTRIBUTES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")


class Reviewer(NamedTuple):
    """The inputs of a review: the request's namespace, user and time, and the stored policies."""

    namespace: str
    user: str
    groups: tuple[str, ...]
    policies: rbac.Policies
    now: datetime


def review(resource_plural: str, body: Object, reviewer: Reviewer) -> Object:
    """Answer a review: the body with its status, without kind and apiVersion where it had none.

    Raises:
        ApiError: 422 or 400, the review is invalid.
    """
    return _ANSWERS[resource_plural](body, reviewer)


def _subject_access(body: Object, reviewer: Reviewer) -> Object:
    spec = body.get("spec") or {}
    causes = [*_spec_causes(spec), *_user_causes(spec), *_metadata_causes(body)]
    return _decided(body, reviewer, spec, spec.get("user") or "", tuple(spec.get("groups") or ()), causes)


def _self_access(body: Object, reviewer: Reviewer) -> Object:
    spec = body.get("spec") or {}
    causes = [*_spec_causes(spec), *_metadata_causes(body)]
    return _decided(body, reviewer, spec, reviewer.user, reviewer.groups, causes)


def _local_access(body: Object, reviewer: Reviewer) -> Object:
    spec, metadata = body.get("spec") or {}, body.setdefault("metadata", {})
    metadata["namespace"] = metadata.get("namespace") or reviewer.namespace
    if metadata["namespace"] != reviewer.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    causes = [*_spec_causes(spec), *_user_causes(spec), *_metadata_causes(body, but=("namespace",))]
    attributes = spec.get("resourceAttributes")
    if attributes is not None and (attributes.get("namespace") or "") != reviewer.namespace:
        field = "spec.resourceAttributes.namespace"
        causes.append(invalid(field, attributes.get("namespace") or "", "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        message = "disallowed on this kind of request"
        causes.append(invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"], message))
    return _decided(body, reviewer, spec, spec.get("user") or "", tuple(spec.get("groups") or ()), causes)


def _decided(
    body: Object, reviewer: Reviewer, spec: Object, user: str, groups: tuple[str, ...], causes: list[Cause]
) -> Object:
    if causes:
        raise unprocessable(AUTHORIZATION, "", "", causes)
    allowed, reason = rbac.allowed(user, groups, attributes_of(spec), reviewer.policies)
    status: Object = {"allowed": allowed} | ({"reason": reason} if reason else {})
    return {**_head(body), "spec": _without_empty(spec), "status": status}


def attributes_of(spec: Object) -> Mapping[str, str]:
    """The attributes of a review's spec, as `rbac.allowed` takes them."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        return {"verb": other.get("verb") or "", "path": other.get("path") or ""}
    attributes = spec.get("resourceAttributes") or {}
    return {name: attributes.get(name) or "" for name in _ATTRIBUTES}


def _self_rules(body: Object, reviewer: Reviewer) -> Object:
    spec = body.get("spec") or {}
    namespace = spec.get("namespace") or ""
    if not namespace:
        raise bad_request("no namespace on request")
    rules = rbac.rules_for(reviewer.user, reviewer.groups, namespace, reviewer.policies)
    status = {
        "resourceRules": [_without_empty(rule) for rule in rules if not rule.get("nonResourceURLs")],
        "nonResourceRules": [_without_empty(rule) for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    return {**_head(body), "spec": {}, "status": status}


def _self_subject(body: Object, reviewer: Reviewer) -> Object:
    head = _head(body)
    metadata = head["metadata"] | {"creationTimestamp": timestamp(reviewer.now)}
    status = {"userInfo": {"username": reviewer.user, "groups": list(reviewer.groups)}}
    return {**head, "metadata": metadata, "status": status}


_ANSWERS: Mapping[str, Callable[[Object, Reviewer], Object]] = {
    "subjectaccessreviews": _subject_access,
    "selfsubjectaccessreviews": _self_access,
    "localsubjectaccessreviews": _local_access,
    "selfsubjectrulesreviews": _self_rules,
    "selfsubjectreviews": _self_subject,
}


def _spec_causes(spec: Object) -> list[Cause]:
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and other is not None:
        return [invalid("spec.nonResourceAttributes", other, _BOTH)]
    if resource is None and other is None:
        return [invalid("spec.resourceAttributes", None, _NEITHER)]
    return []


def _user_causes(spec: Object) -> list[Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


def _metadata_causes(body: Object, but: Sequence[str] = ()) -> list[Cause]:
    metadata = body.get("metadata") or {}
    if any(value for name, value in metadata.items() if name not in {*but, "managedFields"}):
        tail = f" except for {but[0]}" if but else ""
        return [invalid("metadata", metadata, f"must be empty{tail}")]
    return []


def _head(body: Object) -> Object:
    head: Object = {name: body[name] for name in ("kind", "apiVersion") if name in body}
    metadata = {name: value for name, value in (body.get("metadata") or {}).items() if value}
    return {**head, "metadata": metadata}


def _without_empty(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {name: _without_empty(value) for name, value in node.items() if value not in ("", [], None)}

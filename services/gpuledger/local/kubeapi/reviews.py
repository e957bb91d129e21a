"""Who asks, and what may they do: reviews of access, and reading a request's credentials.

Pure: tokens, the clock and the authorizer are arguments. Nothing here stores an object.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.local.kubeapi.errors import ApiError, bad_request, not_found, unprocessable

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
ANONYMOUS, UNAUTHENTICATED, AUTHENTICATED = "system:anonymous", "system:unauthenticated", "system:authenticated"
MASTERS = "system:masters"

_BOTH = "cannot be specified in combination with resourceAttributes"
_NEITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_ASKED = ("namespace", "verb", "group", "version", "resource", "subresource", "name")


class User(NamedTuple):
    """Who asks. `extra` is what the way of authentication adds."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = {}

    def info(self) -> Object:
        """As `UserInfo` writes it."""
        parts: Object = {"username": self.name, "uid": self.uid, "groups": list(self.groups)}
        parts["extra"] = {name: list(values) for name, values in self.extra.items()}
        return {name: value for name, value in parts.items() if value}


ADMIN = User("system:admin", (MASTERS, AUTHENTICATED))
"""Everybody who comes over the plain port."""

NOBODY = User(ANONYMOUS, (UNAUTHENTICATED,))

Authorize = Callable[[str, tuple[str, ...], Mapping[str, str]], tuple[bool, str]]
"""Whether a user of these groups may do what attributes say, and why; see `strategies.rbac.allowed`."""

RulesFor = Callable[[str, tuple[str, ...], str], Iterable[Object]]
"""The rules for a user of these groups in a namespace; see `strategies.rbac.rules_for`."""


class _Question(NamedTuple):
    body: Object
    namespace: str
    user: User
    authorize: Authorize
    rules: RulesFor
    tokens: Mapping[str, User]
    now: datetime | None


def _no_rules(user: str, groups: tuple[str, ...], namespace: str) -> Iterable[Object]:
    return ()


def review(
    resource_plural: str,
    body: Object,
    *,
    namespace: str,
    user: str,
    groups: Iterable[str],
    authorize: Authorize,
    rules: RulesFor = _no_rules,
    tokens: Mapping[str, User] | None = None,
    now: datetime | None = None,
    uid: str = "",
    extra: Mapping[str, Sequence[str]] | None = None,
) -> Object:
    """Answer a review: the body with its status, without kind and apiVersion where it had none.

    Raises:
        ApiError: 422 or 400, the question is not one; 404, there is no such review.
    """
    answer = _ANSWERS.get(resource_plural)
    if answer is None:
        raise not_found(AUTHORIZATION, resource_plural, "")
    who = User(user, tuple(groups), uid, extra or {})
    return answer(_Question(body, namespace, who, authorize, rules, tokens or {}, now))


def authenticate(
    headers: Mapping[str, str],
    peer_certificate: Mapping[str, Any] | None,
    tokens: Mapping[str, User],
    *,
    anonymous: bool = True,
) -> User:
    """Who sends a request. The certificate is as `ssl.SSLSocket.getpeercert` gives it, already verified.

    Raises:
        ApiError: 401, the token is not known, or there is no credential and nobody may be anonymous.
    """
    known = _certified(peer_certificate or {})
    if known is not None:
        return known
    token = bearer_token(headers)
    if not token:
        if not anonymous:
            raise unauthorized()
        return NOBODY
    user = tokens.get(token)
    if user is None:
        raise unauthorized()
    return _authenticated(user)


def bearer_token(headers: Mapping[str, str]) -> str:
    """The token of a request, empty where it has none."""
    given = next((value for name, value in headers.items() if name.lower() == "authorization"), "")
    scheme, _, token = given.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """The user that a service account's token stands for."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)


def verb_of(method: str, *, is_named: bool, watches: bool = False) -> str:
    """The verb that RBAC knows a method by."""
    match method:
        case "GET" | "HEAD":
            return "watch" if watches else "get" if is_named else "list"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "DELETE":
            return "delete" if is_named else "deletecollection"
    return method.lower()


def unauthorized() -> ApiError:
    """The credential is none."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def refused(user: str, attributes: Mapping[str, str], reason: str = "") -> ApiError:
    """What somebody is told who may not do what the attributes say."""
    tail = f": {reason}" if reason else ""
    verb, name = attributes.get("verb", ""), attributes.get("name", "")
    if "path" in attributes:
        message = f'forbidden: User "{user}" cannot {verb} path "{attributes["path"]}"{tail}'
        return ApiError(403, "Forbidden", message, {})
    plural, group = attributes.get("resource", ""), attributes.get("group", "")
    namespace, subresource = attributes.get("namespace", ""), attributes.get("subresource", "")
    what = f"{plural}.{group}" if group else plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    full = f"{plural}/{subresource}" if subresource else plural
    named = f'{what} "{name}"' if name else what
    message = (
        f'{named} is forbidden: User "{user}" cannot {verb} resource "{full}" in API group "{group}" {where}{tail}'
    )
    parts = {"name": name, "group": group, "kind": plural}
    return ApiError(403, "Forbidden", message, {key: value for key, value in parts.items() if value})


def _certified(certificate: Mapping[str, Any]) -> User | None:
    subject = [pair for part in certificate.get("subject") or () for pair in part]
    name = next((value for kind, value in subject if kind == "commonName"), "")
    if not name:
        return None
    return _authenticated(User(name, tuple(value for kind, value in subject if kind == "organizationName")))


def _authenticated(user: User) -> User:
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return user._replace(groups=(*user.groups, AUTHENTICATED))


def _subject_access(question: _Question) -> Object:
    spec = question.body.get("spec") or {}
    causes = [*_spec_causes(spec), *_user_causes(spec), *_metadata_causes(question.body)]
    return _decided(question, spec, spec.get("user") or "", tuple(spec.get("groups") or ()), causes)


def _self_access(question: _Question) -> Object:
    spec = question.body.get("spec") or {}
    causes = [*_spec_causes(spec), *_metadata_causes(question.body)]
    return _decided(question, spec, question.user.name, question.user.groups, causes)


def _local_access(question: _Question) -> Object:
    spec, metadata = question.body.get("spec") or {}, question.body.setdefault("metadata", {})
    metadata["namespace"] = metadata.get("namespace") or question.namespace
    if metadata["namespace"] != question.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    causes = [*_spec_causes(spec), *_user_causes(spec), *_metadata_causes(question.body, but=("namespace",))]
    asked = spec.get("resourceAttributes")
    if asked is not None and (asked.get("namespace") or "") != question.namespace:
        field = "spec.resourceAttributes.namespace"
        causes.append(invalid(field, asked.get("namespace") or "", "must match metadata.namespace"))
    if spec.get("nonResourceAttributes") is not None:
        message = "disallowed on this kind of request"
        causes.append(invalid("spec.nonResourceAttributes", spec["nonResourceAttributes"], message))
    return _decided(question, spec, spec.get("user") or "", tuple(spec.get("groups") or ()), causes)


def _decided(question: _Question, spec: Object, user: str, groups: tuple[str, ...], causes: list[Cause]) -> Object:
    if causes:
        raise unprocessable(AUTHORIZATION, "", "", causes)
    allowed, reason = question.authorize(user, groups, attributes_of(spec))
    status: Object = {"allowed": allowed} | ({"reason": reason} if reason else {})
    return {**_head(question.body), "spec": _without_empty(spec), "status": status}


def attributes_of(spec: Object) -> Mapping[str, str]:
    """What a review's spec asks for, as `Authorize` takes it."""
    other = spec.get("nonResourceAttributes")
    if other is not None:
        return {"verb": other.get("verb") or "", "path": other.get("path") or ""}
    asked = spec.get("resourceAttributes") or {}
    return {name: asked.get(name) or "" for name in _ASKED}


def _self_rules(question: _Question) -> Object:
    spec = question.body.get("spec") or {}
    namespace = spec.get("namespace") or ""
    if not namespace:
        raise bad_request("no namespace on request")
    rules = list(question.rules(question.user.name, question.user.groups, namespace))
    status = {
        "resourceRules": [_without_empty(rule) for rule in rules if not rule.get("nonResourceURLs")],
        "nonResourceRules": [_without_empty(rule) for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }
    return {**_head(question.body), "spec": {}, "status": status}


def _self_subject(question: _Question) -> Object:
    answer = _head(question.body)
    metadata = dict(answer["metadata"])
    if question.now is not None:
        metadata["creationTimestamp"] = question.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**answer, "metadata": metadata, "status": {"userInfo": question.user.info()}}


def _token(question: _Question) -> Object:
    spec = question.body.get("spec") or {}
    if (question.body.get("metadata") or {}).get("namespace"):
        raise bad_request("namespace is not allowed on this type")
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    user = question.tokens.get(spec["token"])
    status: Object = {"user": {}, "error": "invalid bearer token"}
    if user is not None:
        status = {"authenticated": True, "user": _authenticated(user).info()}
        if spec.get("audiences"):
            status["audiences"] = spec["audiences"]
    return {**_head(question.body), "spec": _without_empty(spec), "status": status}


_ANSWERS: Mapping[str, Callable[[_Question], Object]] = {
    "subjectaccessreviews": _subject_access,
    "selfsubjectaccessreviews": _self_access,
    "localsubjectaccessreviews": _local_access,
    "selfsubjectrulesreviews": _self_rules,
    "selfsubjectreviews": _self_subject,
    "tokenreviews": _token,
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

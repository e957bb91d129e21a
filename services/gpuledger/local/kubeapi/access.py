"""Decides on whose behalf a request runs, and checks requests with `--as` against RBAC.

Everybody who reaches the server is an administrator and may do everything, but may also act as another user with the
`Impersonate-*` headers. Only such requests are held to the stored roles and bindings.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote

from gpuledger.local.kubeapi.errors import ApiError, bad_request, denied
from gpuledger.local.kubeapi.registry import Target
from gpuledger.local.kubeapi.store import Store
from gpuledger.local.kubeapi.strategies import rbac
from gpuledger.local.kubeapi.terminating import NAMESPACES

ANONYMOUS, UNAUTHENTICATED, AUTHENTICATED = "system:anonymous", "system:unauthenticated", "system:authenticated"
SERVICE_ACCOUNT = "system:serviceaccount:"
SERVICE_ACCOUNTS = "system:serviceaccounts"
KINDS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
_EXTRA: Final = "impersonate-extra-"
_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_COLLECTIONS = {"get": "list", "delete": "deletecollection"}


class Caller(NamedTuple):
    """The user that a request acts as. `is_impersonated` is set if an administrator acts as another user.

    `extra` is what a token says besides, such as the node of its pod.
    """

    user: str = "system:admin"
    groups: tuple[str, ...] = (rbac.MASTERS, AUTHENTICATED)
    is_impersonated: bool = False
    extra: Mapping[str, list[str]] = MappingProxyType({})


def caller(user: str, groups: Sequence[str], extra: Mapping[str, list[str]] = MappingProxyType({})) -> Caller:
    """The user that the `Impersonate-User` and `Impersonate-Group` headers name.

    Raises:
        ApiError: 400, groups or extra fields without a user.
    """
    if not user:
        if groups:
            raise bad_request("requested groups to impersonate, without the user that is in them")
        if extra:
            raise bad_request("requested extra fields to impersonate, without the user that has them")
        return Caller()
    members = tuple(dict.fromkeys((*(groups or _groups_of(user)), _level_of(user))))
    return Caller(user, members, is_impersonated=True, extra=extra)


def extra_of(headers: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The fields of the `Impersonate-Extra-*` headers, whose names are percent-encoded and in lower case."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        if name.lower().startswith(_EXTRA):
            found.setdefault(unquote(name.lower().removeprefix(_EXTRA)), []).append(value)
    return found


def verb(method: str, target: Target, *, watches: bool) -> str:
    """RBAC's verb for a request."""
    single = _VERBS.get(method, method.lower())
    if target.name:
        return single
    return "watch" if watches and single == "get" else _OF_COLLECTIONS.get(single, single)


def authorize(store: Store, who: Caller, what: str, target: Target) -> None:
    """Check that RBAC allows a request.

    Raises:
        ApiError: 403.
    """
    resource = target.resource
    attributes = {
        "verb": what,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": target.subresource,
        "name": target.name,
        "namespace": target.name if resource.key == NAMESPACES else target.namespace,
    }
    is_allowed, _ = rbac.allowed(who.user, who.groups, attributes, policies_of(store))
    if not is_allowed:
        raise _refusal(who, what, target)


def policies_of(store: Store) -> rbac.Policies:
    """The stored roles and bindings."""
    return {kind: store.collection((rbac.GROUP, kind)).objects() for kind in KINDS}


def _refusal(who: Caller, what: str, target: Target) -> ApiError:
    resource = target.resource
    named = resource.plural + (f"/{target.subresource}" if target.subresource else "")
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    text = f'User "{who.user}" cannot {what} resource "{named}" in API group "{resource.group}" {where}'
    return denied(resource.group, resource.plural, target.name, text)


def _groups_of(user: str) -> tuple[str, ...]:
    if not user.startswith(SERVICE_ACCOUNT):
        return ()
    namespace = user.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def _level_of(user: str) -> str:
    return UNAUTHENTICATED if user == ANONYMOUS else AUTHENTICATED

"""What a check's container keeps of what others have made of it, where an API server asks the webhook again. Pure.

An API server runs its own admission plugins anew once the webhook has changed a pod, then the webhook, and validates
only then: the plugins would refuse a pod in which the webhook took back what they amended. Whoever creates a pod may
have brought the same along under the name of a check, so of a container that runs the same only that stays which
confines it, or which the pod as a whole may set for it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.webhooks.serving.review import Object

_RUNS: Final = ("image", "command", "args")

ALWAYS: Final = "Always"
"""The plugin AlwaysPullImages demands it."""

_USERS: Final = ("runAsUser", "runAsGroup", "seLinuxOptions")
"""What OpenShift's security context constraints set, and a pod may set for all of its containers."""

_CONFINING: Final = ("runAsNonRoot", "readOnlyRootFilesystem")
"""What confines a container where it is true."""

_DEFAULTED: Final = ("cpu", "memory", "ephemeral-storage")
"""Of which LimitRanges have defaults."""


def amended(container: dict[str, Any], existing: Object) -> dict[str, Any]:
    """The container, with what stays of the one of its name that is there already, if that runs the same."""
    if any(existing.get(key) != container.get(key) for key in _RUNS):
        return container
    found = {**container, "securityContext": _security(container["securityContext"], existing)}
    if existing.get("imagePullPolicy") == ALWAYS:
        found["imagePullPolicy"] = ALWAYS
    resources = _resources(mapping(container, "resources"), mapping(existing, "resources"))
    return {**found, "resources": resources} if resources else found


def _security(context: Mapping[str, Any], existing: Object) -> dict[str, Any]:
    there = mapping(existing, "securityContext")
    users = {key: there[key] for key in _USERS if key in there}
    return {**users, **{key: True for key in _CONFINING if there.get(key) is True}, **context}


def _resources(own: Object, existing: Object) -> dict[str, Any]:
    """Requests and limits, with defaults of what the check has none of."""
    added = dict(_added(own, existing))
    found = {kind: {**mapping(own, kind), **added.get(kind, {})} for kind in ("limits", "requests")}
    return {**own, **{kind: amounts for kind, amounts in found.items() if amounts}}


def _added(own: Object, existing: Object) -> Iterator[tuple[str, dict[str, Any]]]:
    taken = {*mapping(own, "limits"), *mapping(own, "requests")}
    for kind in ("limits", "requests"):
        there = mapping(existing, kind)
        yield kind, {name: there[name] for name in _DEFAULTED if name in there and name not in taken}

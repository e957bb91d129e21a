"""Counts and enforces ResourceQuotas on units of GPU pools and other extended resources.

Only names such as `requests.example.com/gpu` count; other names and quotas with scopes are stored but not enforced.
"""

from collections.abc import Iterable, Iterator

from gpuledger.domain.quantities import amount
from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import denied
from gpuledger.local.kubeapi.resources import ServedResource
from gpuledger.local.kubeapi.store import Store, key_of
from gpuledger.local.kubeapi.strategies.core_shared import at

PODS, QUOTAS = ("", "pods"), ("", "resourcequotas")
PREFIX = "requests."
ENDED = frozenset({"Succeeded", "Failed"})


def quota_status(quota: Object, pods: Iterable[Object]) -> Object:
    """The status of a quota, given the pods of its namespace."""
    counted = _counted(quota)
    if not counted:
        return at(quota, "status")
    holding = _holding(pods)
    used = {name: str(sum(_units(pod, name) for pod in holding)) for name in counted}
    return {"hard": dict(at(quota, "spec", "hard")), "used": used}


def refuse_over_quota(resource: ServedResource, pod: Object, store: Store) -> None:
    """Refuse a pod that exceeds the quotas of its namespace.

    Raises:
        ApiError: 403, it names the quota, and what was requested, used and allowed.
    """
    if resource.key == PODS:
        namespace, _ = key_of(pod)
        if quotas := store.collection(QUOTAS).objects(namespace):
            refuse_excess(pod, quotas, store.collection(PODS).objects(namespace))


def refuse_excess(pod: Object, quotas: Iterable[Object], pods: Iterable[Object]) -> None:
    """Refuse a pod that exceeds a quota, given the pods of its namespace.

    Raises:
        ApiError: 403, it names the quota, and what was requested, used and allowed.
    """
    holding = _holding(pods)
    for quota in quotas:
        if over := list(_exceeded(pod, quota, holding)):
            amounts = (
                f"{word}: {','.join(f'{name}={units[place]}' for name, units in over)}"
                for place, word in enumerate(("requested", "used", "limited"))
            )
            message = f"exceeded quota: {quota['metadata']['name']}, {', '.join(amounts)}"
            raise denied("", "pods", pod["metadata"]["name"], message)


def _exceeded(pod: Object, quota: Object, holding: list[Object]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """The names that are exceeded, with the requested, used and allowed amounts."""
    for name, hard in _counted(quota).items():
        requested = _units(pod, name)
        if requested and requested + (used := sum(_units(one, name) for one in holding)) > hard:
            yield name, (requested, used, hard)


def _counted(quota: Object) -> dict[str, int]:
    spec = at(quota, "spec")
    if spec.get("scopes") or spec.get("scopeSelector"):
        return {}
    hard = at(spec, "hard")
    return {name: int(amount(hard[name])) for name in sorted(hard) if name.startswith(PREFIX) and "/" in name}


def _holding(pods: Iterable[Object]) -> list[Object]:
    return [pod for pod in pods if at(pod, "status").get("phase") not in ENDED]


def _units(pod: Object, name: str) -> int:
    """The most units that a pod holds at a time: init containers run one by one, beside earlier sidecars."""
    spec, resource = at(pod, "spec"), name.removeprefix(PREFIX)
    staying = most = 0
    for one in spec.get("initContainers") or ():
        units = _requested(one, resource)
        most = max(most, staying + units)
        staying += units if one.get("restartPolicy") == "Always" else 0
    return max(most, staying + sum(_requested(one, resource) for one in spec.get("containers") or ()))


def _requested(container: Object, resource: str) -> int:
    return int(amount(at(container, "resources", "requests").get(resource, 0)))

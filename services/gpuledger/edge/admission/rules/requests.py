"""What a pod asks of pools: which resource, and how many units of it. Pure; looks at nothing but the pod."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.api.kinds import CLUSTER_GPU_GROUP
from gpuledger.api.labels import POOL_RESOURCES, pool_resource
from gpuledger.domain.quantities import UNIT, parse_quantity
from gpuledger.edge.admission.serving.review import Object, Problem, items, part

_SIDECAR: Final = "Always"
"""The restart policy of an init container that stays while the others run."""


class Asked(NamedTuple):
    """A pool, and how many of its units a pod holds at most at a time."""

    pool: str
    is_cluster: bool
    amount: int

    @property
    def resource(self) -> str:
        """The resource's name."""
        return pool_resource(self.pool, cluster=self.is_cluster)


class _Container(NamedTuple):
    name: str
    is_init: bool
    stays: bool
    limits: Mapping[str, object]
    requests: Mapping[str, object]


def asked_of_pools(pod: Object) -> Asked | Problem | None:
    """What a pod asks for; None where it asks for nothing of ours, and a problem where it cannot ask so."""
    containers = [one for one in _containers(pod) if one.limits or one.requests]
    if not containers:
        return None
    resources = sorted({name for one in containers for name in (*one.limits, *one.requests)})
    if len(resources) > 1:
        listed = ", ".join(resources)
        return Problem("MixedPoolRequest", f"The pod asks for {listed}. Ask for units of one pool only.")
    return _asked(resources[0], containers)


def _asked(resource: str, containers: list[_Container]) -> Asked | Problem:
    amounts = []
    for one in containers:
        amount = _amount(resource, one)
        if isinstance(amount, Problem):
            return amount
        amounts.append((one, amount))
    group, _, pool = resource.partition("/")
    if not pool or "/" in pool:
        return Problem("PoolNotFound", f"{resource!r} names no pool. Write the pool's name alone behind the slash.")
    return Asked(pool, group == CLUSTER_GPU_GROUP, _held_at_a_time(amounts))


def _amount(resource: str, container: _Container) -> int | Problem:
    where = f"container {container.name}"
    amounts = {}
    for kind, given in (("limits", container.limits), ("requests", container.requests)):
        if resource not in given:
            continue
        amount = _whole(given[resource])
        if amount is None:
            message = f"{given[resource]!r} of {resource} in the {kind} of {where} is no whole number of units."
            return Problem("InvalidQuantity", f"{message} Ask for 1 or more.")
        amounts[kind] = amount
    if "limits" not in amounts:
        message = f"{where} requests {resource} without a limit. Set the limit to the same number."
        return Problem("RequestNotLimit", message)
    if amounts.get("requests", amounts["limits"]) != amounts["limits"]:
        message = f"{where} requests {amounts['requests']} of {resource} with a limit of {amounts['limits']}"
        return Problem("RequestNotLimit", f"{message}. Make both the same number.")
    return amounts["limits"]


def _whole(given: object) -> int | None:
    try:
        quantity = parse_quantity(given)
    except ValueError:
        return None
    return quantity.whole if quantity.nanos >= 0 and quantity.nanos % UNIT == 0 else None


def _held_at_a_time(amounts: list[tuple[_Container, int]]) -> int:
    """As the scheduler counts: init containers one after another beside the sidecars before them, then all others."""
    staying = most = 0
    for container, amount in amounts:
        if container.is_init and container.stays:
            staying += amount
        elif container.is_init:
            most = max(most, staying + amount)
    return max(most, staying + sum(amount for container, amount in amounts if not container.is_init))


def _containers(pod: Object) -> Iterator[_Container]:
    spec = part(pod, "spec")
    for plural, is_init in (("initContainers", True), ("containers", False)):
        for one in items(spec, plural):
            stays = part(one).get("restartPolicy") == _SIDECAR
            limits, requests = (_ours(part(one, "resources", kind)) for kind in ("limits", "requests"))
            yield _Container(str(part(one).get("name", "")), is_init, stays, limits, requests)


def _ours(resources: Object) -> Object:
    return {name: value for name, value in resources.items() if name.startswith(POOL_RESOURCES)}

"""Which pool a pod requests, and how many units of it. Pure; reads nothing but the pod."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.pools.requests import ContainerRequest, is_sidecar, read_units, units_held
from gpuledger.edge.admission.serving.review import Object, Problem, items, part


class PoolRequest(NamedTuple):
    """A pool, and how many of its units a pod holds at most at a time."""

    pool: PoolRef
    units: int


class _Container(NamedTuple):
    name: str
    is_init: bool
    is_sidecar: bool
    limits: Mapping[str, object]
    requests: Mapping[str, object]


def pool_request(pod: Object, namespace: str) -> PoolRequest | Problem | None:
    """What a pod of a namespace requests; None where it is nothing of a pool, a problem where it is not valid."""
    containers = [one for one in _containers(pod) if one.limits or one.requests]
    if not containers:
        return None
    resources = sorted({name for one in containers for name in (*one.limits, *one.requests)})
    if len(resources) > 1:
        listed = ", ".join(resources)
        return Problem("MixedPoolRequest", f"The pod asks for {listed}. Ask for units of one pool only.")
    return _requested(resources[0], containers, namespace)


def _requested(resource: str, containers: list[_Container], namespace: str) -> PoolRequest | Problem:
    requests = []
    for one in containers:
        units = _units(resource, one)
        if isinstance(units, Problem):
            return units
        requests.append(ContainerRequest(Counter({resource: units}), one.is_init, one.is_sidecar))
    pool = PoolRef.of_resource(resource, namespace)
    if pool is None or not pool.name or "/" in pool.name:
        return Problem("PoolNotFound", f"{resource!r} names no pool. Write the pool's name alone behind the slash.")
    return PoolRequest(pool, units_held(requests)[resource])


def _units(resource: str, container: _Container) -> int | Problem:
    where = f"container {container.name}"
    amounts = {}
    for kind, given in (("limits", container.limits), ("requests", container.requests)):
        if resource not in given:
            continue
        amount = read_units(given[resource])
        if not amount.is_exact:
            message = f"{given[resource]!r} of {resource} in the {kind} of {where} is no whole number of units."
            return Problem("InvalidQuantity", f"{message} Ask for 1 or more.")
        amounts[kind] = amount.number
    if "limits" not in amounts:
        message = f"{where} requests {resource} without a limit. Set the limit to the same number."
        return Problem("RequestNotLimit", message)
    if amounts.get("requests", amounts["limits"]) != amounts["limits"]:
        message = f"{where} requests {amounts['requests']} of {resource} with a limit of {amounts['limits']}"
        return Problem("RequestNotLimit", f"{message}. Make both the same number.")
    return amounts["limits"]


def _containers(pod: Object) -> Iterator[_Container]:
    spec = part(pod, "spec")
    for plural, is_init in (("initContainers", True), ("containers", False)):
        for one in map(part, items(spec, plural)):
            limits, requests = (_of_pools(part(one, "resources", kind)) for kind in ("limits", "requests"))
            yield _Container(str(one.get("name", "")), is_init, is_init and is_sidecar(one), limits, requests)


def _of_pools(resources: Object) -> Object:
    return {name: value for name, value in resources.items() if name.startswith(POOL_RESOURCES)}

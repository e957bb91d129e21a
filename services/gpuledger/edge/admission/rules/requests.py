"""Reads which pool a pod requests, and how many units of it. Pure; reads nothing but the pod."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.pools.requests import ContainerRequest, is_sidecar, read_units, units_held
from gpuledger.edge.admission.errors import DenialError
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.webhooks.serving.review import Object


class PoolRequest(NamedTuple):
    """A pool, and how many of its units a pod holds at most at a time."""

    pool: PoolRef
    units: int


class PodContainer(NamedTuple):
    """A container of a pod, and the units of pools in its limits and requests."""

    name: str
    is_init: bool
    is_sidecar: bool
    limits: Mapping[str, object]
    requests: Mapping[str, object]


def containers_with_units(pod: Object) -> list[PodContainer]:
    """The containers that request units of pools, in the order in which they run."""
    return [one for one in _containers(pod) if one.limits or one.requests]


def pool_request(containers: Iterable[PodContainer], namespace: str) -> PoolRequest:
    """What these containers of a pod in a namespace request.

    Raises:
        DenialError: they request units of several pools, or an invalid number.
    """
    resources = sorted({name for one in containers for name in (*one.limits, *one.requests)})
    if len(resources) > 1:
        listed = ", ".join(resources)
        raise DenialError("MixedPoolRequest", f"The pod asks for {listed}. Ask for units of one pool only.")
    (resource,) = resources
    held = units_held(
        ContainerRequest(Counter({resource: _units(resource, one)}), one.is_init, one.is_sidecar) for one in containers
    )
    pool = PoolRef.of_resource(resource, namespace)
    if pool is None or not pool.name or "/" in pool.name:
        message = f"{resource!r} names no pool. Write the pool's name alone behind the slash."
        raise DenialError("PoolNotFound", message)
    return PoolRequest(pool, held[resource])


def _units(resource: str, container: PodContainer) -> int:
    where = f"container {container.name}"
    amounts = {}
    for kind, given in (("limits", container.limits), ("requests", container.requests)):
        if resource not in given:
            continue
        amount = read_units(given[resource])
        if not amount.is_exact:
            message = f"{given[resource]!r} of {resource} in the {kind} of {where} is not a whole number of units."
            raise DenialError("InvalidQuantity", f"{message} Ask for 1 or more.")
        amounts[kind] = amount.number
    if "limits" not in amounts:
        message = f"{where} requests {resource} without a limit. Set the limit to the same number."
        raise DenialError("RequestNotLimit", message)
    if amounts.get("requests", amounts["limits"]) != amounts["limits"]:
        message = f"{where} requests {amounts['requests']} of {resource} with a limit of {amounts['limits']}"
        raise DenialError("RequestNotLimit", f"{message}. Make both the same number.")
    return amounts["limits"]


def _containers(pod: Object) -> Iterator[PodContainer]:
    spec = mapping(pod, "spec")
    for plural, is_init in (("initContainers", True), ("containers", False)):
        for one in map(mapping, items(spec, plural)):
            limits, requests = (_of_pools(mapping(one, "resources", kind)) for kind in ("limits", "requests"))
            yield PodContainer(str(one.get("name", "")), is_init, is_init and is_sidecar(one), limits, requests)


def _of_pools(resources: Object) -> Object:
    return {name: value for name, value in resources.items() if name.startswith(POOL_RESOURCES)}

"""How many units of pools a pod requests, as an object of the API server says it. Pure; nothing here raises."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.labels import POOL_RESOURCES
from gpuledger.domain.pools.requests import ContainerRequest, is_sidecar, read_units, units_held
from gpuledger.edge.watchers.problems import Problems
from gpuledger.edge.watchers.reading import mapping, text
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.pod import RESOURCES_MAX

CONTAINERS_MAX: Final = 1024


def requests_of(spec: Mapping[str, Any], problems: Problems) -> dict[str, int]:
    """Units by resource; only resources of pools, and only what is requested at all."""
    containers = [
        ContainerRequest(_requested(one, place), is_init, is_init and is_sidecar(one))
        for field, is_init in (("initContainers", True), ("containers", False))
        for one, place in problems.each(spec, field, CONTAINERS_MAX)
    ]
    return _bounded(units_held(containers), problems)


def _requested(container: Mapping[str, Any], problems: Problems) -> Counter[str]:
    """What one container requests; a limit requests as much, where no request says otherwise."""
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    requested: Counter[str] = Counter()
    for resource in sorted({*limits, *requests}):
        if resource.startswith(POOL_RESOURCES) and text(resource):
            value = limits.get(resource) if requests.get(resource) is None else requests[resource]
            units = read_units(value)
            requested[resource] = units.number
            if not units.is_exact:
                problems.within("resources").tell(resource, value)
    return requested


def _bounded(held: Mapping[str, int], problems: Problems) -> dict[str, int]:
    resources = sorted(resource for resource, units in held.items() if units)
    if len(resources) > RESOURCES_MAX:
        problems.say(f"it requests {len(resources)} resources; only {RESOURCES_MAX} of them are recorded")
    return {resource: min(held[resource], BIGINT_MAX) for resource in resources[:RESOURCES_MAX]}

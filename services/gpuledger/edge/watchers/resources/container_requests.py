"""Reads what the containers of a pod request of some resources, and how they run; kinds of pods share it. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.domain.pools.requests import ContainerRequest, is_sidecar, read_units
from gpuledger.edge.kube.objects import mapping
from gpuledger.edge.watchers.fields import FieldReader, text
from gpuledger.events.payload import BIGINT_MAX

CONTAINERS_MAX: Final = 1024
ENDED: Final = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing any more."""

NameOf = Callable[[str], str | None]
"""Gives the name under which a resource is recorded; None for one that does not count."""


class NamedRequest(NamedTuple):
    """A container, and what it requests by recorded names."""

    name: str | None
    request: ContainerRequest


def container_requests(spec: Mapping[str, Any], reader: FieldReader, name_of: NameOf) -> list[NamedRequest]:
    """The requests of all containers; init containers come first, in their order."""
    return [
        NamedRequest(
            text(one.get("name")),
            ContainerRequest(_requested(one, place, name_of), is_init, is_init and is_sidecar(one)),
        )
        for field, is_init in (("initContainers", True), ("containers", False))
        for one, place in reader.each(spec, field, CONTAINERS_MAX)
    ]


def bounded(held: Mapping[str, int], reader: FieldReader, resources_max: int) -> dict[str, int]:
    """As much of it as an event holds, without what is 0."""
    resources = sorted(resource for resource, units in held.items() if units)
    if len(resources) > resources_max:
        reader.note(f"it requests {len(resources)} resources; only {resources_max} of them are recorded")
    return {resource: min(held[resource], BIGINT_MAX) for resource in resources[:resources_max]}


def _requested(container: Mapping[str, Any], reader: FieldReader, name_of: NameOf) -> Counter[str]:
    """The requests of one container; a limit is a request too, where there is no other."""
    limits, requests = mapping(container, "resources", "limits"), mapping(container, "resources", "requests")
    requested: Counter[str] = Counter()
    for resource in sorted({*limits, *requests}):
        name = name_of(resource) if text(resource) else None
        if name is not None:
            value = limits.get(resource) if requests.get(resource) is None else requests[resource]
            units = read_units(value)
            requested[name] = units.number
            if not units.is_exact:
                reader.within("resources").reject(resource, value)
    return requested

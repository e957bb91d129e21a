"""Reads the kubelet's list of pods: which containers hold GPUs, which units are in use, and what changed. Pure.

The kubelet lists every container of every device plugin; only those of GPUs become facts. Of a shared GPU a fact names
the card alone: how much of it a container has is in its pod's allocation, and a hundred ids say no more. Names that are
invalid or too long, and entries beyond the bounds of an event, are left out. Whoever applies the recorded facts in
order has the last list; a list that may be incomplete ends nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

from gpuledger.agent.kubelet.podresources_pb2 import ContainerDevices, ContainerResources, ListPodResourcesResponse
from gpuledger.agent.part import AgentFact
from gpuledger.agent.setup.offers import unit_base
from gpuledger.api.sharing import DEFAULT_NAMES, GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED, SharingNames
from gpuledger.events.allocation import (
    RESOURCE_GROUPS,
    RESOURCES_MAX,
    UNITS_OF_CONTAINER_MAX,
    AllocatedClaim,
    AllocatedDevices,
    AllocationEnded,
    AllocationObserved,
)
from gpuledger.events.envelope import SUBJECT_LENGTH_MAX
from gpuledger.events.payload import NAME_LENGTH_MAX

_OF_GPUS: Final = frozenset({GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED})
"""The resources of shares whose units are parts of GPUs."""

RecordedAllocations = Mapping[str, AllocationObserved | None]
"""The allocations in the ledger by id; None for one that an earlier process recorded."""


class AllocationChanges(NamedTuple):
    """The facts to record, and the allocations in the ledger after that."""

    facts: tuple[AgentFact, ...]
    recorded: RecordedAllocations


def changes(
    recorded: RecordedAllocations, listed: Mapping[str, AllocationObserved], now: datetime, *, complete: bool
) -> AllocationChanges:
    """The difference between the ledger and a list; ends come first, so that no unit has two holders.

    An allocation that is missing from a list ends only where the list is `complete`.
    """
    ended = sorted(recorded.keys() - listed.keys()) if complete else []
    changed = sorted(subject for subject, allocation in listed.items() if recorded.get(subject) != allocation)
    facts = [AgentFact(subject, AllocationEnded(), now) for subject in ended]
    facts += [AgentFact(subject, listed[subject], now) for subject in changed]
    return AllocationChanges(tuple(facts), dict(listed) if complete else {**recorded, **listed})


def allocations(
    node: str, pods: ListPodResourcesResponse, names: SharingNames = DEFAULT_NAMES
) -> Mapping[str, AllocationObserved]:
    """The containers that hold GPUs or claims, by the id of their allocation."""
    found: dict[str, AllocationObserved] = {}
    for pod in pods.pod_resources:
        for container in pod.containers:
            resources = _resources(container, names)
            claims = _claims(container, UNITS_OF_CONTAINER_MAX - sum(len(held.devices) for held in resources))
            if (resources or claims) and _are_names(pod.namespace, pod.name, container.name):
                found[subject_of(node, pod.namespace, pod.name, container.name)] = AllocationObserved(
                    node=node,
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    resources=resources,
                    claims=claims,
                )
    return found


def subject_of(node: str, namespace: str, pod: str, container: str) -> str:
    """The id of an allocation; one that would be too long ends in a hash of the whole."""
    whole = "/".join((node, namespace, pod, container))
    if len(whole) <= SUBJECT_LENGTH_MAX:
        return whole
    digest = sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: SUBJECT_LENGTH_MAX - len(digest) - 1]}-{digest}"


def in_use(pods: ListPodResourcesResponse) -> Mapping[str, frozenset[str]]:
    """The ids of the units that containers hold, by resource, of all device plugins."""
    containers = (container for pod in pods.pod_resources for container in pod.containers)
    return _ids(entry for container in containers for entry in container.devices)


def _ids(entries: Iterable[ContainerDevices]) -> dict[str, frozenset[str]]:
    """Ids by resource; the kubelet lists a resource once per NUMA node."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        found.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: frozenset(ids) for resource, ids in found.items()}


def _resources(container: ContainerResources, names: SharingNames) -> tuple[AllocatedDevices, ...]:
    ids = _ids(entry for entry in container.devices if entry.resource_name.startswith(RESOURCE_GROUPS))
    shares = _ids(entry for entry in container.devices if names.short(entry.resource_name) in _OF_GPUS)
    ids |= {resource: frozenset(map(unit_base, units)) for resource, units in shares.items()}
    named = {resource: sorted(filter(_are_names, ids[resource])) for resource in sorted(ids) if _are_names(resource)}
    held: list[AllocatedDevices] = []
    room = UNITS_OF_CONTAINER_MAX
    for resource, devices in named.items():
        if devices and room:
            held.append(AllocatedDevices(resource=resource, devices=tuple(devices[:room])))
            room -= len(held[-1].devices)
    return tuple(held[:RESOURCES_MAX])


def _claims(container: ContainerResources, most: int) -> tuple[AllocatedClaim, ...]:
    devices = {
        (one.claim_name, device.driver_name, device.pool_name, device.device_name)
        for one in container.dynamic_resources
        for device in one.claim_resources
    }
    return tuple(
        AllocatedClaim(claim=claim, driver=driver, pool=pool, device=device)
        for claim, driver, pool, device in sorted(one for one in devices if _are_names(*one))[:most]
    )


def _are_names(*texts: str) -> bool:
    return all(0 < len(text) <= NAME_LENGTH_MAX for text in texts)

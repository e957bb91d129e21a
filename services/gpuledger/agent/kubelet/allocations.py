"""What is to be told of a list of allocations, after what was told before. Pure.

Whoever applies all that was told, in its order, has the last list. A list that cannot be trusted to be whole ends
nothing.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

from gpuledger.agent.kubelet.podresources_pb2 import ContainerDevices, ContainerResources, ListPodResourcesResponse
from gpuledger.agent.part import AgentFact
from gpuledger.events.allocation import (
    DEVICE_IDS_MAX,
    RESOURCES_MAX,
    AllocatedClaim,
    AllocatedDevices,
    AllocationEnded,
    AllocationObserved,
)
from gpuledger.events.envelope import SUBJECT_LENGTH_MAX
from gpuledger.events.payload import NAME_LENGTH_MAX

RecordedAllocations = Mapping[str, AllocationObserved | None]
"""What the ledger was told of: allocations by id, and None for those that another process told of."""


class AllocationChanges(NamedTuple):
    """What to tell now, and what will have been told then."""

    facts: tuple[AgentFact, ...]
    told: RecordedAllocations


def changes(
    told: RecordedAllocations, seen: Mapping[str, AllocationObserved], now: datetime, *, whole: bool
) -> AllocationChanges:
    """The difference between what was told and what is seen; ends come first, so that no unit is had twice.

    `whole` says that what is not seen is no more; where it is not so, it stands as it was told.
    """
    ended = sorted(told.keys() - seen.keys()) if whole else []
    changed = sorted(subject for subject, allocation in seen.items() if told.get(subject) != allocation)
    facts = [AgentFact(subject, AllocationEnded(), now) for subject in ended]
    facts += [AgentFact(subject, seen[subject], now) for subject in changed]
    return AllocationChanges(tuple(facts), dict(seen) if whole else {**told, **seen})


RESOURCE_GROUPS: Final = ("gpu.deckhouse.io/", "cluster.gpu.deckhouse.io/", "nvidia.com/")
"""Extended resources of these groups are GPUs."""


def subject_of(node: str, namespace: str, pod: str, container: str) -> str:
    """The id of an allocation; one that is too long ends in a hash of the whole."""
    whole = "/".join((node, namespace, pod, container))
    if len(whole) <= SUBJECT_LENGTH_MAX:
        return whole
    digest = sha256(whole.encode()).hexdigest()[:8]
    return f"{whole[: SUBJECT_LENGTH_MAX - len(digest) - 1]}-{digest}"


def allocations(node: str, pods: ListPodResourcesResponse) -> Mapping[str, AllocationObserved]:
    """The containers that have GPUs or claims, by their allocation's id."""
    found: dict[str, AllocationObserved] = {}
    for pod in pods.pod_resources:
        for container in pod.containers:
            resources, claims = _resources(container), _claims(container)
            if (resources or claims) and _names(pod.namespace, pod.name, container.name):
                found[subject_of(node, pod.namespace, pod.name, container.name)] = AllocationObserved(
                    node=node,
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    resources=resources,
                    claims=claims,
                )
    return found


def in_use(pods: ListPodResourcesResponse) -> Mapping[str, frozenset[str]]:
    """The ids of units that containers have, by resource, of all device plugins."""
    containers = (container for pod in pods.pod_resources for container in pod.containers)
    return _ids(entry for container in containers for entry in container.devices)


def _ids(entries: Iterable[ContainerDevices]) -> dict[str, frozenset[str]]:
    """Ids by resource; a kubelet lists a resource once for each NUMA node."""
    found: dict[str, set[str]] = {}
    for entry in entries:
        found.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: frozenset(ids) for resource, ids in found.items()}


def _resources(container: ContainerResources) -> tuple[AllocatedDevices, ...]:
    ids = _ids(entry for entry in container.devices if entry.resource_name.startswith(RESOURCE_GROUPS))
    named = {resource: sorted(filter(_names, ids[resource])) for resource in sorted(ids) if _names(resource)}
    held = [
        AllocatedDevices(resource=resource, devices=tuple(devices[:DEVICE_IDS_MAX]))
        for resource, devices in named.items()
        if devices
    ]
    return tuple(held[:RESOURCES_MAX])


def _claims(container: ContainerResources) -> tuple[AllocatedClaim, ...]:
    devices = {
        (one.claim_name, device.driver_name, device.pool_name, device.device_name)
        for one in container.dynamic_resources
        for device in one.claim_resources
    }
    return tuple(
        AllocatedClaim(claim=claim, driver=driver, pool=pool, device=device)
        for claim, driver, pool, device in sorted(one for one in devices if _names(*one))[:DEVICE_IDS_MAX]
    )


def _names(*texts: str) -> bool:
    return all(0 < len(text) <= NAME_LENGTH_MAX for text in texts)

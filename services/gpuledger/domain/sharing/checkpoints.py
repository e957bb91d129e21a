"""The GPUs of containers that run without DeviceAllocations, as the annotation of their node's Device has them. Pure.

The seed's hot update (002, 4.3.1 and 4.4): pods of before sharing hold cards that no annotation of theirs names. The
annotation is a JSON array of podUID, containerName, resourceName and deviceIDs.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing.model import Allocated, Allocation, Device
from gpuledger.events.runtime import NodeGpuCheckpointsObserved

Devices = Mapping[str, Mapping[int, Device]]
"""The devices of a node by type and minor."""


class Checkpoint(NamedTuple):
    """The GPUs that a container has, by UUID."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


def checkpoints_of(data: NodeGpuCheckpointsObserved) -> tuple[Checkpoint, ...]:
    """All checkpoints of a node, of what its agent observed last; each event replaces the one before."""
    return tuple(Checkpoint(one.uid, one.container, one.resource, one.devices) for one in data.checkpoints)


def checkpoints_text(checkpoints: Iterable[Checkpoint]) -> str:
    """The text of the annotation, always the same for the same checkpoints."""
    documents = [
        {
            "podUID": one.pod_uid,
            "containerName": one.container,
            "resourceName": one.resource,
            "deviceIDs": list(one.device_ids),
        }
        for one in sorted(checkpoints)
    ]
    return orjson.dumps(documents).decode()


def held_text(checkpoints: Iterable[Checkpoint]) -> str:
    """Which pods have which GPUs, as a row keeps it: a JSON array of pairs of a UID and UUIDs."""
    held: dict[str, set[str]] = {}
    for one in checkpoints:
        held.setdefault(one.pod_uid, set()).update(one.device_ids)
    return orjson.dumps([[uid, sorted(held[uid])] for uid in sorted(held)]).decode()


def held_by_pods(text: str, devices: Devices) -> dict[str, Allocation]:
    """What each pod of such a text holds of a node's devices: all of each GPU, since nobody limits the pod to less.

    GPUs that the node does not share are nobody's concern here.
    """
    by_id = {gpu.id: gpu for gpu in devices.get(GPU, {}).values() if gpu.id is not None}
    found: dict[str, Allocation] = {}
    for uid, uuids in orjson.loads(text):
        gpus = [by_id[uuid] for uuid in uuids if uuid in by_id]
        if gpus:
            found[uid] = {GPU: tuple(Allocated(gpu.minor, gpu.resources, id=gpu.id) for gpu in gpus)}
    return found

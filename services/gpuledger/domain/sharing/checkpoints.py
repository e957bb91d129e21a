"""The GPUs of containers that run without DeviceAllocations, as the annotation of their node's Device has them. Pure.

The seed's hot update (002, 4.3.1 and 4.4): pods of before sharing hold cards that no annotation of theirs names. The
annotation is a JSON array of podUID, containerName, resourceName and deviceIDs.
"""

from collections.abc import Iterable
from typing import NamedTuple

import orjson

from gpuledger.events.runtime import NodeGpuCheckpointsObserved


class Checkpoint(NamedTuple):
    """The GPUs that a container has, by UUID."""

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


def checkpoints_of(data: NodeGpuCheckpointsObserved) -> tuple[Checkpoint, ...]:
    """All checkpoints of a node, of what its agent observed last; each event replaces the one before."""
    return tuple(Checkpoint(one.uid, one.container, one.resource, one.devices) for one in data.checkpoints)


def checkpoints_text(checkpoints: Iterable[Checkpoint]) -> str | None:
    """The text of the annotation, always the same for the same checkpoints; None: there is to be none."""
    documents = [
        {
            "podUID": one.pod_uid,
            "containerName": one.container,
            "resourceName": one.resource,
            "deviceIDs": list(one.device_ids),
        }
        for one in sorted(checkpoints)
    ]
    return orjson.dumps(documents).decode() if documents else None

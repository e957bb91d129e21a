"""What happens between a node's kubelet and its container runtime, where gpuledger puts devices into containers.

The runtime proxy observes it, and the node's agent records it (docs/sharing.md). A pod's id is `<namespace>/<name>`.
"""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.publishing import DropClass, by_agents
from gpuledger.events.registry import registry
from gpuledger.events.sharing import SHARED_DEVICES_MAX

VARIABLES_MAX = 64
REPLACED_MAX = 256
CHECKPOINTS_MAX = 2048
"""A kubelet runs several hundred pods at most, few of whose containers have GPUs."""


@registry.event("node", "container-devices-injected", by_agents(DropClass.ORDINARY), introduced=True)
class NodeContainerDevicesInjected(Payload):
    """A container was created with the devices of its pod's DeviceAllocations, and no others.

    `devices` are UUIDs; none: the container requests none, and sees none. `variables` are what was set in its
    environment. `replaced` names what others had set and was taken out, such as `env NVIDIA_VISIBLE_DEVICES=GPU-…`,
    `cdi nvidia.com/gpu=0`, `device /dev/nvidia0` or `mount /var/run/nvidia-container-devices/GPU-…`.
    """

    pod: Name
    uid: Name
    container: Name
    attempt: Count = 0
    devices: Annotated[tuple[Name, ...], Field(max_length=SHARED_DEVICES_MAX)] = ()
    variables: Annotated[dict[Name, Text], Field(max_length=VARIABLES_MAX)] = {}
    replaced: Annotated[tuple[Text, ...], Field(max_length=REPLACED_MAX)] = ()


@registry.event("node", "container-devices-refused", by_agents(DropClass.ORDINARY), introduced=True)
class NodeContainerDevicesRefused(Payload):
    """A container is not created, because the devices of its pod's DeviceAllocations cannot be put into it.

    The kubelet tries again, which is recorded only when the reason changes.
    """

    pod: Name
    uid: Name
    container: Name
    reason: Name
    message: Text = ""


class GpuCheckpoint(Payload):
    """The GPUs that a container has, of a pod whose object does not say so; `devices` are UUIDs."""

    uid: Name
    container: Name
    resource: Name
    devices: Annotated[tuple[Name, ...], Field(max_length=SHARED_DEVICES_MAX)]


@registry.event("node", "gpu-checkpoints-observed", by_agents(DropClass.REPEATED), introduced=True)
class NodeGpuCheckpointsObserved(Payload):
    """All containers of the node that have GPUs by their environment, of pods without DeviceAllocations.

    Such pods ran before sharing came (the hot update of seed 002, 4.4). What they have counts as held. Replaces the
    previous event; `omitted` counts those for which it has no room.
    """

    checkpoints: Annotated[tuple[GpuCheckpoint, ...], Field(max_length=CHECKPOINTS_MAX)] = ()
    omitted: Count = 0

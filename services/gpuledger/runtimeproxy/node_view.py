"""What the node's agent knows of its shared devices and their pods, as the proxy decides with it. Pure.

It completes what a pod's annotation leaves out, and may be missing or late: the proxy works while the agent is away.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing.container_env import ContainerPart
from gpuledger.domain.sharing.container_parts import part_of
from gpuledger.domain.sharing.model import Device
from gpuledger.events.shares import NodeDevicesAllocated, PodShare
from gpuledger.events.sharing import NodeDevicesShared


class NodeView(NamedTuple):
    """The GPUs that the node shares, by minor, and the pods that have some, by UID."""

    gpus: Mapping[int, Device] = {}
    pods: Mapping[str, PodShare] = {}

    def devices(self) -> Mapping[str, Mapping[int, Device]]:
        """The GPUs as devices by type."""
        return {GPU: self.gpus}

    def part_of(self, uid: str, container: str) -> ContainerPart | None:
        """What the container requests of what its pod does; None where that is unknown."""
        pod = self.pods.get(uid)
        share = next((one for one in pod.containers if one.name == container), None) if pod is not None else None
        if pod is None or not pod.containers:
            return None
        if share is None:  # only those containers are listed that request devices
            return ContainerPart({}, pod.requests)
        return part_of(pod, share)


def node_view(shared: NodeDevicesShared | None, allocated: NodeDevicesAllocated | None) -> NodeView:
    """The view of what the ledger says about the node."""
    gpus = {
        one.minor: Device(one.type, one.minor, one.healthy, one.resources, id=one.id)
        for one in (shared.devices if shared is not None else ())
        if one.type == GPU
    }
    return NodeView(gpus, {pod.uid: pod for pod in (allocated.pods if allocated is not None else ())})

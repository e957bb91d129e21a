"""A node with a kubelet for device plugins: what its agents offer becomes the node's capacity and allocatable."""

from pathlib import Path
from typing import Any, Final

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import KubeClient
from support.kube_fleet import create
from support.kubelet import FakeKubelet

KUBELET_PATH: Final = "/var/lib/kubelet"
KUBELET: Final = "k"
"""The folder that stands for it; the paths of the sockets in it must stay short."""

BASE: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}

Object = dict[str, Any]


class Node:
    """A node; the folders that pods mount from it lie in `root`."""

    def __init__(self, name: str, root: Path, client: KubeClient, address: str) -> None:
        self.name = name
        self.root = root
        (root / KUBELET).mkdir(parents=True)
        self.kubelet = FakeKubelet(root / KUBELET)
        self._client = client
        self._address = address
        self._published: Object = {}

    async def start(self) -> None:
        """Join the cluster."""
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        await create(self._client, NODES, {"metadata": {"name": self.name, "labels": labels}})
        await self.kubelet.start()
        await self.publish()
        # What a new node is tainted with until it is Ready.
        await self._client.merge_patch(NODES, self.name, {"spec": {"taints": None}})

    async def publish(self) -> None:
        """Write what the node has, if that changed."""
        capacity, allocatable = dict(BASE), dict(BASE)
        for name, registered in self.kubelet.resources.items():
            capacity[name] = str(len(registered.devices))
            allocatable[name] = str(len(registered.healthy))
        status = {"capacity": capacity, "allocatable": allocatable}
        if status != self._published:
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it runs"}
            address = {"type": "InternalIP", "address": self._address}
            full = {**status, "conditions": [ready], "addresses": [address]}
            await self._client.merge_patch(NODES, self.name, {"status": full}, subresource="status")
            self._published = status

    def free(self, resource: str) -> int:
        """How many healthy units no container has."""
        registered = self.kubelet.resources.get(resource)
        held = {unit for had in self.kubelet.held.values() for unit in had.get(resource, [])}
        return len(set(registered.healthy) - held) if registered else 0

    def folder(self, path: str) -> Path:
        """What of the machine stands for a path of the node."""
        if path.startswith(KUBELET_PATH):
            path = KUBELET + path.removeprefix(KUBELET_PATH)
        return self.root / path.lstrip("/")

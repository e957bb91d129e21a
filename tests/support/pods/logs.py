"""The kubelet's folders of logs, by whose names others on a node know pods and containers."""

from pathlib import Path
from typing import Final

from support.pods.node import Node

PODS: Final = "/var/log/pods"
CONTAINERS: Final = "/var/log/containers"


class PodLogs:
    """The folder of a pod, and a link for each of its containers' attempts."""

    def __init__(self, node: Node, namespace: str, name: str, uid: str) -> None:
        self._folder = node.folder(PODS) / f"{namespace}_{name}_{uid}"
        self._containers = node.folder(CONTAINERS)
        self._prefix = f"{name}_{namespace}_"
        self._links: list[Path] = []

    def open(self) -> None:
        """Have the pod's folder."""
        self._folder.mkdir(parents=True)
        self._containers.mkdir(parents=True, exist_ok=True)

    def link(self, container: str, container_id: str, log: Path) -> None:
        """Link the log of a container that has started."""
        link = self._containers / f"{self._prefix}{container}-{container_id}.log"
        link.symlink_to(log)
        self._links.append(link)

    def remove(self) -> None:
        """Remove all of it: the pod is gone."""
        for link in self._links:
            link.unlink()
        if self._folder.exists():
            self._folder.rmdir()

"""Volumes for a cluster that provisions none: folders of one node, as the administrator of a bare cluster has them."""

import json
from typing import Final

from cluster.tools import Object, Tools, wait

CLASS: Final = "gpuledger-check"
SERVERS: Final = ("nats", "postgresql")
FOLDER: Final = "gpuledger-check"
SIZE: Final = "20Gi"
POD_S: Final = 120.0
GONE_S: Final = 60.0

MAKE: Final = """
import pathlib
for name in {names}:
    folder = pathlib.Path("/node", "{folder}", name)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
"""
REMOVE: Final = """
import shutil
shutil.rmtree("/node/{folder}")
"""


class LocalVolumes:
    """A volume for each server, in /var/lib of the node, and the class that claims ask for."""

    def __init__(self, tools: Tools, node: Object, image: str) -> None:
        self._tools = tools
        self._node = node["metadata"]
        self._image = image

    def values(self) -> list[str]:
        """The values with which the chart's servers claim them."""
        return [f"{server}.persistence.storageClass={CLASS}" for server in SERVERS]

    def make(self) -> None:
        """Have them."""
        self._run("make", MAKE.format(names=list(SERVERS), folder=FOLDER))
        self._tools.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": CLASS},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
            *map(self._volume, SERVERS),
        )

    def remove(self) -> None:
        """Remove them with their content; the claims are gone."""
        self._tools.kubectl("delete", "persistentvolume", *map(_name, SERVERS), f"--timeout={GONE_S:.0f}s")
        self._tools.kubectl("delete", "storageclass", CLASS)
        self._run("remove", REMOVE.format(folder=FOLDER))

    def _volume(self, server: str) -> Object:
        hostname = {"key": "kubernetes.io/hostname", "operator": "In"}
        of_node = {"matchExpressions": [{**hostname, "values": [self._node["labels"]["kubernetes.io/hostname"]]}]}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": _name(server)},
            "spec": {
                "capacity": {"storage": SIZE},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": CLASS,
                "local": {"path": f"/var/lib/{FOLDER}/{server}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [of_node]}},
            },
        }

    def _run(self, what: str, program: str) -> None:
        """Run a program as root on the node, which finds /var/lib in /node."""
        name = f"gpuledger-check-volumes-{what}"
        rights = {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": ["DAC_OVERRIDE"]}}
        container = {
            "name": "main",
            "image": self._image,
            "command": ["python", "-c", program],
            "securityContext": rights,
            "volumeMounts": [{"name": "node", "mountPath": "/node"}],
        }
        spec = {
            "nodeName": self._node["name"],
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [{"name": "node", "hostPath": {"path": "/var/lib", "type": "DirectoryOrCreate"}}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        self._tools.apply(pod)
        wait(f"pod {name} Succeeded", lambda: self._missing(name), POD_S)
        self._tools.kubectl("--namespace", "default", "delete", "pod", name, f"--timeout={GONE_S:.0f}s")

    def _missing(self, name: str) -> str:
        status = self._tools.one("pod", name, "--namespace", "default").get("status", {})
        return "" if status.get("phase") == "Succeeded" else f"its status is {json.dumps(status)}"


def _name(server: str) -> str:
    return f"{CLASS}-{server}"

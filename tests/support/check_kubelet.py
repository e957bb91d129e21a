"""A kubelet of one node that runs the init containers of pods as processes of this machine, one after the other.

A process gets what the pod says: command, arguments, variables with the pod's fields in them, mounts, and a cgroup of
its own, by which the node's agent recognizes its container. The image is this checkout, with programs of a `Machine` in
front of the path. The processes see this machine's files, so where a variable has a path of a mount, they get that of
the folder. Pods of the node have the address of the loopback interface.
"""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from gpuledger.api.conditions import rfc3339
from gpuledger.api.kinds import CONFIG_MAPS, PODS
from gpuledger.api.preflight import Variable
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support.checks import Machine, write_gang
from support.pod_cgroups import pod_cgroup

ADDRESS: Final = "127.0.0.1"
SYNC_S: Final = 0.2
"""How often a mounted ConfigMap is looked at; a real kubelet does so about once a minute."""

CONTAINER_MAX_S: Final = 90.0
MESSAGE_BYTES_MAX: Final = 4096
WAITING: Final = {"waiting": {"reason": "PodInitializing"}}
INTO_CGROUP: Final = 'echo $$ > "$0" && exec "$@"'
LOOPBACK: Final = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}

Object = dict[str, Any]


class CheckKubelet:
    """The kubelet of a node; its folders are below `root`, and `image` has the programs of all containers."""

    def __init__(self, client: KubeClient, node: str, root: Path, image: Machine) -> None:
        self._client, self._node, self._root, self._image = client, node, root, image
        self.pod_logs, self.container_logs = root / "pods", root / "containers"
        for folder in (self.pod_logs, self.container_logs):
            folder.mkdir()
        self._restarts: Counter[str] = Counter()

    async def run(self, pod: Object) -> Object:
        """Run the init containers of a pod until one fails or all have ended well; returns the pod as it is then.

        Called again, it goes on with the one that failed, as after a pause of a crash loop.
        """
        name, namespace, uid = (pod["metadata"][key] for key in ("name", "namespace", "uid"))
        (self.pod_logs / f"{namespace}_{name}_{uid}").mkdir(exist_ok=True)
        found = (await self._client.get(PODS, name, namespace))["status"].get("initContainerStatuses", [])
        ends = {one["name"]: one["state"] for one in found if one["state"].get("terminated", {}).get("exitCode") == 0}
        await self._publish(pod, ends)
        async with self._volumes(pod) as volumes:
            for container in pod["spec"]["initContainers"][len(ends) :]:
                ends[container["name"]] = await self._container(pod, container, volumes, ends)
                if ends[container["name"]]["terminated"]["exitCode"]:
                    failed = await self._publish(pod, ends)
                    self._restarts[f"{uid}/{container['name']}"] += 1
                    return failed
        return await self._publish(pod, ends, phase="Running")

    def log(self, pod: Object, container: str) -> str:
        """What a container of a pod has printed."""
        return self._place(pod, container).joinpath("output").read_text()

    def _place(self, pod: Object, container: str) -> Path:
        uid: str = pod["metadata"]["uid"]
        return self._root / uid / container

    async def _container(
        self, pod: Object, container: Object, volumes: Mapping[str, Path], ends: dict[str, Object]
    ) -> Object:
        """Run a container to its end; returns its state."""
        metadata, name = pod["metadata"], container["name"]
        folder = self._place(pod, name)
        folder.mkdir(parents=True, exist_ok=True)
        mounts = {one["mountPath"]: volumes[one["name"]] for one in container["volumeMounts"]}
        environ = self._environ(pod, container, mounts, folder)
        command = [*container["command"], *container.get("args", [])]
        restarts = self._restarts[f"{metadata['uid']}/{name}"]
        identity = sha256(f"{metadata['uid']}/{name}/{restarts}".encode()).hexdigest()
        started = rfc3339(system_clock())
        with pod_cgroup(metadata["uid"], identity) as members, (folder / "output").open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *("/bin/sh", "-c", INTO_CGROUP, str(members), *command), env=environ, stdout=output, stderr=output
            )
            log = f"{metadata['name']}_{metadata['namespace']}_{name}-{identity}.log"
            (self.container_logs / log).symlink_to(folder / "output")
            await self._publish(pod, {**ends, name: {"running": {"startedAt": started}}})
            try:
                async with asyncio.timeout(CONTAINER_MAX_S):
                    code = await process.wait()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        message = (folder / "message").read_bytes()[:MESSAGE_BYTES_MAX].decode()
        how = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
        return {"terminated": {**how, "startedAt": started, "finishedAt": rfc3339(system_clock())}}

    def _environ(self, pod: Object, container: Object, mounts: Mapping[str, Path], folder: Path) -> dict[str, str]:
        """The environment of a container: the image's, and the pod's own."""
        path = os.pathsep.join([str(self._image.folder / "bin"), str(Path(sys.executable).parent), "/usr/bin", "/bin"])
        assert container["terminationMessagePath"] == "/dev/termination-log"
        (folder / "message").write_bytes(b"")
        found = {"PATH": path, "HOME": str(folder), **LOOPBACK, Variable.TERMINATION_LOG: str(folder / "message")}
        for one in container["env"]:
            field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            value = one.get("value", "") if field is None else self._field(pod, field)
            found[one["name"]] = here(value, mounts)
        return found

    def _field(self, pod: Object, path: str) -> str:
        """A field of a pod, as the downward API gives it."""
        own = {"status.podIP": ADDRESS, "spec.nodeName": self._node}
        section, _, name = path.partition(".")
        return own[path] if path in own else str(pod[section][name])

    async def _publish(self, pod: Object, states: Mapping[str, Object], phase: str = "Pending") -> Object:
        """Show the API server how far a pod's init containers are."""
        statuses = [self._status(pod, one, states.get(one["name"], WAITING)) for one in pod["spec"]["initContainers"]]
        status = {"phase": phase, "podIP": ADDRESS, "initContainerStatuses": statuses}
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        return await self._client.merge_patch(PODS, name, {"status": status}, namespace, subresource="status")

    def _status(self, pod: Object, container: Object, state: Object) -> Object:
        name = container["name"]
        restarts = self._restarts[f"{pod['metadata']['uid']}/{name}"]
        fields = {"name": name, "image": container["image"], "imageID": "", "restartCount": restarts}
        return fields | {"state": state, "ready": state.get("terminated", {}).get("exitCode") == 0}

    @asynccontextmanager
    async def _volumes(self, pod: Object) -> AsyncIterator[Mapping[str, Path]]:
        """The folder of each volume; ConfigMaps follow what the API server has."""
        volumes = pod["spec"].get("volumes", [])
        found = {one["name"]: self._folder(pod, one) for one in volumes}
        named = {one["name"]: one["configMap"]["name"] for one in volumes if "configMap" in one}
        following = [asyncio.create_task(self._follow(pod, named[one], found[one])) for one in named]
        try:
            yield found
        finally:
            await end(following)

    def _folder(self, pod: Object, volume: Object) -> Path:
        host = volume.get("hostPath", {}).get("path")
        folder = Path(host) if host else self._root / pod["metadata"]["uid"] / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    async def _follow(self, pod: Object, name: str, folder: Path) -> None:
        """Write the files of a ConfigMap, which may come later, each time it changes."""
        written: Mapping[str, str] | None = None
        while True:
            try:
                data = (await self._client.get(CONFIG_MAPS, name, pod["metadata"]["namespace"]))["data"]
            except NotFoundError:
                data = written
            if data is not None and data != written:
                write_gang(folder, data)
                written = data
            await asyncio.sleep(SYNC_S)


def here(value: str, mounts: Mapping[str, Path]) -> str:
    """A variable with the path of a mount as it is on this machine."""
    scheme, separator, path = value.rpartition("://")
    for mounted, folder in mounts.items():
        if path == mounted or path.startswith(f"{mounted}/"):
            return f"{scheme}{separator}{folder}{path.removeprefix(mounted)}"
    return value

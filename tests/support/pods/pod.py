"""Runs one pod as a kubelet does: its volumes, init containers, containers, readiness, restarts, and its end."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from gpuledger.api.kinds import PODS
from gpuledger.edge.kube.client import KubeClient, KubeRequest
from gpuledger.edge.kube.errors import KubeError, NotFoundError
from gpuledger.runtime.tasks import end
from support.pods.cgroups import PodCgroups
from support.pods.container import Running, now
from support.pods.finish import finish
from support.pods.logs import PodLogs
from support.pods.mounts import Issuer, PodFiles, expanded
from support.pods.network import PodNetwork
from support.pods.node import Node
from support.pods.sandbox import Container, Mount, image_config, joining, start

RESTART_AFTER_S: Final = 1.0
RESTARTS_MAX: Final = 60
PROBE_EVERY_S: Final = 0.5
PROBE_MAX_S: Final = 5.0
FILES_EVERY_S: Final = 3.0
"""How often volumes are compared with their sources, which a kubelet does once a minute."""

GRACE_MAX_S: Final = 20.0

Object = dict[str, Any]


class PodPlace(NamedTuple):
    """What the pods of a cluster share: `folder` is where they lie, `ca` and `api` are the API server's."""

    network: PodNetwork
    cgroups: PodCgroups
    client: KubeClient
    folder: Path
    ca: bytes
    issue: Issuer
    api: tuple[str, int]


class RunningPod:
    """A pod on a node, until it has ended or is deleted."""

    def __init__(self, pod: Object, node: Node, place: PodPlace) -> None:
        self.pod, self.node = pod, node
        self.name, self.namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self.containers = {one["name"]: Running(one) for one in pod["spec"]["containers"]}
        self.init = {one["name"]: Running(one) for one in pod["spec"].get("initContainers", [])}
        self._place = place
        self.folder: Path = place.folder / self.uid
        self._files = PodFiles(pod, self.folder / "volumes", node, place.client, place.ca, place.issue)
        self._logs = PodLogs(node, self.namespace, self.name, self.uid)
        self._units: dict[str, dict[str, str]] = {}
        self.address = ""
        self.phase = "Pending"
        self.message = ""
        self.task: asyncio.Task[None] | None = None

    def log(self, container: str) -> Path:
        """The file with a container's output."""
        return self.folder / f"{container}.log"

    async def run(self) -> None:
        """Run it until it has ended; cancelled, it is stopped in order."""
        self.folder.mkdir(parents=True)
        self._logs.open()
        self.address = await self._place.network.attach(self.uid)
        following = [asyncio.create_task(one()) for one in (self._watch_readiness, self._follow_files)]
        try:
            await self._prepared()
            for one in self.init.values():
                if not await self._to_its_end(one):
                    await self._ended("Failed")
                    return
            self.phase = "Running"
            await asyncio.gather(*(self._to_its_end(one) for one in self.containers.values()))
            failed = any(one.code for one in self.containers.values())
            await self._ended("Failed" if failed else "Succeeded")
        finally:
            await end(following)
            await finish(self._stop())

    async def _prepared(self) -> None:
        while True:
            try:
                await self._files.make()
                break
            except (NotFoundError, AssertionError) as error:
                self.message = str(error)
                await self.publish()
                await asyncio.sleep(RESTART_AFTER_S)
        self.message = ""
        await self._allocate()
        await self.publish()

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(FILES_EVERY_S)
            with suppress(KubeError):
                await self._files.refresh()

    async def _allocate(self) -> None:
        """Give all containers their devices; the first one of the pod's own gets those of its init containers again."""
        kubelet, after = self.node.kubelet, ""
        for one in [*self.init.values(), *self.containers.values()]:
            limits = one.spec.get("resources", {}).get("limits", {})
            if one.name in self.init:
                kubelet.unlisted.add((self.namespace, self.name, one.name))
            for resource in limits.keys() & kubelet.resources.keys():
                answer = await kubelet.allocate(
                    resource, int(limits[resource]), self.name, one.name, after=after, namespace=self.namespace
                )
                self._units.setdefault(one.name, {}).update(answer.envs)
            if limits:
                after = one.name if one.name in self.init else ""

    async def _to_its_end(self, one: Running) -> bool:
        """Run a container until it need not run again; returns whether it succeeded."""
        policy = self.pod["spec"].get("restartPolicy", "Always")
        is_init = one.name in self.init
        while True:
            code = await self._once(one)
            one.ready = is_init and code == 0
            await self.publish()
            again = policy == "Always" and not (is_init and code == 0)
            again = again or (policy == "OnFailure" and code != 0)
            if not again:
                return code == 0
            assert one.restarts < RESTARTS_MAX, f"{self.name} ends again and again:\n{self.log(one.name).read_text()}"
            await asyncio.sleep(RESTART_AFTER_S)

    async def _once(self, one: Running) -> int:
        one.begin()
        message = self.folder / f"{one.name}.message"
        message.write_bytes(b"")
        message.chmod(0o666)
        container = await self._container(one, message)
        with self.log(one.name).open("ab") as output:
            process = await start(container, self.folder / f"{one.name}.root", output.fileno())
        one.started(process, container)
        self._logs.link(one.name, one.id, self.log(one.name))
        await self.publish()
        code = await process.wait()
        one.ended(code, message)
        return code

    async def _container(self, one: Running, message: Path) -> Container:
        spec, (host, port) = one.spec, self._place.api
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port), "HOSTNAME": self.name}
        environ |= await self._files.environment(spec, self.address, self._place.network.gateway)
        environ |= self._units.get(one.name, {})
        pod_rights, rights = self.pod["spec"].get("securityContext") or {}, spec.get("securityContext") or {}
        config = image_config()
        uid = rights.get("runAsUser", pod_rights.get("runAsUser", config["user"]["uid"]))
        gid = rights.get("runAsGroup", pod_rights.get("runAsGroup", config["user"]["gid"]))
        group = pod_rights.get("fsGroup")
        command = spec.get("command") or config["args"]
        mounts = await self._files.mounts(spec, environ)
        mounts += [Mount(self._place.network.hosts, "/etc/hosts", read_only=True), Mount(message, one.message_path)]
        return Container(
            expanded([*command, *spec.get("args", [])], environ),
            environ,
            uid=uid,
            gid=gid,
            groups=[group] if group is not None else [],
            capabilities=(rights.get("capabilities") or {}).get("add") or [],
            mounts=mounts,
            network=self._place.network.namespace(self.uid),
            shares_pids=bool(self.pod["spec"].get("hostPID")),
            working_dir=spec.get("workingDir", ""),
            cgroup=self._place.cgroups.make(self.uid, one.id),
        )

    async def _watch_readiness(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_MAX_S)) as session:
            while True:
                before = [one.ready for one in self.containers.values()]
                for one in self.containers.values():
                    one.ready = one.lives and await self._is_ready(one, session)
                if [one.ready for one in self.containers.values()] != before:
                    await self.publish()
                await asyncio.sleep(PROBE_EVERY_S)

    async def _is_ready(self, one: Running, session: aiohttp.ClientSession) -> bool:
        probe = one.spec.get("readinessProbe") or {}
        ports = {port["name"]: port["containerPort"] for port in one.spec.get("ports", []) if "name" in port}
        match probe:
            case {"httpGet": {"path": path, "port": port, **rest}}:
                scheme = str(rest.get("scheme", "HTTP")).lower()
                with suppress(aiohttp.ClientError, TimeoutError):
                    url = f"{scheme}://{self.address}:{ports.get(port, port)}{path}"
                    # As the kubelet's, a probe over TLS does not verify the server.
                    async with session.get(url, ssl=False) as answer:
                        return answer.status < 400
                return False
            case {"tcpSocket": {"port": port}}:
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(PROBE_MAX_S):
                        _, writer = await asyncio.open_connection(self.address, ports.get(port, port))
                    writer.close()
                    return True
                return False
            case {"exec": {"command": command}}:
                code, _, _ = await self.execute(one, command)
                return code == 0
        return True

    async def execute(self, one: Running, command: list[str]) -> tuple[int, bytes, bytes]:
        """Run a command in a container, with its rights; returns exit code, output and errors."""
        assert one.container is not None, "it was started"
        container = one.container
        bounding = ",".join(["-all", *(f"+{name.lower()}" for name in container.capabilities)])
        environ = dict(item.split("=", 1) for item in image_config()["env"]) | dict(container.environ)
        pid = str(one.command_pid())
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(
                *joining(container.cgroup),
                "nsenter",
                "--target",
                pid,
                "--mount",
                "--net",
                "--pid",
                f"--root=/proc/{pid}/root",
                "--",
            ),
            *("setpriv", "--reuid", str(container.uid), "--regid", str(container.gid), "--clear-groups"),
            *("--inh-caps=-all", "--ambient-caps=-all", f"--bounding-set={bounding}", "--no-new-privs", "--"),
            *("env", "-i", "-C", container.working_dir or image_config()["cwd"]),
            *(f"{name}={value}" for name, value in environ.items()),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
        )
        output, errors = await process.communicate()
        return process.returncode or 0, output, errors

    async def _ended(self, phase: str) -> None:
        self.phase = phase
        await self.publish()

    async def publish(self) -> None:
        """Write the pod's status."""
        ready = self.phase == "Running" and all(one.ready for one in self.containers.values())
        conditions = {
            "PodScheduled": True,
            "Initialized": all(one.code == 0 for one in self.init.values()),
            "Ready": ready,
        }
        waiting = "PodInitializing" if self.init else "ContainerCreating"
        status: Object = {
            "phase": self.phase,
            "message": self.message,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "hostIP": self._place.network.gateway,
            "startTime": self.pod["metadata"]["creationTimestamp"],
            "conditions": [
                {"type": kind, "status": str(holds), "lastTransitionTime": now()} for kind, holds in conditions.items()
            ],
            "containerStatuses": [one.status(waiting) for one in self.containers.values()],
            "initContainerStatuses": [one.status(waiting) for one in self.init.values()],
        }
        with suppress(NotFoundError):
            await self._place.client.merge_patch(
                PODS, self.name, {"status": status}, self.namespace, subresource="status"
            )

    async def _stop(self) -> None:
        grace = min(float(self.pod["spec"].get("terminationGracePeriodSeconds", 30)), GRACE_MAX_S)
        for one in [*self.init.values(), *self.containers.values()]:
            await self._stop_container(one, grace)
        self.node.kubelet.release(self.name)
        await self._place.network.detach(self.uid)
        await self._place.cgroups.remove(self.uid)

    async def _stop_container(self, one: Running, grace: float) -> None:
        if one.process is None or not one.lives:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(one.process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await one.process.wait()
                return

    async def remove(self) -> None:
        """Tell the API server that nothing of it runs any more."""
        self._logs.remove()
        with suppress(KubeError):
            path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
            await self._place.client.send(KubeRequest("delete", "DELETE", path, body=options))

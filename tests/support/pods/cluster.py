"""A cluster whose pods run: the embedded API server, nodes with kubelets, and processes from the image's files.

It stands for scheduler, controllers and kubelets, and for nothing else: what runs in the pods is what the API server
has, as their service accounts. Tests use it by the kubeconfig alone.
"""

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from gpuledger.api.kinds import NODES, PODS, Resource
from gpuledger.edge.kube.client import KubeClient, KubeRequest, open_client
from gpuledger.local.kubeapi.tls import certificates
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import end
from support.kube_accounts import config_file
from support.kube_fleet import create_storage_class
from support.pods import cgroups, sandbox
from support.pods.cgroups import PodCgroups
from support.pods.controllers import Workloads
from support.pods.finish import finish
from support.pods.network import PodNetwork, endpoints_of, pod_network, service_names
from support.pods.node import Node
from support.pods.pod import PodPlace, RunningPod
from support.pods.scheduler import SCHEDULER, ExtendedScheduler
from support.pods.server import ADMIN_TOKEN, Places, PodServer
from support.pods.workloads import fits

PASS_EVERY_S: Final = 0.2
SERVICES: Final = Resource("", "v1", "services", "Service", namespaced=True)
HOLDS_UNITS: Final = ("gpu.deckhouse.io/", "cluster.gpu.deckhouse.io/")

Object = dict[str, Any]


class PodCluster:
    """The cluster: its nodes, and the pods that run, by uid."""

    def __init__(
        self,
        server: PodServer,
        places: Places,
        client: KubeClient,
        network: PodNetwork,
        groups: PodCgroups,
        work: Path,
    ) -> None:
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, RunningPod] = {}
        self._server, self._places, self._client = server, places, client
        self._network, self._cgroups, self._work = network, groups, work
        self._workloads = Workloads(client)
        self._extended = ExtendedScheduler(client)
        self._ca = b""
        self._api = ("", 0)
        server.find = self.find

    def find(self, namespace: str, name: str) -> RunningPod | None:
        """The running pod of that name."""
        return next((one for one in self.pods.values() if (one.namespace, one.name) == (namespace, name)), None)

    def serve_at(self, host: str, port: int, ca: bytes) -> None:
        """Tell pods where the API server is."""
        self._api, self._ca = (host, port), ca

    async def add_node(self, name: str) -> None:
        """Have another node."""
        self.nodes[name] = node = Node(name, self._work / name, self._client, self._network.gateway)
        await node.start()

    async def run(self) -> None:
        """Be a cluster, until cancelled."""
        try:
            while True:
                await self._workloads.run_once()
                await self._follow_pods()
                for node in self.nodes.values():
                    await node.publish()
                await asyncio.sleep(PASS_EVERY_S)
        finally:
            # Pods take longer to end than `end` waits before it cancels again, and kubelets have to end after them.
            await finish(self._stop())

    async def _stop(self) -> None:
        try:
            await end([one.task for one in self.pods.values() if one.task is not None])
        finally:
            for node in self.nodes.values():
                await node.kubelet.stop()

    async def _follow_pods(self) -> None:
        pods = (await self._client.list(PODS)).items
        present = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, running in list(self.pods.items()):
            pod = present.get(uid)
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                await self._end(uid, running)
        for pod in pods:
            uid = pod["metadata"]["uid"]
            if uid in self.pods or pod["metadata"].get("deletionTimestamp") or _has_ended(pod):
                continue
            if pod["spec"].get("nodeName"):
                self._start(pod)
            else:
                await self._schedule(pod)
        services = (await self._client.list(SERVICES)).items
        self._network.write_hosts(service_names(services, pods))
        self._place(services, pods)

    def _place(self, services: list[Object], pods: list[Object]) -> None:
        found = {}
        for service in services:
            behind = endpoints_of(service, pods) if service["spec"].get("selector") else []
            target = service["spec"]["ports"][0].get("targetPort")
            # Pods of an earlier template may lack a port.
            places = [(pod["status"]["podIP"], port) for pod in behind if (port := _port(pod, target)) is not None]
            if places:
                found[service["metadata"]["namespace"], service["metadata"]["name"]] = places[0]
        self._places.found = found

    def _start(self, pod: Object) -> None:
        folder = self._work / "pods"
        place = PodPlace(self._network, self._cgroups, self._client, folder, self._ca, self._issue, self._api)
        running = RunningPod(pod, self.nodes[pod["spec"]["nodeName"]], place)
        self.pods[pod["metadata"]["uid"]] = running
        running.task = asyncio.create_task(running.run())
        running.task.add_done_callback(_complain)

    async def _end(self, uid: str, running: RunningPod) -> None:
        task = running.task
        if task is not None and not task.done():
            if not task.cancelling():
                task.cancel()
            return
        del self.pods[uid]
        await running.remove()

    async def _schedule(self, pod: Object) -> None:
        spec = pod["spec"]
        nodes = {one["metadata"]["name"]: one for one in (await self._client.list(NODES)).items}
        if spec.get("schedulerName") == SCHEDULER:
            await self._extended.schedule(pod, list(nodes.values()), self._places.found)
            return
        needed = _units(spec)
        for name, node in self.nodes.items():
            if fits(spec, nodes[name]) and all(node.free(one) >= count for one, count in needed.items()):
                target = {"apiVersion": "v1", "kind": "Node", "name": name}
                metadata = {"name": pod["metadata"]["name"]}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
                path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{metadata['name']}/binding"
                await self._client.send(KubeRequest("bind", "POST", path, body=body))
                return

    async def _issue(self, pod: Object, audience: str | None, expires_s: int) -> str:
        metadata, account = pod["metadata"], pod["spec"].get("serviceAccountName") or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        spec = {"expirationSeconds": expires_s, "boundObjectRef": bound, "audiences": [audience] if audience else []}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        answer = await self._client.send(KubeRequest("token", "POST", path, body=body))
        return str(answer["status"]["token"])


def _complain(task: "asyncio.Task[None]") -> None:
    """Show at once what broke here, because nothing goes on behind it and all steps would only wait."""
    if not task.cancelled() and (error := task.exception()) is not None:
        traceback.print_exception(error, file=sys.stderr)


def _has_ended(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}


def _units(spec: Object) -> dict[str, int]:
    """The units that a pod needs at a time: all of its containers together, and each init container by itself."""
    needed: dict[str, int] = {}
    for container in spec["containers"]:
        for name, amount in _limits(container):
            needed[name] = needed.get(name, 0) + amount
    for container in spec.get("initContainers", []):
        for name, amount in _limits(container):
            needed[name] = max(needed.get(name, 0), amount)
    return needed


def _limits(container: Object) -> Iterator[tuple[str, int]]:
    for name, amount in container.get("resources", {}).get("limits", {}).items():
        if name.startswith(HOLDS_UNITS):
            yield name, int(amount)


def _port(pod: Object, target: int | str) -> int | None:
    """The port of a pod, by its number or name; None where it has none of that name."""
    if isinstance(target, int):
        return target
    ports = {
        port.get("name"): port["containerPort"] for one in pod["spec"]["containers"] for port in one.get("ports", [])
    }
    return ports.get(target)


def missing() -> str:
    """Why there can be no such cluster here, and what to do; empty where there can."""
    return sandbox.missing() or cgroups.missing()


@asynccontextmanager
async def pod_cluster(directory: Path, work: Path, *nodes: str, provisions: bool = False) -> AsyncIterator[Path]:
    """A cluster until the block ends; gives the administrator's kubeconfig. `work` is a folder with a short path.

    One that `provisions` has a default StorageClass; on a bare one only people make volumes.
    """
    places = Places()
    server = PodServer(places)
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(pod_network(directory))
        groups = PodCgroups(network.bridge)
        await groups.open()
        stack.push_async_callback(groups.close)
        files = certificates(directory / "tls", network.gateway, system_clock())
        url = await stack.enter_async_context(server.serving(network.gateway, 0, files.server_context()))
        config = config_file(directory, url, ADMIN_TOKEN, files.ca.read_bytes())
        client = await stack.enter_async_context(open_client(config))
        if provisions:
            await create_storage_class(client, "local-path")
        cluster = PodCluster(server, places, client, network, groups, work)
        cluster.serve_at(network.gateway, int(url.rpartition(":")[2]), files.ca.read_bytes())
        for name in nodes:
            await cluster.add_node(name)
        running = asyncio.create_task(cluster.run())
        running.add_done_callback(_complain)
        try:
            yield config
            if running.done():
                running.result()
        finally:
            await end([running])

"""Acts in the cluster as the kubelets, NFD, the scheduler and the users of the simulated fleet. It decides nothing.

Every action may be repeated: server-side apply takes over what exists, and what is gone stays gone. Each role has its
own field manager and touches only its own objects.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

import structlog

from gpuledger.api.kinds import NAMESPACE, NAMESPACES, NODE_FEATURES, NODES, PODS, Resource
from gpuledger.api.labels import LABEL_ENABLED, LABEL_TRUE
from gpuledger.api.preflight import LABEL_PREFLIGHT
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest, Object, Selection
from gpuledger.edge.kube.errors import AlreadyExistsError, ConflictError, NotFoundError, RefusedError, TransientError
from gpuledger.events.device import Card
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError, PublishError
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Clock, Sleep
from gpuledger.runtime.tasks import run_until_one_fails
from gpuledger.tools.simulation import components, names, objects
from gpuledger.tools.simulation.allocation import SimulatedPod
from gpuledger.tools.simulation.components import COMPONENTS, Daemon
from gpuledger.tools.simulation.fleet import FleetNode
from gpuledger.tools.simulation.names import PodPlace, place_of

T = TypeVar("T")

log = structlog.get_logger("gpuledger.simulation")

REQUESTS_MAX: Final = 8
"""The most requests at a time."""

DEMO: Final = Selection(namespace=names.DEMO_NAMESPACE)
CHECKED: Final = Selection(labels=f"{LABEL_PREFLIGHT}={LABEL_TRUE}")
OURS: Final = Selection(namespace=NAMESPACE, labels=f"{names.MANAGED_BY}={names.SCHEDULER}")


class Cluster:
    """The cluster of a client, as the fleet's machines and users see it; requests wait while the server is away."""

    def __init__(self, client: KubeClient, *, clock: Clock, sleep: Sleep) -> None:
        self._client = client
        self._clock = clock
        self._sleep = sleep
        self._since = clock()
        self._boots: dict[str, objects.Boot] = {}
        """Of nodes that have rebooted, or do."""

        self._free = asyncio.Semaphore(REQUESTS_MAX)

    async def prepare(self, sharing: SharingNames) -> None:
        """Create the missing kinds and namespaces."""
        missing = [one for one in (*crds.shipped(sharing), *crds.foreign()) if not await self._has_crd(one)]
        if missing:
            await retrying(lambda: crds.install(self._client, missing), sleep=self._sleep)
        demo = objects.namespace(names.DEMO_NAMESPACE, **{LABEL_ENABLED: LABEL_TRUE})
        others = [objects.namespace(name) for name in (names.NFD_NAMESPACE, names.LEASE_NAMESPACE, NAMESPACE)]
        for namespace in (demo, *others):
            await self._apply(NAMESPACES, namespace, names.USERS)

    async def register(self, node: FleetNode, cards: Mapping[int, Card], in_service: Iterable[int]) -> None:
        """The node's kubelet comes up, and the cluster finds it ready."""
        await self._apply(NODES, objects.node(node), names.KUBELET)
        await self.report(node, cards, in_service)
        await self._admit(node.name)

    async def report(self, node: FleetNode, cards: Mapping[int, Card], in_service: Iterable[int]) -> None:
        """The node's kubelet reports what the node offers."""
        boot = self._boots.get(node.name) or objects.Boot(node.name, self._since)
        status = objects.node_status(node, cards, in_service, boot, self._clock())
        await self._apply(NODES, status, names.KUBELET, "status")

    def set_boot(self, node: str, boot_id: str, *, is_up: bool) -> None:
        """From its next report on, a node's kubelet reports this boot, and that the node is up, or goes down."""
        self._boots[node] = objects.Boot(boot_id, self._clock(), is_up)

    async def discover(self, node: FleetNode, cards: Mapping[int, Card]) -> None:
        """NFD and GFD report on the node."""
        await self._apply(NODE_FEATURES, objects.node_feature(node, cards), names.NFD)
        await self._apply(NODES, objects.node_labels(node, cards), names.NFD)

    async def beat(self, nodes: Iterable[FleetNode], period_s: float) -> None:
        """The nodes' kubelets renew their leases."""
        now = self._clock()
        leases = [objects.lease(node, now, period_s) for node in nodes]
        await side_by_side(lambda lease: self._apply(names.LEASES, lease, names.KUBELET), leases)

    async def pods(self) -> list[Object]:
        """The pods of the demo namespace, and those with injected checks of all others."""
        found = []
        for selection in (DEMO, CHECKED):
            found += (await self._ask(partial(self._client.list, PODS, selection))).items
        return list({(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in found}.values())

    async def nodes(self) -> list[Object]:
        """All Nodes."""
        return (await self._ask(lambda: self._client.list(NODES))).items

    async def has_pod(self, name: str) -> bool:
        """Whether a pod is there."""
        return await self._pod(name) is not None

    async def create(self, pod: SimulatedPod) -> None:
        """A user creates a pod; if the cluster refuses it, there is none."""
        await self._create(objects.pod(pod), names.USERS)

    async def start(self, name: str, node: str) -> bool:
        """The scheduler binds a pod, and the node's kubelet runs it; False where the pod is gone."""
        return await self.bind(name, node) and await self.set_status(name, objects.running)

    async def bind(self, name: str, node: str) -> bool:
        """The scheduler binds a pod; False where the pod is gone."""
        body = objects.binding(place_of(name), node)
        request = KubeRequest(f"bind pod {name}", "POST", f"{_path(name)}/binding", _as(names.SCHEDULER), body)
        try:
            await self._ask(lambda: self._client.send(request))
        except NotFoundError:
            return False
        except ConflictError:
            live = await self._pod(name)
            if live is None or live["metadata"].get("deletionTimestamp") or live["spec"].get("nodeName") != node:
                return False
        return True

    async def finish(self, name: str, phase: str) -> bool:
        """The kubelet reports that a pod has ended; False where the pod is gone."""
        return await self.set_status(name, lambda live, now: objects.ended(live, phase, now))

    async def set_status(self, name: str, status: Callable[[Object, datetime], Object]) -> bool:
        """The kubelet reports the status of a pod; False where the pod is gone."""
        live = await self._pod(name)
        if live is None:
            return False
        return await self._patch_status(place_of(name), status(live, self._clock()))

    async def delete(self, name: str) -> None:
        """Delete a pod at once, as after its kubelet has ended it."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        try:
            await self._ask(
                lambda: self._client.send(KubeRequest(f"delete pod {name}", "DELETE", _path(name), {}, body))
            )
        except NotFoundError:
            return

    async def ready_components(self) -> dict[str, set[str]]:
        """Which components of each node are ready."""
        return components.ready_apps((await self._ask(lambda: self._client.list(PODS, OURS))).items)

    async def start_components(self, node: str) -> None:
        """DaemonSets create their pods for a node."""
        for component in COMPONENTS:
            await self._create(components.pod(component, node), names.CONTROLLER)

    async def component_ready(self, node: str, component: Daemon) -> None:
        """The node's kubelet reports that a component's pod is ready, unless somebody deleted it."""
        name = components.pod_name(component.app, node)
        await self._patch_status(PodPlace(NAMESPACE, name), components.ready(component, self._clock()))

    async def pool(self, resource: Resource, name: str, namespace: str | None) -> Object | None:
        """A pool; None where there is none."""
        try:
            return await self._ask(lambda: self._client.get(resource, name, namespace))
        except NotFoundError:
            return None

    async def _create(self, pod: Object, manager: str) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        body = {"apiVersion": "v1", "kind": "Pod", **pod}
        request = KubeRequest(f"create pod {name}", "POST", PODS.path(namespace), _as(manager), body)
        try:
            await self._ask(lambda: self._client.send(request))
        except AlreadyExistsError:
            return
        except RefusedError as error:
            log.warning("a pod is refused", pod=name, reason=str(error))

    async def _pod(self, name: str) -> Object | None:
        try:
            return await self._ask(lambda: self._client.get(PODS, place_of(name).name, place_of(name).namespace))
        except NotFoundError:
            return None

    async def _patch_status(self, place: PodPlace, status: Object) -> bool:
        name = place.name
        body, path = {"status": status}, f"{PODS.path(place.namespace)}/{name}/status"
        request = KubeRequest(f"patch pod {name}", "PATCH", path, _as(names.KUBELET), body, MERGE_PATCH)
        try:
            await self._ask(lambda: self._client.send(request))
        except NotFoundError:
            return False
        return True

    async def _admit(self, node: str) -> None:
        """Remove the initial taint of a node, unless a node controller has removed it."""
        live = await self._ask(lambda: self._client.get(NODES, node))
        taints = live["spec"].get("taints") or []
        kept = [taint for taint in taints if taint["key"] != names.NOT_READY]
        if kept != taints:
            body = {
                "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
                "spec": {"taints": kept or None},
            }
            path = f"{NODES.path()}/{node}"
            request = KubeRequest(f"patch node {node}", "PATCH", path, _as(names.CONTROLLER), body, MERGE_PATCH)
            try:
                await self._ask(lambda: self._client.send(request))
            except ConflictError:
                await self._admit(node)

    async def _has_crd(self, crd: Object) -> bool:
        found = await self._ask(lambda: crds.diff(self._client, [crd]))
        return found[0].state != "missing"

    async def _apply(self, resource: Resource, obj: Object, manager: str, subresource: str | None = None) -> None:
        await self._ask(
            lambda: self._client.apply(resource, obj, subresource=subresource, force=True, field_manager=manager)
        )

    async def _ask(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._free:
            return await retrying(work, sleep=self._sleep)


async def side_by_side(work: Callable[[T], Awaitable[None]], things: Iterable[T]) -> None:
    """Do the work for each, several at a time; the first failure ends it."""
    waiting = iter(things)

    async def worker() -> None:
        for thing in waiting:
            await work(thing)

    await run_until_one_fails(worker() for _ in range(REQUESTS_MAX))


def _path(pod: str) -> str:
    place = place_of(pod)
    return f"{PODS.path(place.namespace)}/{place.name}"


def _as(manager: str) -> dict[str, str]:
    return {"fieldManager": manager}


async def retrying(work: Callable[[], Awaitable[T]], *, sleep: Sleep, backoff: Backoff | None = None) -> T:
    """Do the work, and repeat it with backoff while a server is away; the work must be idempotent.

    Raises:
        EventRefusedError: the ledger will never take one of its events.
    """
    retries = Retries(backoff or Backoff())
    while True:
        try:
            return await work()
        except EventRefusedError:
            raise
        except (TransientError, LedgerUnavailableError, PublishError) as error:
            pause_s = retries.pause_s(error.retry_after_s if isinstance(error, TransientError) else None)
            log.warning("waiting for a server", reason=str(error), pause_s=pause_s)
        await sleep(pause_s)

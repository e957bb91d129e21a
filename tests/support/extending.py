"""The extender for tests: nodes that share devices, pods in an API server, and a scheduler that speaks its HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp
import orjson

from gpuledger.api.kinds import PODS
from gpuledger.api.sharing import SharingNames
from gpuledger.db.locks import LockCheck
from gpuledger.domain.sharing.annotation import read_allocation
from gpuledger.edge.extender.node_shares import recorded
from gpuledger.edge.extender.pods import read_pod
from gpuledger.edge.extender.service import Extender, ExtenderLeadership
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.edge.webhooks.settings import ServingSettings
from gpuledger.events.envelope import Event, decode
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import NodeDevicesShared, PodSharingGone, PodSharingObserved, SharedDevice
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.projection.replay import new_fold
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.clock import system_clock
from support.events import outgoing
from support.kept_running import kept_running
from support.ledgers import everything
from support.waiting import eventually

NAMES = SharingNames()
GIB = 2**30
BACKOFF = Backoff(first_s=0.02, max_s=0.2, healthy_after_s=5.0)
QUICK_EXTENDER = ExtenderSettings(
    backoff=BACKOFF, refused_backoff=BACKOFF, restart_backoff=BACKOFF, settle_backoff=BACKOFF,
    lock_check=LockCheck(interval_s=0.1), ownership_check_s=60.0, attempt_max_s=20.0, answer_timeout_s=30.0,
    request_timeout_s=10.0, serving=ServingSettings(listen="127.0.0.1:0"),
)  # fmt: skip
"""Patient with a slow machine, and quick to try again."""

RESTARTED = replace(QUICK_EXTENDER, predecessor_max_s=0.0)
"""For who restarts an extender: no other process is about to bind anything."""

SHARER, WATCHERS = "/services/sharing", "/watchers/sharing-pods"


class Answer(NamedTuple):
    """What the extender answers: the status, and the document or the sentence."""

    status: int
    body: Any


class SharingCluster:
    """A cluster with nodes that share devices, as the ledger has it."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient) -> None:
        self.ledger = ledger
        self.client = client
        self._numbers: dict[str, int] = {}

    async def claim(self) -> None:
        """The cluster belongs to the ledger."""
        await claim(self.client, owner(self.ledger.identity.ledger_id, system_clock()), "test")

    async def record(self, source: str, subject: str, data: Payload) -> None:
        """Another service records something."""
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event = Event(f"{source}/{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)
        await self.ledger.publish_many([outgoing(event)])

    async def share(self, node: str, cards: int = 1, *, unhealthy: frozenset[int] = frozenset()) -> None:
        """A node shares cards of 16 GiB."""
        devices = tuple(gpu(node, minor, healthy=minor not in unhealthy) for minor in range(cards))
        await self.record(SHARER, node, NodeDevicesShared(devices=devices))

    async def create(self, name: str, **amounts: int | str) -> Object:
        """A user creates a pod that asks for so much, by short name with `_` for `-`."""
        return await self.client.create(PODS, pod_of(name, **amounts))

    async def observe(self, pod: Object, *, started: bool = False) -> None:
        """The watchers see a pod as it is in the cluster."""
        live = await self.client.get(PODS, pod["metadata"]["name"], "default")
        found = read_pod(live, NAMES)
        allocation = None if found.allocated is None else recorded(read_allocation(found.allocated, NAMES))
        data = PodSharingObserved(
            uid=found.uid, node=found.node, requests=dict(found.amounts), allocation=allocation, started=started
        )
        await self.record(WATCHERS, found.pod, data)

    async def delete(self, pod: Object) -> None:
        """The pod ends, and the watchers see it go."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        try:
            await self.client.delete(PODS, name, "default")
            live = await self.client.get(PODS, name, "default")
        except NotFoundError:
            live = None
        assert live is None or live["metadata"]["uid"] != uid, "no kubelet has to end it"
        await self.record(WATCHERS, f"default/{name}", PodSharingGone(uid=uid))

    async def live(self, pod: Object) -> Object:
        """The pod as the API server has it."""
        return await self.client.get(PODS, pod["metadata"]["name"], "default")

    async def outcomes(self, pod: Object | None = None) -> list[Any]:
        """What the extender has recorded, of a pod or of all."""
        found = [decode(one.data) for one in await everything(self.ledger) if ".svc.extender." in one.subject]
        subject = None if pod is None else f"default/{pod['metadata']['name']}"
        return [one.data for one in found if subject in (None, one.subject)]


class Scheduler:
    """Asks an extender as kube-scheduler does."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(self, verb: str, document: object) -> Answer:
        """Send a request; the answer is JSON where its status is 200."""
        headers = {"Content-Type": "application/json"}
        async with self._session.post(f"{self._url}/{verb}", data=orjson.dumps(document), headers=headers) as answer:
            body = await answer.read()
            return Answer(answer.status, orjson.loads(body) if answer.status == 200 else body.decode())

    async def filter(self, pod: Object, *nodes: str) -> Mapping[str, Any]:
        """The ExtenderFilterResult for nodes by name."""
        found = await self.ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        assert found.status == 200, found
        return found.body  # type: ignore[no-any-return]

    async def prioritize(self, pod: Object, *nodes: str) -> dict[str, int]:
        """The scores of nodes."""
        found = await self.ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": list(nodes)})
        assert found.status == 200, found
        return {one["Host"]: one["Score"] for one in found.body}

    async def bind(self, pod: Object, node: str) -> str:
        """Bind a pod; returns the error, empty for none."""
        found = await self.ask("bind", binding_of(pod, node))
        assert found.status == 200, found
        return str(found.body["Error"])

    async def fits(self, pod: Object, *nodes: str) -> list[str]:
        """The nodes that pass filter, once what the test recorded has come to the extender: some do."""

        async def are_there() -> bool:
            return bool((await self.filter(pod, *nodes))["NodeNames"])

        await eventually(are_there)
        return list((await self.filter(pod, *nodes))["NodeNames"])


def gpu(node: str, minor: int, *, healthy: bool = True) -> SharedDevice:
    """A card of 16 GiB."""
    resources = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": 16 * GIB}
    return SharedDevice(type="gpu", minor=minor, id=f"GPU-{node}-{minor}", healthy=healthy, resources=resources)


def pod_of(name: str, **amounts: int | str) -> Object:
    """A pod that asks for so much, by short name with `_` for `-`."""
    asks = {NAMES.resource(short.replace("_", "-")): str(amount) for short, amount in amounts.items()}
    container = {"name": "main", "image": "image", "resources": {"requests": asks, "limits": asks}}
    metadata = {"name": name, "namespace": "default"}
    return {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


def binding_of(pod: Object, node: str) -> dict[str, str]:
    """ExtenderBindingArgs."""
    metadata = pod["metadata"]
    return {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"], "Node": node}


@asynccontextmanager
async def extender(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, settings: ExtenderSettings = QUICK_EXTENDER
) -> AsyncIterator[Extender]:
    """An extender that runs until the block ends."""
    async with aclosing(FollowedLog((), ledger, database_url)) as followed:
        leadership = ExtenderLeadership(ledger, database_url, client, followed, settings=settings)
        async with kept_running(Extender(leadership, settings)) as found:
            yield found


@asynccontextmanager
async def scheduling(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, settings: ExtenderSettings = QUICK_EXTENDER
) -> AsyncIterator[Scheduler]:
    """A scheduler with an extender that leads."""
    async with (
        extender(ledger, database_url, client, settings) as found,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60.0)) as session,
    ):
        await eventually(lambda: is_ready(found))
        yield Scheduler(session, await found.url())


async def is_ready(found: Extender) -> bool:
    """Whether an extender answers."""
    return found.health().is_ready


async def folded_extender(ledger: JetStreamLedger) -> ExtenderState:
    """What an extender knows that has read the ledger to its end."""
    fold = await new_fold(ExtenderProjection(), ledger)
    fold.apply_all(await everything(ledger))
    assert isinstance(fold.state, ExtenderState)
    return fold.state

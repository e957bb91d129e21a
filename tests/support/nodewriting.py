"""The node writer for tests: quick to try again, killed at any step, and intents about Nodes of an API server."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from gpuledger.api.kinds import NODES, PODS
from gpuledger.api.labels import HOSTNAME
from gpuledger.db.locks import LockCheck
from gpuledger.edge.kube.client import KubeClient, KubeRequest, Object
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.edge.nodewriter.service import NodeWriter
from gpuledger.edge.nodewriter.settings import NodeWriterSettings
from gpuledger.events.envelope import Decoded, Event, decode
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    NodeDrainChanged,
    NodeIsolationChanged,
    OwnedDrain,
)
from gpuledger.events.position import is_at_or_after
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.followed_log import FollowedLog
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.clock import Clock, random_id, system_clock
from support.events import outgoing
from support.kept_running import kept_running
from support.killing import SteppingClient, SteppingLedger, Steps, happen, was_killed
from support.ledgers import everything
from support.waiting import eventually

BACKOFF = Backoff(first_s=0.02, max_s=0.2, healthy_after_s=5.0)
QUICK = NodeWriterSettings(
    backoff=BACKOFF, refused_backoff=BACKOFF, restart_backoff=BACKOFF, lock_check=LockCheck(interval_s=0.1),
    ownership_check_s=60.0, drain_poll_s=0.05, drain_reports=BACKOFF, blocked_backoff=BACKOFF,
)  # fmt: skip
ASIDE = Isolation.model_validate(
    {
        "unschedulable": True,
        "taints": [{"key": "gpu/broken", "effect": "NoSchedule"}],
        "labels": {"example.com/state": "broken"},
    }
)


class InterruptedClient(SteppingClient):
    """Something happens right before, or right behind, its first eviction."""

    before: Callable[[], Awaitable[None]] | None = None
    behind: Callable[[], Awaitable[None]] | None = None

    async def send(self, request: KubeRequest) -> Object:
        if not request.path.endswith("/eviction"):
            return await super().send(request)
        before, behind, self.before, self.behind = self.before, self.behind, None, None
        await happen(before)
        try:
            return await super().send(request)
        finally:
            await happen(behind)


class Maintainer:
    """Intents as the decider of maintenance records them, about Nodes that exist, and what became of them."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient) -> None:
        self.ledger = ledger
        self.client = client
        self._number = 0

    async def claim(self) -> None:
        """The cluster belongs to the ledger."""
        await claim(self.client, owner(self.ledger.identity.ledger_id, system_clock()), "test")

    async def node(self, name: str, **spec: Any) -> Object:
        """Create a Node."""
        return await self.client.create(NODES, {"metadata": {"name": name}, "spec": spec})

    async def labelled(self, *names: str) -> None:
        """Create Nodes with the label that kubelets set."""
        for name in names:
            await self.client.create(NODES, {"metadata": {"name": name, "labels": {HOSTNAME: name}}})

    async def ask(self, name: str, isolation: Isolation, at: datetime | None = None, **more: Any) -> Decoded:
        """Record an intent about a Node that exists."""
        uid = (await self.client.get(NODES, name))["metadata"]["uid"]
        return await self.record(name, NodeIsolationChanged(uid=uid, isolation=isolation), at, **more)

    async def record(
        self, name: str, data: NodeIsolationChanged | NodeDrainChanged, at: datetime | None = None, **more: Any
    ) -> Decoded:
        """Record an intent."""
        self._number += 1
        time, source = at or system_clock(), "/services/maintenance"
        intent: Decoded = Event(random_id(), source, data.TYPE, name, time, data, "e1", self._number, **more)
        await self.ledger.publish_many([outgoing(intent)])
        return intent

    async def drain(self, name: str, *drains: Drain, since: datetime | None = None, **more: Any) -> Decoded:
        """Record an intent to drain a Node that exists, one drain for each owner; without any, a cancellation."""
        uid = (await self.client.get(NODES, name))["metadata"]["uid"]
        at = since or system_clock()
        owned = tuple(OwnedDrain(owner=f"o{number}", since=at, drain=one) for number, one in enumerate(drains))
        return await self.record(name, NodeDrainChanged(uid=uid, drains=owned), **more)

    async def pod(
        self,
        name: str,
        node: str,
        namespace: str = "default",
        grace_s: int = 0,
        resources: Object | None = None,
        **metadata: Any,
    ) -> Object:
        """Create a pod that runs on a node and is ready; what the metadata says is put on it."""
        spec = {
            "nodeName": node,
            "containers": [{"name": "main", "image": "i", "resources": resources or {}}],
            "terminationGracePeriodSeconds": grace_s,
        }
        made = {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}
        await self.client.create(PODS, made)
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        return await self.client.merge_patch(PODS, name, {"status": status}, namespace, subresource="status")

    async def end(self, pod: Object) -> None:
        """A pod that terminates has ended, as its kubelet says."""
        metadata = pod["metadata"]
        path = f"{PODS.path(metadata['namespace'])}/{metadata['name']}"
        await self.client.send(KubeRequest("delete pod", "DELETE", path, body={"gracePeriodSeconds": 0}))

    async def pods(self) -> list[str]:
        """The names of the pods that are there and do not terminate."""
        found = (await self.client.list(PODS)).items
        return sorted(one["metadata"]["name"] for one in found if not one["metadata"].get("deletionTimestamp"))

    async def outcomes(self, intent: Decoded) -> list[Decoded]:
        """The outcomes of an intent, each once however often it was recorded."""
        found = [decode(one.data) for one in await everything(self.ledger) if ".svc.nodewriter." in one.subject]
        return list({one.id: one for one in found if one.causation_id == intent.id}.values())

    async def spec(self, name: str) -> Object:
        """What schedulers see of a Node: its spec, but for what a new one has."""
        found = await self.client.get(NODES, name)
        spec: Object = found["spec"]
        taints = [one for one in spec.get("taints") or () if not one["key"].startswith("node.kubernetes.io/")]
        return {"unschedulable": spec.get("unschedulable", False), "taints": taints}


@asynccontextmanager
async def node_writer(
    ledger: JetStreamLedger,
    database_url: str,
    client: KubeClient,
    settings: NodeWriterSettings = QUICK,
    clock: Clock = system_clock,
) -> AsyncIterator[NodeWriter]:
    """A node writer that runs until the block ends."""
    async with (
        aclosing(FollowedLog((), ledger, database_url)) as followed,
        kept_running(NodeWriter(ledger, database_url, client, followed, settings=settings, clock=clock)) as writer,
    ):
        yield writer


async def run_until_killed(
    ledger: JetStreamLedger,
    database_url: str,
    client: SteppingClient,
    steps: Steps,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
    clock: Clock = system_clock,
) -> bool:
    """Run a node writer until it is killed, or has settled everything; says whether it was killed.

    `meanwhile` is what the cluster does beside it.
    """
    stepping = SteppingLedger(ledger, steps)
    async with aclosing(FollowedLog((), stepping, database_url)) as followed:
        writer = NodeWriter(stepping, database_url, client, followed, settings=QUICK, clock=clock)
        return await was_killed(writer, settled(writer, ledger), client, steps, meanwhile)


async def settled(writer: NodeWriter, ledger: JetStreamLedger) -> None:
    """Return when all intents in the ledger have outcomes, drains included."""
    head = await ledger.head()

    async def is_settled() -> bool:
        health = writer.health()
        is_idle = not health.waiting and not health.draining
        return is_idle and health.state == "writing" and is_at_or_after(health.position, head)

    await eventually(is_settled)


PATIENT = replace(QUICK, refusals_max=3)
"""Gives up soon."""

"""The past of a cluster with pools: the log, rows and objects as the services would have left them, made at once.

A cold start writes 400 times a second, which is ten minutes for 100,000 devices and their nodes. Here the services' own
decisions are asked in one process: the watchers' reading of what is in the API server, what agents say, and what
inventory, bootstrap and pools decide of it, go into the ledger in the order of a log; rows are written where the
services read theirs back, and objects as the status writer wants them. Services that start with it find nothing to do.
All of it happened an hour ago, so that nothing of it is news.
"""

from collections import Counter, deque
from collections.abc import Iterable
from datetime import timedelta

from bench.pools_fleet import Fleet, node_name
from bench.processes import at_once
from gpuledger.api.kinds import ASSIGNMENT_FIELD_MANAGER, GPU_DEVICES
from gpuledger.api.pool_ref import PoolRef
from gpuledger.db.engine import connect
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.desired.fold import DesiredProjection
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.fields import body
from gpuledger.edge.statuswriter.objects import RESOURCES, Document, Key, Kind
from gpuledger.edge.statuswriter.reconcile.planner import Planner
from gpuledger.edge.watchers import decide as watched
from gpuledger.edge.watchers.resources import gpudevices, gpupools, moduleconfig, namespaces, nodes
from gpuledger.events.device import DevicePoolApplied
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.events.node import NodeDevicesObserved
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.projection.definition import Numbering, Projection
from gpuledger.projection.fold import Fold
from gpuledger.projection.store import Decider, ProjectionStore
from gpuledger.runtime.clock import random_id, system_clock

EPOCH = "past"
AGO = timedelta(hours=1)
APART = timedelta(microseconds=100)
MESSAGES_AT_ONCE = 4_000
PEOPLE = "kubectl-annotate"
"""The field manager of those who annotate."""

KINDS = (
    moduleconfig.KIND,
    namespaces.KIND,
    gpupools.KIND,
    gpupools.CLUSTER_KIND,
    nodes.kind(SettingsChanged().managed_label_key),
    nodes.LABELS_KIND,
)
"""What there is to be seen before there are GPUDevices."""


class Past:
    """What everybody said and decided, told to one service after the other as the log has it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._time = system_clock() - AGO
        self._numbers: Counter[str] = Counter()
        self.position = 0
        self._log: list[Outgoing] = []
        self.deciders = [
            self._fold(projection) for projection in (InventoryProjection(), BootstrapProjection(), PoolsProjection())
        ]
        self.writer = self._fold(DesiredProjection())

    @property
    def desired(self) -> DesiredState:
        """What the API server has to show."""
        state = self.writer.state
        assert isinstance(state, DesiredState)
        return state

    def _fold(self, projection: Projection) -> Fold:
        return Fold(projection, self._ledger.generation, numbering=Numbering(EPOCH, 1))

    async def see(self, client: KubeClient, kind: watched.AnyKind) -> None:
        """The watcher of a kind records what there is."""
        selection = await client.collect(kind.resource, kind.read)
        await self.notice(kind, selection.items)

    async def notice(self, kind: watched.AnyKind, parts: Iterable[watched.ObjectPart]) -> None:
        """The watcher of a kind records what is said by these objects."""
        view = watched.WatchedObjects(kind, parts)
        for fact in watched.differences(kind, {}, view, sorted(view.subjects()), self._time):
            await self.record(kind.source, fact.subject, fact.data)

    async def record(self, source: str, subject: str, data: Payload) -> None:
        """Somebody says something, and all that follows from it is decided."""
        self._time += APART
        number = self._numbers[source] = self._numbers[source] + 1
        event_id = derived_id(f"{source}\n{EPOCH}\n{number}", data.TYPE, subject)
        waiting: deque[Decoded] = deque([Event(event_id, source, data.TYPE, subject, self._time, data, EPOCH, number)])
        while waiting:
            self._record(waiting.popleft())
            for decider in self.deciders:
                waiting.extend(decider.take_decided())
        if len(self._log) >= MESSAGES_AT_ONCE:
            await self.publish()

    def _record(self, event: Decoded) -> None:
        self.position += 1
        one = Outgoing(nats_subject_of(event), event.id, encode(event))
        self._log.append(one)
        message = Message(one.subject, one.data, self.position, int(event.time.timestamp() * 1e9))
        for fold in (*self.deciders, self.writer):
            fold.apply(message)
        self.desired.take_occurrences()

    async def publish(self) -> None:
        """Have what was said so far in the ledger."""
        log, self._log = self._log, []
        receipts = await self._ledger.publish_many(log)
        assert not receipts or receipts[-1].sequence == self.position, "nobody else records"


async def make_past(fleet: Fleet, client: KubeClient, ledger: Ledger, database_url: str) -> Past:
    """From what people have put into the API server to what the services have made of it there, and elsewhere."""
    past = Past(ledger)
    for kind in KINDS:
        await past.see(client, kind)
    for node in range(fleet.nodes):
        await past.record(
            agent_of(node_name(node)), node_name(node), NodeDevicesObserved(cards=tuple(fleet.cards(node)))
        )
    await past.notice(gpudevices.KIND, [gpudevices.read(_annotated(*one)) for one in _requests(fleet, past)])
    for row in list(past.desired.pools.assignment.rows.values()):
        if row.pool is not None:
            agent = agent_of(past.desired.device.rows[row.device].node)
            await past.record(agent, row.device, DevicePoolApplied(pool=row.pool))
    await past.publish()
    for fold in past.deciders:
        await _keep_rows(fold, ledger.identity, database_url)
    return past


async def show(fleet: Fleet, past: Past, client: KubeClient) -> int:
    """Put everything into the API server as people and the status writer have it there; returns how many objects."""
    await at_once(
        client.apply(GPU_DEVICES, _annotated(*one), field_manager=PEOPLE) for one in list(_requests(fleet, past))
    )
    view = Planner(past.desired, crds.node_feature_rule())
    keys = list(view.keys())
    await at_once(_show(client, view, key) for key in keys)
    return len(keys)


async def _show(client: KubeClient, view: Planner, key: Key) -> None:
    desired = view.desired(key)
    assert desired is not None, "nothing was withdrawn"
    resource = RESOURCES[key.kind]
    if key.kind is not Kind.MODULE:
        await client.apply(resource, body(key, desired.main, desired.uid))
    if desired.status:
        await client.apply(resource, body(key, {"status": desired.status}, desired.uid), subresource="status")
    if desired.approved:
        part = body(key, {"annotations": desired.approved})
        await client.apply(resource, part, field_manager=ASSIGNMENT_FIELD_MANAGER)


def device_at(past: Past, node: int, slot: int) -> str:
    """The GPUDevice in a slot of a node."""
    rows = past.desired.device.where("node", node_name(node))
    return sorted(rows, key=lambda row: row.pci_address or "")[slot].name


def _requests(fleet: Fleet, past: Past) -> Iterable[tuple[str, str]]:
    """The devices that people have annotated, and the pools' ids."""
    for node in range(fleet.nodes):
        for slot, pool in fleet.annotated(node):
            yield device_at(past, node, slot), pool.id


def _annotated(name: str, pool: str) -> Document:
    return {"metadata": {"name": name, "annotations": PoolRef.parse(pool).assignment}}


def agent_of(node: str) -> str:
    """The source that a node's agent is."""
    return f"/nodes/{node}/agent"


async def _keep_rows(fold: Fold, identity: LedgerIdentity, database_url: str) -> None:
    """Write a decider's rows as its runner would have."""
    fold.waiting.take_returned()
    async with connect(database_url, application_name="bench past") as connection:
        store = ProjectionStore(connection, fold.projection)
        await store.create_decider(Decider(EPOCH, fold.numbering.next_number, 0))
        await store.flush(fold, await store.create(identity, random_id()))

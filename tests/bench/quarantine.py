"""From a monitor's report to the cordoned Node: a burst of faults, a steady load of reports, and one above that.

The ceiling of a burst is what writes a cordon without us: a request to read each Node and one to patch it, as many at
once, seen by the same watch. An event counts as lost where the ledger or a projection does not have it at the end.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rich.console import Console

from bench.processes import api_server, at_once, percentile_ms, process
from bench.quarantine_services import Report
from bench.report import Figure
from bench.servers import unsynced_nats
from gpuledger.api.kinds import NODES
from gpuledger.api.labels import HOSTNAME
from gpuledger.edge.kube.client import KubeClient, Object, open_client
from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.kube.ownership import claim, owner
from gpuledger.events.envelope import Decoded, Event, parse
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import NodeLabelled, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.runtime.clock import system_clock
from support.events import outgoing
from support.ledgers import new_ledger
from support.quarantine import reported, rules, source_of
from support.servers import short_directory

SERVICES = str(Path(__file__).with_name("quarantine_services.py"))
P50_MS, P99_MS = 150.0, 1_000.0
CAUGHT_UP_S = 30.0
DEADLINE_S = 900.0
PUBLISH_EVERY_S = 0.05
_progress = Console(stderr=True)


class Load(NamedTuple):
    """So many reports a second, for so long; a fault among them is so seldom that the breaker stays shut."""

    per_s: int
    seconds: float
    fault_every_s: float = 2.0


class QuarantineSizes(NamedTuple):
    """How many nodes there are, how many of them report a fault at once, and the loads behind that."""

    nodes: int = 1_000
    burst: int = 200
    rounds: int = 3
    loads: tuple[Load, ...] = (Load(1_000, 600.0), Load(4_200, 60.0))


FULL = QuarantineSizes()
QUICK = QuarantineSizes(20, 5, 1, (Load(100, 1.0, 0.25),))


class Facts:
    """Facts of sources that number their events."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def now(self, subject: str, data: Payload) -> Outgoing:
        """A fact of this moment."""
        source = "/watchers/nodes" if isinstance(data, NodeObserved) else source_of(subject, data)
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event: Decoded = Event(f"{source}/{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)
        return outgoing(event)


class Cordons:
    """When Nodes were last seen to change their cordons."""

    def __init__(self) -> None:
        self.changed_s: dict[tuple[str, bool], float] = {}
        self._last: dict[str, bool] = {}

    async def watch(self, client: KubeClient) -> None:
        """Watch Nodes until cancelled; the server ends a watch after some minutes."""
        while True:
            found = await client.list(NODES)
            for node in found.items:
                self._note(node, is_news=False)
            with suppress(KubeError):  # an interrupted watch begins anew, as one that the server has ended
                async for batch in client.watch(NODES, found.resource_version):
                    for one in batch:
                        if one["type"] != "BOOKMARK":
                            self._note(one["object"], is_news=True)

    def _note(self, node: Object, *, is_news: bool) -> None:
        key = (node["metadata"]["name"], bool(node["spec"].get("unschedulable")))
        if is_news or self._last.get(key[0]) != key[1]:
            self.changed_s[key] = perf_counter()
        self._last[key[0]] = key[1]

    async def since(self, began_s: float, nodes: Sequence[str], *, cordoned: bool) -> list[float]:
        """After how many seconds each Node was first seen to be so."""
        async with asyncio.timeout(DEADLINE_S):
            while not all(self.changed_s.get((node, cordoned), 0.0) > began_s for node in nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return [self.changed_s[node, cordoned] - began_s for node in nodes]


class Bench(NamedTuple):
    """The services at work on a fleet."""

    ledger: Ledger
    client: KubeClient
    cordons: Cordons
    child: asyncio.subprocess.Process
    facts: Facts
    nodes: Sequence[str]

    async def report(self, nodes: Sequence[str], *, healthy: bool) -> list[float]:
        """Record a report about each node at once; after how many seconds each is cordoned, or no longer."""
        messages = [self.facts.now(node, reported("0", healthy=healthy)) for node in nodes]
        began_s = perf_counter()
        await self.ledger.publish_many(messages)
        return await self.cordons.since(began_s, nodes, cordoned=not healthy)

    async def settle(self) -> float:
        """Return after how many seconds nothing is behind the log any more."""
        began_s, seen = perf_counter(), 0
        async with asyncio.timeout(DEADLINE_S):
            while seen < 2:  # the first may have been printed before
                seen = seen + 1 if (await self._stands())[1:] == (0, 0) else 0
        return perf_counter() - began_s

    async def _stands(self) -> Report:
        assert self.child.stdout is not None
        line = await self.child.stdout.readline()
        if not line:
            raise RuntimeError("the services ended")
        return Report(**json.loads(line))

    async def lags(self) -> AsyncIterator[int]:
        """How many events the slowest projection is behind, whenever the services say so."""
        while True:
            found = (await self._stands()).lag_events
            if found is not None:
                yield found


async def quarantine(database_url: str, sizes: QuarantineSizes = FULL) -> list[Figure]:
    """Seconds to a cordon in a burst, and how far behind a load leaves the services."""
    async with _bench(database_url, sizes) as bench:
        figures = await _bursts(bench, sizes)
        for load in sizes.loads:
            figures += await _loaded(bench, load)
    return figures


@asynccontextmanager
async def _bench(database_url: str, sizes: QuarantineSizes) -> AsyncIterator[Bench]:
    nodes = [f"n{number:04}" for number in range(sizes.nodes)]
    with short_directory() as directory, unsynced_nats() as server:
        async with (
            api_server(directory) as kubeconfig,
            new_ledger(server.url, name="bench", puts_in_order=True) as ledger,
            open_client(kubeconfig) as client,
            process(SERVICES, server.url, database_url, str(kubeconfig)) as child,
        ):
            await claim(client, owner(ledger.identity.ledger_id, system_clock()), "bench")
            facts, cordons = Facts(), Cordons()
            bench = Bench(ledger, client, cordons, child, facts, nodes)
            await _populate(bench)
            watching = asyncio.create_task(cordons.watch(client))
            try:
                await bench.settle()
                yield bench
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching


async def _populate(bench: Bench) -> None:
    """Nodes in the cluster and in the ledger, and rules, once the services know reports."""
    uids: dict[str, str] = {}

    async def make(node: str) -> None:
        made = await bench.client.create(NODES, {"metadata": {"name": node, "labels": {HOSTNAME: node}}})
        uids[node] = made["metadata"]["uid"]

    await at_once(map(make, bench.nodes))
    await bench.settle()
    facts: list[tuple[str, Payload]] = [(QUARANTINE, rules(percentage=50))]
    facts += [(node, data) for node, uid in uids.items() for data in (NodeObserved(uid=uid), NodeLabelled(uid=uid))]
    await bench.ledger.publish_many([bench.facts.now(*fact) for fact in facts])


async def _bursts(bench: Bench, sizes: QuarantineSizes) -> list[Figure]:
    """The same nodes in each round: the breaker counts a node once."""
    nodes = bench.nodes[: sizes.burst]
    ours: list[float] = []
    back: list[float] = []
    bare: list[float] = []
    for _ in range(sizes.rounds):
        ours += await bench.report(nodes, healthy=False)
        await bench.settle()
        back += await bench.report(nodes, healthy=True)
        await bench.settle()
        bare += await _bare(bench, nodes)
    name, peer = f"{len(nodes)} faults at once -> cordoned", "read and patched alone"
    figures = [
        Figure(
            f"{name}, p{percent}", percentile_ms(ours, percent), "ms", peer, percentile_ms(bare, percent), most, False
        )
        for percent, most in ((50, P50_MS), (99, P99_MS))
    ]
    ended = f"{len(nodes)} faults end at once -> uncordoned, p99"
    return [*figures, Figure(ended, percentile_ms(back, 99), "ms", peer, percentile_ms(bare, 99), None)]


async def _bare(bench: Bench, nodes: Sequence[str]) -> list[float]:
    """After how many seconds each Node is cordoned by a client alone; they are given back."""

    async def change(node: str, *, cordoned: bool) -> None:
        found = await bench.client.get(NODES, node)
        version = found["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": {"unschedulable": cordoned or None}}
        await bench.client.merge_patch(NODES, node, patch)

    began_s = perf_counter()
    await at_once(change(node, cordoned=True) for node in nodes)
    took = await bench.cordons.since(began_s, nodes, cordoned=True)
    await at_once(change(node, cordoned=False) for node in nodes)
    return took


class _Lags:
    """How far behind the slowest projection was, whenever the services said so."""

    def __init__(self) -> None:
        self.events: list[float] = []

    async def listen(self, bench: Bench) -> None:
        async for behind in bench.lags():
            self.events.append(behind)


async def _loaded(bench: Bench, load: Load) -> list[Figure]:
    before, lags = await bench.ledger.head(), _Lags()
    listening = asyncio.create_task(lags.listen(bench))
    try:
        sent = await _publish(bench, load)
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
    caught_up_s = await bench.settle()
    name = f"{load.per_s:,} reports/s for {load.seconds:,.0f} s"
    figures = [
        Figure(f"{name}: recorded", await _recorded_since(bench, before), "reports", "published", sent.reports, 1.0),
        Figure(f"{name}: published", sent.reports / sent.seconds, "reports/s", "due", load.per_s, 0.95),
        Figure(f"{name}: behind, most", max(lags.events), "events", "due in a second", load.per_s, None),
        Figure(f"{name}: caught up after", caught_up_s, "s", "allowed", CAUGHT_UP_S, CAUGHT_UP_S, is_ratio=False),
    ]
    cordoned = [bench.cordons.changed_s[node, True] - at_s for node, at_s in sent.faults.items()]
    peer = "without load, the target"
    return figures + [
        Figure(f"{name}: a fault -> cordoned, p{percent}", percentile_ms(cordoned, percent), "ms", peer, most, None)
        for percent, most in ((50, P50_MS), (99, P99_MS))
    ]


class _Sent(NamedTuple):
    """How many reports were published, within how many seconds, and when a fault of which node was."""

    reports: int
    seconds: float
    faults: dict[str, float]


async def _publish(bench: Bench, load: Load) -> _Sent:
    """Publish what is due every so often.

    Nodes report in turn: of a check, a warning and then its end, of all others nothing new. Now and then one has a
    fault, and loses it a while later.
    """
    due, sent, began_s = round(load.per_s * load.seconds), 0, perf_counter()
    faults: dict[str, float] = {}
    reporting = _in_turn(bench)
    while sent < due:
        now_s = perf_counter() - began_s
        messages = [next(reporting) for _ in range(min(due, int(now_s * load.per_s)) - sent)]
        sent += len(messages)
        if now_s >= len(faults) * load.fault_every_s and sent < due:
            node = bench.nodes[-1 - len(faults)]
            faults[node] = perf_counter()
            messages.append(bench.facts.now(node, reported("0", healthy=False)))
            sent += 1
        await bench.ledger.publish_many(messages)
        await asyncio.sleep(max(0.0, PUBLISH_EVERY_S - (perf_counter() - began_s - now_s)))
    took_s = perf_counter() - began_s
    await _end(bench, faults)
    return _Sent(sent + len(faults), took_s, faults)


def _in_turn(bench: Bench) -> Iterator[Outgoing]:
    for number in count():
        node, is_warning = bench.nodes[number % len(bench.nodes)], number // len(bench.nodes) % 2 == 0
        data = reported("1", check="GpuThermalWatch", healthy=not is_warning, fatal=False)
        yield bench.facts.now(node, data)


async def _end(bench: Bench, faults: dict[str, float]) -> None:
    """Wait for the last cordon, and have all faults end."""
    for node, at_s in faults.items():
        await bench.cordons.since(at_s, [node], cordoned=True)
    await bench.ledger.publish_many([bench.facts.now(node, reported("0", healthy=True)) for node in faults])
    await bench.cordons.since(max(faults.values()), list(faults), cordoned=False)


async def _recorded_since(bench: Bench, before: Offset) -> int:
    """How many reports the log has since then."""
    found = 0
    async for messages in bench.ledger.history(after=before):
        found += sum(parse(message.data).type == NodeHealthReported.TYPE for message in messages)
    return found

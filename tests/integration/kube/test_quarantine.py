"""From a monitor's report to the cordoned Node and back, through all that decides and writes; figures are printed."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

from gpuledger.api.kinds import NODES
from gpuledger.deciders.health.projection import HealthProjection
from gpuledger.deciders.maintenance.projection import MaintenanceProjection
from gpuledger.edge.kube.client import KubeClient
from gpuledger.events.envelope import Decoded, Event, decode
from gpuledger.events.maintenance import NodeMaintenanceReleased
from gpuledger.events.node import NodeLabelled, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.quarantine import QUARANTINE
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.runtime.clock import system_clock
from support.enforcing import enforce
from support.gateway import gateways
from support.health_monitor import Answer
from support.ledgers import everything
from support.maintenance import observed
from support.nodewriting import QUICK, Maintainer, node_writer, settled
from support.nvsentinel import real_requests
from support.projections import lose_rows, publish, reaches, running, stop
from support.quarantine import reported, rules, source_of
from support.waiting import eventually

BURST = 200
SETTINGS = replace(RunnerSettings(), tick_s=0.05)


class Facts:
    """Facts that were just recorded, numbered by their sources."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def now(self, subject: str, data: Payload) -> Decoded:
        source = "/watchers/nodes" if isinstance(data, NodeObserved) else source_of(subject, data)
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        return Event(f"{source}/{number}", source, data.TYPE, subject, system_clock(), data, "e1", number)


class Cordons:
    """When each Node was last seen to change its cordon, in seconds of a steady clock."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, bool], float] = {}

    async def watch(self, client: KubeClient, start: str) -> None:
        async for batch in client.watch(NODES, start):
            for one in batch:
                found = one["object"]
                is_cordoned = found.get("spec", {}).get("unschedulable", False)
                self.seen.setdefault((found["metadata"]["name"], is_cordoned), time.monotonic())

    async def after(self, nodes: Sequence[str], begun_s: float, *, cordoned: bool) -> list[float]:
        """After how many seconds each Node was so."""

        async def are_so() -> bool:
            return all((node, cordoned) in self.seen for node in nodes)

        await eventually(are_so)
        return sorted(self.seen[node, cordoned] - begun_s for node in nodes)


class Chain(NamedTuple):
    """The whole chain on one ledger, with Nodes that exist."""

    ledger: JetStreamLedger
    facts: Facts
    cordons: Cordons

    async def report(self, nodes: Sequence[str], *, healthy: bool = False) -> float:
        """Record a report about each node; returns when that began."""
        begun_s = time.monotonic()
        await publish(self.ledger, [self.facts.now(node, reported("0", healthy=healthy)) for node in nodes])
        return begun_s


@asynccontextmanager
async def chain(
    ledger: JetStreamLedger, client: KubeClient, url: str, names: Sequence[str], percentage: int
) -> AsyncIterator[Chain]:
    maintainer, facts, cordons = Maintainer(ledger, client), Facts(), Cordons()
    await maintainer.claim()
    uids = {name: (await maintainer.node(name))["metadata"]["uid"] for name in names}
    start = (await client.list(NODES)).resource_version
    nodes: list[Payload] = [data for uid in uids.values() for data in (observed(uid), NodeLabelled(uid=uid))]
    subjects = [name for name in names for _ in range(2)]
    begun = [facts.now(node, data) for node, data in zip(subjects, nodes, strict=True)]
    await enforce(ledger, url)
    head = await publish(ledger, [facts.now(QUARANTINE, rules(percentage=percentage)), *begun])
    async with (
        running(Runner(HealthProjection(), ledger, url, settings=SETTINGS)),
        running(Runner(MaintenanceProjection(), ledger, url, settings=SETTINGS)),
        node_writer(ledger, url, client, QUICK) as writer,
    ):
        await reaches(url, "health", head)
        await reaches(url, "maintenance", head)
        await settled(writer, ledger)
        task = asyncio.create_task(cordons.watch(client, start))
        try:
            yield Chain(ledger, facts, cordons)
        finally:
            await stop(task)


async def test_a_fault_cordons_its_node_and_its_end_uncordons_it(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    async with chain(ledger, client, migrated_url, ["10.0.15.233", "n2"], 50) as found:
        begun_s = await found.report(["10.0.15.233"])
        (took_s,) = await found.cordons.after(["10.0.15.233"], begun_s, cordoned=True)
        begun_s = await found.report(["10.0.15.233"], healthy=True)
        (back_s,) = await found.cordons.after(["10.0.15.233"], begun_s, cordoned=False)
        assert ("n2", True) not in found.cordons.seen
    print(f"report to cordon {took_s * 1000:.0f} ms, healthy again to uncordon {back_s * 1000:.0f} ms")


async def test_a_node_with_two_error_codes_stays_cordoned_until_both_are_cleared(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str, tmp_path: Path
) -> None:
    """What gpu-health-monitor encoded of two errors of one card, and healthy reports that name one code each."""
    _, _, double_bit, inforom, healthy = (HealthEvents.FromString(one.content) for one in real_requests()[:5])
    (tmp_path / "gateway").mkdir()
    async with (
        chain(ledger, client, migrated_url, ["n1"], 100) as found,
        gateways(tmp_path / "gateway", ledger) as here,
        here.serving() as ports,
        here.monitor(ports.tokens, token=await here.token("n1")) as monitor,
    ):
        cleared = [_of_codes(healthy, request) for request in (double_bit, inforom)]
        begun_s = time.monotonic()
        for request in (double_bit, inforom, cleared[0]):
            assert await monitor.send_bytes(_made_now(request)) == Answer("OK")
            await found.cordons.after(["n1"], begun_s, cordoned=True)
        await reaches(migrated_url, "health", await ledger.head())
        assert await _releases(ledger) == []
        assert await monitor.send_bytes(_made_now(cleared[1])) == Answer("OK")
        await found.cordons.after(["n1"], begun_s, cordoned=False)
        reports = await here.events()
    (release,) = await _releases(ledger)
    assert [tuple(one.data.codes) for one in reports if hasattr(one.data, "codes")] == [
        ("DCGM_FR_VOLATILE_DBE_DETECTED",),
        ("DCGM_FR_CORRUPT_INFOROM",),
    ] * 2
    assert release.causation_id == reports[-1].id


def _of_codes(healthy: HealthEvents, unhealthy: HealthEvents) -> HealthEvents:
    """A healthy report about the codes of another one."""
    request = HealthEvents()
    request.CopyFrom(healthy)
    request.events[0].errorCode.extend(unhealthy.events[0].errorCode)
    return request


def _made_now(request: HealthEvents) -> bytes:
    """A request as a monitor sends it now."""
    for event in request.events:
        event.generatedTimestamp.FromDatetime(system_clock())
    return request.SerializeToString()


async def _releases(ledger: JetStreamLedger) -> list[Decoded]:
    decoded = [decode(one.data) for one in await everything(ledger)]
    return [one for one in decoded if isinstance(one.data, NodeMaintenanceReleased)]


async def test_a_burst_on_half_of_the_nodes_cordons_each(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    names = [f"n{number:04}" for number in range(BURST * 2)]
    async with chain(ledger, client, migrated_url, names, 50) as found:
        begun_s = await found.report(names[:BURST])
        took = await found.cordons.after(names[:BURST], begun_s, cordoned=True)
    p50, p99 = quantiles(took, n=100)[49], quantiles(took, n=100)[98]
    print(f"{len(took)} reports at once: cordoned after p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms")


async def test_the_breaker_stops_a_burst_at_half_of_the_nodes(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str
) -> None:
    names = [f"n{number}" for number in range(10)]
    async with chain(ledger, client, migrated_url, names, 50) as found:
        begun_s = await found.report(names)
        await found.cordons.after(names[:5], begun_s, cordoned=True)

        async def is_open() -> bool:
            return any(one.subject.startswith("ledger.svc.health.quarantine.") for one in await everything(ledger))

        await eventually(is_open)
        assert {name for name, cordoned in found.cordons.seen if cordoned} == set(names[:5])


async def test_lost_rows_and_old_reports_set_nothing_aside(ledger: JetStreamLedger, migrated_url: str) -> None:
    """A service that was away, and one that begins anew, on a real log: no request is made, and none a second time."""
    facts = Facts()
    await enforce(ledger, migrated_url)
    nodes = [facts.now(name, NodeLabelled(uid=f"u-{name}")) for name in ("old", "new")]
    await publish(ledger, [facts.now(QUARANTINE, rules(max_event_age_s=60)), *nodes])
    old = facts.now("old", reported("0"))
    await publish(ledger, [old._replace(time=old.time - timedelta(seconds=61)), facts.now("new", reported("0"))])
    for _ in range(2):
        async with running(Runner(HealthProjection(), ledger, migrated_url, settings=SETTINGS)):

            async def is_requested() -> bool:
                return bool(await _requested(ledger))

            await eventually(is_requested)
            await reaches(migrated_url, "health", await ledger.head())
        assert await _requested(ledger) == ["new"]
        lose_rows(migrated_url, HealthProjection)


async def _requested(ledger: JetStreamLedger) -> list[str]:
    requests = [one for one in await everything(ledger) if one.subject.startswith("ledger.svc.health.node.")]
    return [decode(one.data).subject for one in requests if one.subject.endswith(".maintenance-requested")]

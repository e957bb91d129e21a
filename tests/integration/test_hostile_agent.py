"""A hostile agent on real servers: what it costs is bounded, it is told apart, and nobody else notices."""

import asyncio
from collections import Counter
from functools import partial
from math import nan

import pytest
from prometheus_client import REGISTRY

from gpuledger.compose.source_metrics import measure_sources
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.deduplication import EPOCHS_MAX
from gpuledger.domain.sources.limits import LIMITS
from gpuledger.events.device import Card, DeviceFailed, DeviceReportRejected
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeDevicesObserved, NodeObserved
from gpuledger.events.publishing import Rule
from gpuledger.events.source import SourceLimited, SourceRejected
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.runtime.clock import system_clock
from support.cli import Cli, aside
from support.events import AGENT, event, outgoing
from support.ledgers import everything
from support.projections import QUICK, QUICK_SERVICE, are_folded, assert_true, execute, publish, reaches, running, stop
from support.runners import decided, failures
from support.waiting import eventually

HOSTILE = "/nodes/n2/agent"
GARBAGE = 3 * LIMITS.rejected
EPOCHS = EPOCHS_MAX + 50

HOUR_S = 3_600.0
ATTACK_MAX_S = 60.0
"""How long a test takes at most."""


@pytest.fixture(autouse=True)
async def within_an_hour() -> None:
    """Limits hold for an hour of the log's clock: where one is about to end, the next one is waited for."""
    left_s = HOUR_S - system_clock().timestamp() % HOUR_S
    if left_s < ATTACK_MAX_S:
        await asyncio.sleep(left_s)


def hostile_messages() -> list[Outgoing]:
    """Garbage under its own name, types that nobody knows, and one epoch after the other."""
    garbage = [Outgoing("ledger.node.n2.device.d1.failed", f"g{number}", b"{") for number in range(GARBAGE)]
    fact = event(DeviceFailed(kind="DBE"), "d9", source=HOSTILE)
    unknown = outgoing(fact)._replace(subject="ledger.node.n2.device.d9.melted", id="unknown")
    unknown = unknown._replace(data=unknown.data.replace(b"device.failed.v1", b"device.melted.v1"))
    epochs = [outgoing(fact._replace(id=f"e{number}", epoch=f"e{number:05}")) for number in range(EPOCHS)]
    return [*garbage, unknown, *epochs]


@pytest.fixture
async def attacked(ledger: JetStreamLedger, url: str) -> int:
    """A log with an honest agent and a hostile one, folded; its head."""
    runners = [Runner(one, ledger, url, settings=QUICK) for one in (SourcesProjection(), DevicesProjection())]
    async with running(*runners):
        await publish(ledger, failures(range(1, 4)))
        await ledger.publish_many(hostile_messages())
        head = await publish(ledger, failures(range(4, 7)))
        head += LIMITS.rejected + 1
        await reaches(url, "sources", head)
        await reaches(url, "devices", head)
    return head


async def test_what_a_hostile_agent_costs_is_bounded(ledger: JetStreamLedger, url: str, attacked: int) -> None:
    found = await decided(ledger)
    assert Counter(type(one.data) for one in found) == {SourceRejected: LIMITS.rejected, SourceLimited: 1}
    of_hostile = execute(url, "SELECT epoch FROM gpuledger_live.source WHERE source = %s", HOSTILE)
    assert len(of_hostile) == EPOCHS_MAX + 1
    ((hour_events, rejected, epochs),) = execute(
        url, "SELECT sum(events), sum(rejected), sum(epochs) FROM gpuledger_live.source_hour"
    )
    assert (hour_events, rejected, epochs) == (len(hostile_messages()) + 6, GARBAGE, EPOCHS + 2)
    for projection in (SourcesProjection(), DevicesProjection()):
        await assert_true(ledger, url, [projection])
        await rebuild(projection, ledger, url)
        await assert_true(ledger, url, [projection])
    assert await ledger.head() == attacked


async def test_a_restart_forgets_the_same_epochs(ledger: JetStreamLedger, url: str, attacked: int) -> None:
    more = [event(DeviceFailed(kind="DBE"), "d9", source=HOSTILE, epoch=f"f{number:05}") for number in range(10)]
    head = await publish(ledger, more)
    projections = [SourcesProjection(), DevicesProjection()]
    for projection in projections:
        assert await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert not execute(url, "SELECT source FROM gpuledger.seen")
    kept = execute(url, "SELECT min(epoch), count(*) FROM gpuledger.numbers_seen WHERE source = %s", HOSTILE)
    assert kept == [(f"e{EPOCHS - EPOCHS_MAX + 10:05}", EPOCHS_MAX)]
    await assert_true(ledger, url, projections)


@pytest.mark.usefixtures("attacked")
async def test_the_source_is_told_apart(
    url: str, clean_nats_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NATS_URL", clean_nats_url)
    monkeypatch.setenv("DATABASE_URL", url)
    shown = await aside(Cli(capsys))("get", "sources", "-o", "json")
    assert shown.code == 0, shown.err
    rows = [row for row in shown.json() if row["limited_at"]]
    assert [(row["source"], row["epoch"], row["rejected"]) for row in rows] == [(HOSTILE, "", GARBAGE)]
    (honest,) = [row for row in shown.json() if row["source"] == AGENT]
    assert (honest["rejected"], honest["unknown"], honest["missing"], honest["limited_at"]) == (0, 0, 0, None)


@pytest.mark.usefixtures("attacked")
async def test_what_alerts_ask_for_is_measured(url: str) -> None:
    execute(url, "INSERT INTO gpuledger_live.gap VALUES ('/s', 'e', 1, 2, now(), NULL)")
    execute(url, "INSERT INTO gpuledger_live.gap VALUES ('/s', 'e', 3, 4, now() - INTERVAL '2 days', NULL)")
    execute(url, "INSERT INTO gpuledger_live.gap VALUES ('/s', 'e', 5, 6, now(), now())")
    task = asyncio.create_task(measure_sources(url, interval_s=0.02))
    try:
        await eventually(partial(_measured, source_gaps_open=2, source_gaps_new=1))
        await eventually(partial(_measured, sources_with_rejected_events=1, sources_over_limits=1))
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%%sources metrics'"
        execute(url, cut)
        execute(url, "UPDATE gpuledger_live.source_hour SET hour = hour - INTERVAL '3 hours'")
        await eventually(partial(_measured, sources_with_rejected_events=0, sources_over_limits=0))
        execute(url, "ALTER TABLE gpuledger_live.gap RENAME TO gap_elsewhere")
        await eventually(partial(_measured, source_gaps_open=nan, sources_over_limits=nan))
        execute(url, "ALTER TABLE gpuledger_live.gap_elsewhere RENAME TO gap")
        await eventually(partial(_measured, source_gaps_open=2, sources_over_limits=0))
    finally:
        await stop(task)


async def _measured(**expected: float) -> bool:
    found = {name: REGISTRY.get_sample_value(f"gpuledger_{name}") for name in expected}
    return found == pytest.approx(expected, nan_ok=True)


async def test_rejected_reports_are_bounded_through_restarts_and_rebuilds(ledger: JetStreamLedger, url: str) -> None:
    projections = [SourcesProjection(), InventoryProjection()]
    node = event(NodeObserved(uid="u", nfd_version="0.17.0"), "n1", source="/watchers/nodes")
    card = Card(uuid="GPU-1", pci_address="0000:17:00.0", pci_vendor="10de", pci_device="2335", pci_class="0302")
    cards = event(NodeDevicesObserved(cards=(card,)), "n1", source=AGENT)

    async def rules_are_enforced() -> bool:
        return {*Rule} <= {one.subject for one in await decided(ledger)}

    async with running(Runner(projections[0], ledger, url, settings=QUICK_SERVICE)):
        await eventually(rules_are_enforced)
    for first in (1, LIMITS.rejected // 2, 2 * LIMITS.rejected):
        async with running(*(Runner(one, ledger, url, settings=QUICK) for one in projections)):
            last = max(first, 10) * 2
            await publish(ledger, [node, cards, *_wrong_reports(range(first, last))])
            await eventually(partial(are_folded, ledger, url, projections))
        await rebuild(projections[1], ledger, url)
        await assert_true(ledger, url, projections)
    verdicts = [decode(one.data).data for one in await everything(ledger) if ".report-rejected" in one.subject]
    of_hours = execute(
        url, "SELECT count(*) FROM gpuledger_live.inventory_report_hour WHERE rejected > %s", LIMITS.rejected
    )
    assert of_hours == [(1,)]
    assert [one for one in verdicts if isinstance(one, DeviceReportRejected) and one.last_of_hour] == [verdicts[-1]]
    assert len(verdicts) == LIMITS.rejected


def _wrong_reports(numbers: range) -> list[Decoded]:
    """What the hostile agent says of a card of another node."""
    return [event(DeviceFailed(kind="DBE"), "GPU-1", number=number, at=1, source=HOSTILE) for number in numbers]

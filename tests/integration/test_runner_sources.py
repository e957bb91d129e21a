"""What the sources service decides on real servers: events that are turned down, and gaps that open and close."""

import itertools
from collections.abc import Iterator
from datetime import timedelta

import pytest

from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.position import is_origin
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import all_projections
from support.events import AGENT
from support.ledgers import publish_raw
from support.projections import QUICK, assert_true, publish, reaches, running, table
from support.runners import Failing, Moving, decided, failures, unfit
from support.waiting import eventually


async def test_a_rejected_event_is_reported(ledger: JetStreamLedger, url: str) -> None:
    await publish(ledger, failures(range(1, 3)))
    bad = (await ledger.publish(unfit(3, AGENT))).sequence
    head = await publish(ledger, failures(range(4, 6)))
    devices = Runner(DevicesProjection(), ledger, url, settings=QUICK)
    async with running(devices, Runner(SourcesProjection(), ledger, url, settings=QUICK)):
        await reaches(url, "sources", head + 1)
        await reaches(url, "devices", head + 1)
    (rejected,) = await decided(ledger)
    assert rejected.type == "io.gpuledger.source.rejected.v1"
    assert (rejected.data.sequence, rejected.data.nats_subject) == (bad, "ledger.node.n1.device.d1.failed")  # type: ignore[attr-defined]
    assert "kind" in rejected.data.reason  # type: ignore[attr-defined]
    assert table(url, "rejection", "position, generation") == [(bad, 1)]
    assert len(table(url, "failure")) == 4
    await assert_true(ledger, url, [SourcesProjection(), DevicesProjection()])


@pytest.mark.parametrize("token", [b"a\xff\xfeb", b"a\0b", b"a\x01b", "ä".encode()], ids=repr)
async def test_a_subject_that_is_not_text_stops_nobody(
    ledger: JetStreamLedger, clean_nats_url: str, url: str, token: bytes
) -> None:
    publish_raw(clean_nats_url, b"ledger.node.n1.device.%b.failed" % token, b"{")
    await eventually(lambda: _has_events(ledger))
    head = await publish(ledger, failures(range(1, 3)))
    for projection in all_projections():
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)
    assert len(table(url, "failure")) == 2
    assert table(url, "rejection", "position") == [(1,)]
    await assert_true(ledger, url, all_projections())


async def _has_events(ledger: Ledger) -> bool:
    return not is_origin(await ledger.head())


async def test_a_gap_is_reported_after_its_grace_and_closed_when_the_event_comes(
    ledger: JetStreamLedger, url: str
) -> None:
    clock = Moving()
    numbers: Iterator[int] = itertools.count(1)
    async with running(Runner(SourcesProjection(), ledger, url, settings=QUICK, clock=clock)):
        head = await publish(ledger, [*failures(range(1, 3)), *failures(range(5, 7))])
        await reaches(url, "sources", head)
        assert table(url, "missing", 'first, last, "left"') == [(3, 4, 2)]
        assert not table(url, "gap")
        clock.ahead = timedelta(seconds=GAP_GRACE_S + 60)
        await reaches(url, "sources", head + next(numbers))
        assert table(url, "gap", "first, last, closed_at") == [(3, 4, None)]
        await assert_true(ledger, url, [SourcesProjection()])
        await publish(ledger, failures(range(4, 5)))
        await reaches(url, "sources", head + 2)
        assert table(url, "gap", "closed_at") == [(None,)]
        await publish(ledger, failures(range(3, 4)))
        await reaches(url, "sources", head + 4)
    assert table(url, "gap", "closed_at IS NULL") == [(False,)]
    assert not table(url, "missing")
    assert [one.type.split(".")[3] for one in await decided(ledger)] == ["gap-detected", "gap-closed"]
    await assert_true(ledger, url, [SourcesProjection()])


async def test_a_gap_is_filled_while_its_detection_is_on_its_way(ledger: JetStreamLedger, url: str) -> None:
    clock, failing = Moving(), Failing(ledger)
    async with running(Runner(SourcesProjection(), failing, url, settings=QUICK, clock=clock)):
        head = await publish(ledger, [*failures(range(1, 3)), *failures(range(4, 5))])
        await reaches(url, "sources", head)
        failing.comes_first = failures(range(3, 4))
        clock.ahead = timedelta(seconds=GAP_GRACE_S + 60)
        await reaches(url, "sources", head + 3)
    assert [one.type.split(".")[3] for one in await decided(ledger)] == ["gap-detected", "gap-closed"]
    assert table(url, "gap", "closed_at IS NULL") == [(False,)]
    await assert_true(ledger, url, [SourcesProjection()])


async def test_verifying_counts_in_what_was_decided_and_not_yet_recorded(ledger: JetStreamLedger, url: str) -> None:
    clock, failing = Moving(), Failing(ledger)
    async with running(Runner(SourcesProjection(), failing, url, settings=QUICK, clock=clock)):
        await reaches(url, "sources", await publish(ledger, [*failures(range(1, 3)), *failures(range(4, 5))]))
        failing.fails = "before"
        clock.ahead = timedelta(seconds=GAP_GRACE_S + 60)
        await eventually(lambda: _has_rows(url, "gap"))
        await assert_true(ledger, url, [SourcesProjection()])


async def _has_rows(url: str, name: str) -> bool:
    return bool(table(url, name))

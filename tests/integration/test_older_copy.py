"""What follows from events that an older copy of the log lacks is not published into it, whenever that is put back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources.leader_epochs import began
from gpuledger.events.envelope import parse
from gpuledger.events.position import Position
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.connect import connected
from gpuledger.ledger.errors import LedgerUnavailableError, LogChangedError, LogRestoredError
from gpuledger.ledger.identity import Anchor
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.ledger.stream import stream_info
from gpuledger.local.servers.nats import NatsServer
from gpuledger.projection.runner import Runner
from gpuledger.projection.writer import RowWriter
from support.events import AGENT, outgoing
from support.ledgers import everything, new_ledger, publisher_of, read_count
from support.log_copies import keep_copy, put_back
from support.projections import QUICK, publish, running
from support.runners import failures, unfit
from support.waiting import eventually

KEPT = 20
"""Events in the copy of the log that is put back."""

FOLDED = 50

TURNS = 20
"""Turns of the event loop in which a task has gone on as far as it can."""

pytestmark = pytest.mark.one_stream("steps in between the publisher of the stream and its server")


@asynccontextmanager
async def longer_than_copy(server: NatsServer, copy: Path) -> AsyncIterator[JetStreamLedger]:
    """A log of `FOLDED` events, of which a copy has the first `KEPT`."""
    async with new_ledger(server.url) as ledger:
        await publish(ledger, failures(range(1, KEPT + 1)))
        keep_copy(server, copy)
        await publish(ledger, failures(range(KEPT + 1, FOLDED + 1)))
        yield ledger


async def test_what_follows_from_lost_events_is_not_published_into_the_older_copy(
    fresh_nats: NatsServer, tmp_path: Path
) -> None:
    async with longer_than_copy(fresh_nats, tmp_path / "copy") as ledger:
        async with ledger.read() as reader:
            await read_count(reader, FOLDED)
            put_back(fresh_nats, tmp_path / "copy")
            for count in (1, 40):
                with pytest.raises(LogRestoredError, match=r"ends at 1/20, but it was read up to 1/50"):
                    await ledger.publish_many([outgoing(one) for one in failures(range(100, 100 + count))])
        assert await ledger.head() == KEPT


async def test_what_waits_before_a_closed_gate_is_not_published_into_the_older_copy(
    fresh_nats: NatsServer, tmp_path: Path
) -> None:
    async with longer_than_copy(fresh_nats, tmp_path / "copy") as ledger:
        gate = publisher_of(ledger).gate

        async def waits() -> bool:
            return bool(gate._waiting)

        async def is_back() -> bool:
            return ledger._connection.times_connected > times

        async with ledger.read() as reader:
            await read_count(reader, FOLDED)
            gate.close("the disk is full")
            times = ledger._connection.times_connected
            async with gate.turn():
                publishing = asyncio.create_task(publish(ledger, failures(range(100, 101))))
                await eventually(waits)
                put_back(fresh_nats, tmp_path / "copy")
                await eventually(is_back)
            with pytest.raises(LogRestoredError, match=r"ends at 1/20, but it was read up to 1/50"):
                await publishing
        assert await ledger.head() == KEPT


@pytest.mark.parametrize("count", [1, 40])
async def test_what_waits_for_a_stream_that_is_away_is_not_published_into_an_older_one(
    fresh_nats: NatsServer, count: int
) -> None:
    """The connection stands all the time, as in a cluster where the stream is another server's."""
    async with new_ledger(fresh_nats.url) as ledger, connected(fresh_nats.url, name="operator") as operator:
        await publish(ledger, failures(range(1, FOLDED + 1)))
        info = await stream_info(operator, "LEDGER_1")
        async with ledger.read() as reader:
            await read_count(reader, FOLDED)
            await operator.jetstream.delete_stream("LEDGER_1")
            publishing = asyncio.create_task(publish(ledger, failures(range(100, 100 + count))))
            await eventually(lambda: is_closed(ledger))
            await operator.jetstream.add_stream(info.config)
            for one in map(outgoing, failures(range(1, KEPT + 1))):
                await operator.jetstream.publish(one.subject, one.data)
            with pytest.raises(LogChangedError):
                await publishing
        assert ledger._connection.times_connected == 1
        assert await ledger.head() == KEPT


async def is_closed(ledger: JetStreamLedger) -> bool:
    return not publisher_of(ledger).gate.is_open


@pytest.mark.parametrize("count", [1, 40])
async def test_nothing_is_left_for_the_next_connection_when_one_breaks_after_the_log_was_confirmed(
    fresh_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    async with longer_than_copy(fresh_nats, tmp_path / "copy") as ledger:
        guard, broken = ledger._guard, asyncio.Event()
        assert guard is not None
        confirm = guard.confirm

        async def is_down() -> bool:
            return not ledger._connection.is_up

        async def confirm_at_last(anchor: Anchor | None = None) -> None:
            await confirm(anchor)
            if not broken.is_set():
                fresh_nats.kill()
                await eventually(is_down)
                broken.set()

        monkeypatch.setattr(guard, "confirm", confirm_at_last)
        with ledger.relying_on(await ledger.anchor_at(await ledger.head())):
            publishing = asyncio.create_task(publish(ledger, failures(range(100, 100 + count))))
            await broken.wait()
            for _ in range(TURNS):
                await asyncio.sleep(0)
            put_back(fresh_nats, tmp_path / "copy")
            with pytest.raises(LogRestoredError, match=r"ends at 1/20, but it was read up to 1/50"):
                await publishing
        assert await ledger.head() == KEPT


async def test_what_a_leader_finds_decided_is_not_published_into_the_older_copy(
    fresh_nats: NatsServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is put back when the new leader has confirmed its checkpoint, and reads nothing yet."""
    decider = SourcesProjection()
    async with new_ledger(fresh_nats.url) as ledger:
        await publish(ledger, failures(range(1, KEPT + 1)))
        keep_copy(fresh_nats, tmp_path / "copy")
        (receipt,) = await ledger.publish_many([unfit(KEPT + 1, AGENT)])

        async def is_away(_: RowWriter, _ready: object) -> object:
            raise LedgerUnavailableError("the ledger is away")

        with monkeypatch.context() as patched:
            patched.setattr(RowWriter, "_publish", is_away)
            with pytest.raises(LedgerUnavailableError):
                await Runner(decider, ledger, url, settings=QUICK).catch_up(receipt.sequence)
        load = RowWriter._load

        async def load_slowly(*arguments: Any) -> RowWriter:
            loaded = await load(*arguments)
            put_back(fresh_nats, tmp_path / "copy")
            return loaded

        monkeypatch.setattr(RowWriter, "_load", load_slowly)
        with pytest.raises(LogRestoredError, match=r"ends at 1/20, but it was read up to 1/21"):
            await Runner(decider, ledger, url, settings=QUICK).catch_up(receipt.sequence)
        assert await ledger.head() == KEPT


async def test_a_leader_that_found_more_than_the_older_copy_has_begins_a_new_epoch(
    fresh_nats: NatsServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read nothing that is lost. But its epoch names a head that is, and would close all those to come."""
    decider = SourcesProjection()
    async with new_ledger(fresh_nats.url) as ledger:
        await ledger.publish_many([unfit(1, AGENT)])
        await publish(ledger, failures(range(2, KEPT + 1)))
        keep_copy(fresh_nats, tmp_path / "copy")
        await publish(ledger, failures(range(KEPT + 1, FOLDED + 1)))
        load, loaded = RowWriter._load, list[RowWriter]()

        async def load_slowly(*arguments: Any) -> RowWriter:
            loaded.append(await load(*arguments))
            if len(loaded) == 1:
                put_back(fresh_nats, tmp_path / "copy")
            return loaded[-1]

        monkeypatch.setattr(RowWriter, "_load", load_slowly)
        async with running(Runner(decider, ledger, url, settings=QUICK)):
            await eventually(lambda: _is_recorded(ledger, KEPT + 1))
        (decision,) = (await everything(ledger))[KEPT:]
        event = parse(decision.data)
        assert began(event.source, event.epoch) == Position(1, KEPT)


async def _is_recorded(ledger: Ledger, head: int) -> bool:
    return await ledger.head() == head

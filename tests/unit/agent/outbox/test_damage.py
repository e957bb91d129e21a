"""An outbox in a folder that was damaged, or put back to an earlier state."""

import asyncio
import shutil
import sqlite3
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from gpuledger.agent.outbox import disk, numbering
from gpuledger.agent.outbox.bounds import DEFAULT_SIZES, Sizes
from gpuledger.agent.outbox.clock import event_time
from gpuledger.agent.outbox.entry import Entry, QueueBounds
from gpuledger.agent.outbox.errors import DiskError
from gpuledger.agent.outbox.outbox import Outbox, open_outbox
from gpuledger.agent.outbox.spool import FILE, open_spool
from gpuledger.agent.outbox.store import DISK_RETRY_S, READ_FAILURES_MAX, OutboxStore
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.sources import deduplication
from gpuledger.events.node import NodeAgentStarted
from gpuledger.events.source import SourceRejected
from gpuledger.ledger.api import Message, Outgoing
from gpuledger.projection.fold import Fold
from support.outbox import BOOT, NODE, NOON, Disk, Log, Time, fact, numbers_in, recorded, store_on


class Node:
    """A node whose agent is begun and ended, with a real disk under it."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.time, self.epochs = Disk(folder), Time(), count(1)
        self.log: list[Outgoing] = []

    def begin(self, *, boot: str = BOOT, sizes: Sizes = DEFAULT_SIZES, shaky: bool = False) -> OutboxStore:
        if not shaky:
            self.disk.open = open_spool  # type: ignore[method-assign]
        store = store_on(self.disk, self.time, sizes=sizes, epochs=self.epochs, boot=boot)
        store.open()
        return store

    def drain(self, store: OutboxStore) -> None:
        while entries := store.head():
            self.log += [entry.message for entry in entries]
            store.acknowledged(entries)

    def spoil(self, sql: str) -> None:
        connection = sqlite3.connect(self.disk.folder / FILE)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(sql)
        connection.commit()
        connection.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "state")


UNKNOWABLE = ("DELETE FROM run", "UPDATE event SET number = -number")
"""What is left then does not say what was lost."""


@pytest.mark.parametrize(
    "damage",
    ["UPDATE run SET last_time = 'noon'", "UPDATE run SET last_time = '2026-01-02T12:00:00'",
     "UPDATE run SET epoch = CAST(x'ff41' AS TEXT)", "UPDATE run SET next_number = NULL", "DELETE FROM run",
     "UPDATE event SET time = 'noon'", "UPDATE event SET subject = CAST(x'ff41' AS TEXT)",
     "UPDATE event SET number = -number", "DROP TABLE kept"],
)  # fmt: skip
def test_damage_that_a_database_does_not_see_keeps_no_agent_from_its_work(node: Node, damage: str) -> None:
    store = node.begin()
    store.record([fact(1), fact(2)])
    store.close()
    node.spoil(damage)
    store = node.begin()
    node.drain(store)
    node.time.go(DISK_RETRY_S)
    store.check()
    store.record([fact(3)])
    node.drain(store)
    assert store.status.durable
    store.close()
    found = recorded(node.log)
    assert numbers_in(found.events) == [3]
    assert {event.epoch for event in found.events}.isdisjoint({"e1"})
    assert "e1" in found.dropped or damage in UNKNOWABLE


def test_what_waited_in_a_file_that_cannot_be_gone_on_with_is_reported_as_lost(node: Node) -> None:
    store = node.begin()
    store.record([fact(1), fact(2)])
    store.close()
    node.spoil("UPDATE run SET last_time = 'noon'")
    store = node.begin()
    node.drain(store)
    store.close()
    (drop,) = recorded(node.log).dropped["e1"]
    assert (drop.count, drop.first, drop.last, drop.reason) == (3, 1, 3, "SpoolUnreadable")


def test_killed_between_moving_a_file_and_its_log_aside_it_gives_no_number_twice(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = node.begin()
    store.record([fact(1)])
    store.close()
    store = node.begin()
    store.record([fact(2)])
    node.drain(store)
    node.disk.crash(tmp_path / "crashed")
    assert store._spool is not None
    store._spool.close()
    rename, renamed = Path.rename, count()

    def killed(path: Path, to: Path) -> Path:
        if next(renamed):
            raise KeyboardInterrupt
        return rename(path, to)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            disk.move_aside(node.disk.folder / FILE, NOON)
    store = node.begin()
    store.record([fact(3)])
    node.drain(store)
    store.close()
    assert numbers_in(recorded(node.log).events) == [1, 2, 3]


def test_a_folder_put_back_to_an_earlier_state_gives_no_number_twice_after_a_boot(node: Node, tmp_path: Path) -> None:
    store = node.begin()
    store.record([fact(1)])
    store.close()
    shutil.copytree(node.disk.folder, tmp_path / "snapshot")
    store = node.begin()
    store.record([fact(2)])
    node.drain(store)
    store.close()
    node.disk.folder = tmp_path / "snapshot"
    store = node.begin(boot="b2")
    store.record([fact(3)])
    node.drain(store)
    store.close()
    found = recorded(node.log)
    assert numbers_in(found.events) == [1, 2, 3]
    assert [(event.epoch, event.number) for event in found.events if event.epoch != "e1"] == [("e2", 1), ("e2", 2)]


@pytest.mark.parametrize(("outages", "events", "waiting_max"), [(1, 190, 72), (6, 70, 72), (12, 10, 9)])
def test_no_epoch_gets_more_holes_than_its_readers_bear(
    node: Node, outages: int, events: int, waiting_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * numbering.EPOCH_AT_RISK_MAX <= deduplication.HOLES_MAX
    monkeypatch.setattr(numbering, "EPOCH_AT_RISK_MAX", 30)
    monkeypatch.setattr(deduplication, "HOLES_MAX", 30)
    numbers = count(1)
    store = node.begin(
        sizes=DEFAULT_SIZES._replace(spool=QueueBounds(waiting_max, 1 << 20), batch=QueueBounds(3, 1 << 20))
    )
    for _ in range(outages):
        for _ in range(events):
            store.record([fact(next(numbers), priority=0), fact(next(numbers), priority=2)])
        node.drain(store)
    store.close()
    fold = Fold(SourcesProjection(), 1)
    for sequence, message in enumerate(node.log, 1):
        fold.apply(Message(message.subject, message.data, sequence, sequence))
    assert not [event for event in fold.decided if isinstance(event.data, SourceRejected)]
    assert fold.events == len(node.log) >= waiting_max
    found = recorded(node.log)
    missing = sum(map(len, found.missing.values()))
    assert 0 < missing <= sum(one.count for drops in found.dropped.values() for one in drops)


@pytest.mark.parametrize("trouble", ["full", "closed"])
def test_a_run_that_never_got_to_the_disk_and_was_killed_leaves_no_word_that_all_was_well(
    node: Node, tmp_path: Path, trouble: str
) -> None:
    node.begin(shaky=True).close()
    setattr(node.disk, trouble, True)
    store = node.begin(shaky=True)
    store.record([fact(1)])
    assert not store.status.durable
    node.disk.crash(tmp_path / "crashed")
    setattr(node.disk, trouble, False)
    if store._spool is not None:
        store._spool.close()
    store = node.begin(shaky=True)
    node.drain(store)
    store.close()
    starts = [event.data for event in recorded(node.log).events if isinstance(event.data, NodeAgentStarted)]
    assert [start.clean for start in starts] == [False, False]


def test_an_end_on_a_disk_that_takes_nothing_is_no_clean_one(node: Node) -> None:
    store = node.begin(shaky=True)
    node.disk.full = True
    store.record([fact(1)])
    store.close()
    node.disk.full = False
    store = node.begin(shaky=True)
    node.drain(store)
    store.close()
    starts = [event.data for event in recorded(node.log).events if isinstance(event.data, NodeAgentStarted)]
    assert [start.clean for start in starts] == [False, False]


def test_a_file_that_is_gone_is_no_clean_end(node: Node) -> None:
    store = node.begin()
    store.record([fact(1)])
    store.close()
    (node.disk.folder / FILE).unlink()
    store = node.begin()
    node.drain(store)
    store.close()
    (start,) = recorded(node.log).events
    assert isinstance(start.data, NodeAgentStarted)
    assert (start.epoch, start.data.clean) == ("e2", False)


def test_a_clock_that_is_not_set_yet_turns_no_time_back() -> None:
    unset = datetime(1970, 1, 1, tzinfo=UTC)
    assert event_time(unset, NOON, unset) > NOON
    assert event_time(unset, None, unset) == unset
    assert event_time(NOON, NOON + timedelta(days=900), NOON) == NOON


def test_a_disk_that_gives_nothing_back_for_a_minute_is_waited_for(node: Node) -> None:
    store = node.begin(shaky=True)
    store.record([fact(1)])
    node.disk.unreadable = True
    for _ in range(READ_FAILURES_MAX - 1):
        with pytest.raises(DiskError):
            store.head()
    node.disk.unreadable = False
    node.drain(store)
    store.close()
    assert numbers_in(recorded(node.log).events) == [1]
    assert READ_FAILURES_MAX > 10


async def test_what_arrives_while_the_last_is_found_sent_is_waited_for(node: Node) -> None:
    log, loop = Log(), asyncio.get_running_loop()
    async with outbox_of(node) as outbox:
        head, calm = outbox._store.head, []

        def overtaken() -> list[Entry]:
            calm.append(outbox._idle.is_set())
            entries = head()
            if not entries and len(calm) < 5:
                loop.call_soon_threadsafe(outbox._notify)
            return entries

        outbox._store.head = overtaken  # type: ignore[method-assign]
        task = asyncio.create_task(outbox.run(log.connect))
        await outbox.drained()
        task.cancel()
        assert calm == [False] * len(calm)
        assert len(calm) >= 5


async def test_what_fails_to_be_stored_is_stored_for_nobody(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    async with outbox_of(node) as outbox:
        with monkeypatch.context() as patched:
            patched.setattr(outbox._store, "record", lambda _: 1 / 0)
            recorded = [asyncio.create_task(outbox.record([fact(number)])) for number in (1, 2)]
            results = await asyncio.gather(*recorded, return_exceptions=True)
        assert [type(result) for result in results] == [ZeroDivisionError] * 2
        await outbox.record([fact(3)])
        assert outbox.status.waiting == 4


def outbox_of(node: Node) -> AbstractAsyncContextManager[Outbox]:
    return open_outbox(node.disk.folder, NODE, version="1.0", hardware="simulated", boot=BOOT)

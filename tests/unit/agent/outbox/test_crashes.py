"""An outbox whose disk fails, or whose process is killed, at every single call of SQLite in turn."""

import sqlite3
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from gpuledger.agent.outbox.drop import UNREADABLE
from gpuledger.agent.outbox.errors import DiskError
from gpuledger.agent.outbox.spool import open_spool
from gpuledger.agent.outbox.store import DISK_RETRY_S, OutboxStore
from gpuledger.ledger.api import Outgoing
from support.outbox import SMALL, Disk, Time, fact, numbers_in, recorded, store_on
from support.servers import MEMORY

CODES: Final = {"full": sqlite3.SQLITE_FULL, "io": sqlite3.SQLITE_IOERR, "damaged": sqlite3.SQLITE_CORRUPT}

ROUNDS_MAX: Final = 30
"""More batches never wait here."""


class Killed(BaseException):
    """The process ends here."""


class Trap:
    """Counts the calls of SQLite, and does its harm from one of them on, so many times."""

    def __init__(self, at: int, kind: str, times: int) -> None:
        self.at, self.kind, self.times, self.calls = at, kind, times, 0

    def spring(self) -> None:
        self.calls += 1
        if self.at <= self.calls < self.at + self.times:
            if self.kind == "kill":
                raise Killed
            error = sqlite3.OperationalError(self.kind)
            error.sqlite_errorcode = CODES[self.kind]
            raise error


class Trapped(sqlite3.Connection):
    """A connection whose calls may fail before anything is done."""

    trap: Trap

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if sql != "ROLLBACK":
            self.trap.spring()
        return super().execute(sql, *arguments)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        self.trap.spring()
        return super().executemany(sql, rows)


class Life:
    """An agent's days: it tells, the ledger is away and back, the queue is too short, the agent ends and begins."""

    def __init__(self, root: Path) -> None:
        self.disk, self.time, self.epochs = Disk(root / "0"), Time(), count(1)
        self.disk.open = open_spool  # type: ignore[method-assign]
        self.recorded: list[int] = []
        self.safe: set[int] = set()
        self.log: list[Outgoing] = []
        self.numbers = count(1)
        self.store = self.opened()
        self.lives = count(1)
        self.root = root

    def opened(self) -> OutboxStore:
        store = store_on(self.disk, self.time, sizes=SMALL, epochs=self.epochs)
        store.open()
        return store

    def steps(self) -> Iterator[None]:
        """One after the other; what was done before a step counts as done."""
        for priorities in ((2, 2), (1, 0, 2), (2,)):
            self.record(*priorities)
            yield
        self.publish(acknowledged=False)
        yield
        self.publish()
        self.store.put("name", b"value")
        yield
        for _ in range(5):
            self.record(2, 0, 1, 2)
            yield
        while self.publish():
            yield
        self.record(2, 2, 2, 2)
        self.refuse()
        yield
        self.time.go(DISK_RETRY_S)
        self.store.check()
        yield
        self.store.close()
        self.store = self.opened()
        self.record(2)
        yield

    def record(self, *priorities: int) -> None:
        numbers = [next(self.numbers) for _ in priorities]
        self.recorded += numbers
        self.store.record([fact(n, at=self.time.now, priority=p) for n, p in zip(numbers, priorities, strict=True)])
        if self.store.status.durable:
            self.safe |= set(numbers)

    def publish(self, *, acknowledged: bool = True) -> bool:
        try:
            entries = self.store.head()
        except DiskError:
            return True
        self.log += [entry.message for entry in entries]
        if acknowledged:
            self.store.acknowledged(entries)
        return bool(entries)

    def refuse(self) -> None:
        try:
            entries = self.store.head()
        except DiskError:
            return
        if entries:
            self.store.refuse(entries[0])

    def killed(self) -> None:
        """The process is gone; another begins on what the disk has."""
        self.disk.crash(self.root / str(next(self.lives)))
        self.store = self.opened()

    def end(self) -> None:
        for _ in range(ROUNDS_MAX):
            if not self.publish() and self.store.status.durable:
                break
            self.time.go(DISK_RETRY_S)
            self.store.check()
        assert (self.store.status.durable, self.store.status.waiting) == (True, 0)
        self.store.close()


@pytest.mark.parametrize(
    ("kind", "times", "step"), [("kill", 1, 1), ("full", 1, 2), ("full", 4, 5), ("io", 2, 3), ("damaged", 1, 2)]
)
def test_a_call_that_fails_loses_nothing_pending(
    kind: str, times: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=Trapped, **kwargs))
    for at in count(1, step):
        Trapped.trap = trap = Trap(1 << 60, kind, times)
        with tempfile.TemporaryDirectory(prefix="gl-", dir=MEMORY if MEMORY.is_dir() else None) as root:
            life = Life(Path(root))
            trap.calls, trap.at = 0, at
            try:
                for _ in life.steps():
                    pass
            except Killed:
                life.killed()
            if trap.calls < at:
                return
            life.end()
            check(life, at)


def check(life: Life, at: int) -> None:
    found = recorded(life.log)
    numbers = numbers_in(found.events)
    for epoch in {event.epoch for event in found.events}:
        of_epoch = numbers_in(event for event in found.events if event.epoch == epoch)
        assert of_epoch == sorted(of_epoch), (at, "in order")
    every = [one for drops in found.dropped.values() for one in drops]
    # What says that something was dropped may be lost with a damaged file; the range that is told then covers it.
    dropped = sum(one.last - one.first + 1 if one.reason == UNREADABLE else one.count for one in every)
    missing = set(life.recorded) - set(numbers)
    assert len(missing & life.safe) <= dropped, (at, missing & life.safe, found.dropped, found.missing)
    for epoch, numbers_missing in found.missing.items():
        drops = found.dropped.get(epoch, [])
        assert all(any(one.first <= n <= one.last for one in drops) for n in numbers_missing), (at, epoch, drops)

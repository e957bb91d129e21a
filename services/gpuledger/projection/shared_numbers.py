"""Keeps the numbers seen that the projections of a process share: loads them, brings them forward, writes them.

Whatever is stored can be found again by reading the log from its start, so a process never relies on it: numbers that
are not of this log are begun anew. Several processes may write, each what it has seen since it last did; what one of
them has written further is left alone by the others.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import psycopg
import structlog

from gpuledger.db.engine import DATABASE_TRANSIENT, AsyncConnection, connect
from gpuledger.db.errors import DatabaseError
from gpuledger.db.locks import lock_until_commit
from gpuledger.domain.sources.deduplication import HolesError, Seen
from gpuledger.events.position import ORIGIN, Offset, is_at_or_after, is_origin, is_same, lag, latest
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogChangedError
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.projection.checker import numbered_event
from gpuledger.projection.definition import Projection
from gpuledger.projection.log_numbers import LogNumbers, NumbersChange
from gpuledger.projection.seen_store import (
    StoredNumbers,
    delete_numbers,
    read_refused,
    read_seen,
    read_seen_of_older_builds,
    read_stored,
    write_numbers,
)
from gpuledger.runtime.tasks import within

WRITE_INTERVAL_S: Final = 10.0
"""How long numbers may be unwritten; a process that begins again reads what was recorded since."""

WRITE_EVENTS_MAX: Final = 100_000
"""After so many events numbers are written even before, which bounds what is read again."""

CHECK_INTERVAL_S: Final = 1.0
"""How often it is looked whether there are as many."""

LAST_WRITE_MAX_S: Final = 0.8
"""How long an orderly end waits for the last write; whoever ends a task interrupts it after a second."""

LOCK: Final = "numbers seen"
"""The lock of who writes."""

log = structlog.get_logger("gpuledger.projection")


class SharedNumbers:
    """The numbers seen of one ledger, for the projections of a process."""

    def __init__(self, ledger: Ledger, database_url: str, projections: Sequence[Projection] = ()) -> None:
        """`projections` are those whose older builds may have left numbers."""
        self._ledger = ledger
        self._database_url = database_url
        self._older = [(one.name, version) for one in projections for version in one.same_rows_as]
        self._numbers: LogNumbers | None = None
        self._stored: StoredNumbers | None = None
        self._is_whole = False
        self._one_at_a_time = asyncio.Lock()

    async def at(self, position: Offset) -> LogNumbers:
        """Numbers that say of every event behind a position whether it counts.

        They are the shared ones, unless these do not know which events behind the position did not count: then they
        are read from the start of the log, for the caller alone.

        Raises:
            LogChangedError: the log ends before the position.
            LedgerUnavailableError: it cannot be read.
        """
        async with self._one_at_a_time:
            if self._numbers is None or not await self._is_followed(self._numbers):
                self._numbers = await self._load()
            shared = self._numbers
            if is_at_or_after(position, shared.complete_from):
                await read_on(shared, self._ledger, position)
                return shared
        alone = LogNumbers()
        await read_on(alone, self._ledger, position)
        return alone

    async def write(self) -> None:
        """Write what changed, where nobody has written more.

        Raises:
            DatabaseError: PostgreSQL does not answer; it is written the next time.
        """
        async with self._one_at_a_time:
            if self._numbers is not None and not self._numbers.is_stale:
                await self._write(self._numbers)

    async def keep_written(self) -> None:
        """Write from time to time, until cancelled, and then once more: the next process reads nothing again."""
        try:
            await self._write_at_intervals()
        except asyncio.CancelledError:
            await self._write_last()
            raise

    async def _write_last(self) -> None:
        """Write what is left; where that fails or takes too long, the next process reads it again."""
        try:
            await within(LAST_WRITE_MAX_S, self.write())
        except (TimeoutError, DatabaseError, psycopg.Error) as error:
            log.warning("numbers.not-written-at-end", reason=str(error).strip() or "PostgreSQL is too slow")

    async def _write_at_intervals(self) -> None:
        now = asyncio.get_running_loop().time
        due_s = now() + WRITE_INTERVAL_S
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if now() < due_s and not self._has_many():
                continue
            due_s = now() + WRITE_INTERVAL_S
            try:
                await self.write()
            except DATABASE_TRANSIENT as error:
                log.warning("numbers.not-written", reason=str(error).strip(), retry_s=WRITE_INTERVAL_S)

    async def offer(self, seen: Seen, anchor: Anchor) -> None:
        """Store numbers that somebody has found by reading the log up to an anchor, where there are none of this log.

        Else the next process would read it once more.
        """
        seen.renew()
        stored = self._named(anchor.sequence, anchor, anchor.sequence)
        change = NumbersChange(*stored[2:], [], seen.take_changes(), [])
        async with self._connected() as connection:
            await lock_until_commit(connection, LOCK)
            found = await read_stored(connection)
            if found is not None and found.is_of(self._ledger.identity) and await holds(self._ledger, found.anchor):
                return
            await delete_numbers(connection)
            await write_numbers(connection, stored, change)

    async def _load(self) -> LogNumbers:
        """What is stored, as far as it is of this log; else those that older builds left, which are stored at once."""
        identity, older = self._ledger.identity, None
        numbers = LogNumbers()
        async with self._connected() as connection:
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            stored = await read_stored(connection)
            if stored is None and self._older:
                older = await read_seen_of_older_builds(connection, identity, self._older)
            if older is not None:
                numbers = LogNumbers(older[1], *older[0][2:])
            else:
                numbers = await stored_numbers(connection, identity) or numbers
        if not await self._is_followed(numbers):
            numbers, older = LogNumbers(), None
        self._stored, self._is_whole = stored, older is not None or is_origin(numbers.position)
        if older is not None:
            numbers.seen.renew()
            await self._write(numbers)
        return numbers

    async def _is_followed(self, numbers: LogNumbers) -> bool:
        """Whether the log is the one that the numbers are of."""
        if not numbers.is_stale:
            numbers.is_stale = not await holds(self._ledger, numbers.anchor)
        return not numbers.is_stale

    async def _write(self, numbers: LogNumbers) -> None:
        before, written = self._stored, None
        is_written = not self._is_whole and before is not None and is_same(numbers.position, before.position)
        if is_written or is_origin(numbers.position):
            return
        change = numbers.take_changes()
        try:
            async with self._connected() as connection:
                written = await self._write_change(connection, numbers, change)
        except BaseException:
            numbers.put_back(change)
            raise
        if written is None:
            numbers.put_back(change)
        else:
            self._stored, self._is_whole = written, False

    async def _write_change(
        self, connection: AsyncConnection, numbers: LogNumbers, change: NumbersChange
    ) -> StoredNumbers | None:
        """What is stored now; None where nothing was written, because somebody else has written more or another log."""
        await lock_until_commit(connection, LOCK)
        ours = self._named(change.position, change.anchor, change.complete_from)
        found = await read_stored(connection)
        if found == self._stored:
            if self._is_whole:
                await delete_numbers(connection)
        elif found is None or not found.is_of(self._ledger.identity) or not self._has_all_since(found):
            numbers.is_stale = True
            return None
        elif is_at_or_after(found.position, ours.position):
            return None
        else:
            ours = ours._replace(complete_from=latest([ours.complete_from, found.complete_from]))
        await write_numbers(connection, ours, change)
        return ours

    def _named(self, position: Offset, anchor: Anchor | None, complete_from: Offset) -> StoredNumbers:
        generation = self._ledger.generations.of(position)
        return StoredNumbers(self._ledger.identity.ledger_id, generation, position, anchor, complete_from)

    def _has_all_since(self, found: StoredNumbers) -> bool:
        """Whether what changed here holds everything that is not in what another process has written."""
        return self._is_whole or (self._stored is not None and is_at_or_after(found.position, self._stored.position))

    def _has_many(self) -> bool:
        numbers, stored = self._numbers, self._stored
        written = ORIGIN if stored is None else stored.position
        return numbers is not None and lag(written, numbers.position) >= WRITE_EVENTS_MAX

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        """A transaction over a connection of its own."""
        async with (
            connect(self._database_url, application_name="gpuledger numbers") as connection,
            connection.transaction(),
        ):
            yield connection


async def stored_numbers(connection: AsyncConnection, identity: LedgerIdentity) -> LogNumbers | None:
    """The numbers that are stored, None if there are none of this log; the connection is in a snapshot."""
    stored = await read_stored(connection)
    if stored is None or not stored.is_of(identity):
        return None
    return LogNumbers(await read_seen(connection), *stored[2:], await read_refused(connection))


async def holds(ledger: Ledger, anchor: Anchor | None) -> bool:
    """Whether a log is the one that numbers with this anchor are of."""
    try:
        await ledger.confirm(anchor)
    except LogChangedError:
        return False
    return True


async def read_on(numbers: LogNumbers, ledger: Ledger, until: Offset) -> None:
    """Bring numbers forward to a position, unless they are further; raises as `Ledger.history` does."""
    if is_at_or_after(numbers.position, until):
        return
    async for messages in ledger.history(after=numbers.position, until=until):
        for message in messages:
            with suppress(HolesError):
                numbers.is_new(message, numbered_event(message))
        await asyncio.sleep(0)

"""One edition of a projection's rows in PostgreSQL, with its checkpoint.

Rows, checkpoint and outbox change in one transaction or not at all.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

from psycopg import AsyncConnection
from psycopg.sql import SQL

from gpuledger.db.locks import lock_until_commit
from gpuledger.events.envelope import Decoded, decode, encode, nats_subject_of
from gpuledger.events.position import ORIGIN, PARTITION, Generations, Offset, Position, number_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.identity import Anchor, LedgerIdentity
from gpuledger.projection.checker import Checked
from gpuledger.projection.checkpoint import CHECKPOINT_COLUMNS, LIVE, Checkpoint, checkpoint_of, schema_of
from gpuledger.projection.definition import NOT_PUBLISHED, Numbering, Projection
from gpuledger.projection.enforced_store import read_rules, write_rules
from gpuledger.projection.errors import WriterFencedError
from gpuledger.projection.fold import Fold
from gpuledger.projection.log_numbers import LogNumbers
from gpuledger.projection.month_tables import MonthTables, drop_any_month
from gpuledger.projection.outbox import UNSETTLED, ready_decisions
from gpuledger.projection.paging import fold_paged, page_in
from gpuledger.projection.rows import Piece, RowStore, columns_of, is_copied
from gpuledger.runtime.clock import NewId, random_id


class Decider(NamedTuple):
    """A decider's own numbering; what it decides up to `settle_until` is held back until it has seen its own past."""

    epoch: str
    next_number: int
    settle_until: Offset


class ProjectionStore:
    """Reads and writes one edition of one projection over the caller's connection."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        projection: Projection,
        edition: str = LIVE,
        *,
        new_id: NewId = random_id,
    ) -> None:
        self.connection = connection
        self.projection = projection
        self.edition = edition
        self._new_id = new_id
        self._rows: dict[str, RowStore[Any]] = {
            spec.name: RowStore(spec, schema_of(edition)) for spec in projection.specs
        }

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """A transaction that sees one moment, so that a swap beside it cannot mix two editions.

        No month is dropped meanwhile, which an older moment would see as empty.
        """
        async with self.connection.transaction():
            await self.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            by_month = [rows.table for rows in self._rows.values() if rows.months is not None]
            if by_month:
                lock = SQL("LOCK TABLE {} IN ACCESS SHARE MODE")  # no statement of it sees anything yet
                await self.connection.execute(lock.format(SQL(", ").join(by_month)))
            yield

    async def checkpoint(self, *, lock: bool = False) -> Checkpoint | None:
        """The edition's checkpoint, or None where it was never built; `lock` keeps its writer waiting."""
        query = f"SELECT {CHECKPOINT_COLUMNS} FROM gpuledger.projection WHERE name = %s AND edition = %s"  # noqa: S608
        query = f"{query} FOR UPDATE" if lock else query
        row = await (await self.connection.execute(query, self._key)).fetchone()
        return None if row is None else checkpoint_of(row)

    async def hold_beginning(self) -> None:
        """Keep everybody else from beginning the projection until the transaction under way ends.

        Where nothing was built there is no row that `checkpoint` could lock.
        """
        await lock_until_commit(self.connection, f"begin:{self.projection.name}")

    async def create(self, identity: LedgerIdentity, incarnation: str) -> Checkpoint:
        """Begin an edition at the start of the log; its tables must be there and empty."""
        version, ledger_id = self.projection.version, identity.ledger_id
        generation = identity.generations.first
        await self.connection.execute(
            "INSERT INTO gpuledger.projection "
            "(name, edition, version, generation, partition, position, events, incarnation, ledger_id) "
            "VALUES (%s, %s, %s, %s, %s, %s, 0, %s, %s)",
            (*self._key, version, generation, PARTITION, ORIGIN, incarnation, ledger_id),
        )
        return Checkpoint(version, generation, ORIGIN, 0, incarnation, ledger_id, None)

    async def adopt(self, before: Checkpoint, ledger_id: str, anchor: Anchor | None) -> Checkpoint:
        """Have a checkpoint that an earlier build wrote name its ledger and the last event that was folded.

        Raises:
            WriterFencedError: the rows are not as they were when the checkpoint was read.
        """
        after = before._replace(ledger_id=ledger_id, anchor=anchor)
        await self._advance(before, after)
        return after

    async def adopt_version(self, before: Checkpoint) -> Checkpoint:
        """Have rows that an older build wrote be of this version, which has the same; that build stands aside then.

        The numbers that it kept with these rows go, because nobody keeps them any more.

        Raises:
            WriterFencedError: the rows are not as they were when the checkpoint was read.
        """
        after = before._replace(version=self.projection.version)
        async with self.connection.transaction():
            await self._advance(before, after)
            await self.connection.execute(
                "DELETE FROM gpuledger.seen WHERE projection = %s AND edition = %s", self._key
            )
        return after

    @property
    def names(self) -> Sequence[str]:
        """The tables."""
        return list(self._rows)

    async def fill(self, table: str, pieces: AsyncIterator[Piece], ours: Checkpoint) -> None:
        """Write all rows of a table that is empty; see `RowStore.fill`. Raises as `flush`."""
        await self._rows[table].fill(self.connection, pieces, lambda: self.session_of(ours))

    async def empty(self) -> None:
        """Remove every row of every table."""
        for rows in self._rows.values():
            await rows.empty(self.connection)

    async def load(
        self,
        checkpoint: Checkpoint,
        generations: Generations,
        numbers: LogNumbers,
        skipped: Iterable[Position],
        expected: Sequence[Decoded],
    ) -> Fold:
        """The fold as it stood at the checkpoint, with numbers that hold there; raises as `read_rules` does."""
        fold = Fold(
            self.projection,
            generations,
            numbers=numbers,
            expected=expected,
            skipped=skipped,
            numbering=await self._numbering(expected),
            sequence=checkpoint.position,
            enforced=await read_rules(self.connection, *self._key, checkpoint.generation),
        )
        for name, table in fold.state.tables().items():
            async for rows in self._rows[name].live(self.connection):
                table.load(rows)
        return fold

    async def fold(self, fold: Fold, batch: Sequence[Checked]) -> None:
        """Fold messages, with the retired rows that they touch; raises as `Fold.apply_all`."""
        await fold_paged(fold, batch, lambda touched: page_in(self.connection, self._rows, fold.state, touched))

    async def drop_any_month(self) -> None:
        """Drop what takes rows of any month, once the edition was begun: from now on each month is made."""
        for rows in self._rows.values():
            if rows.months is not None:
                await drop_any_month(self.connection, schema_of(self.edition), rows.spec.name)

    def months(self, table: str) -> MonthTables | None:
        """The months of a table, if it has some."""
        return self._rows[table].months

    def forget_months(self) -> None:
        """Look again which months there are: see `MonthTables.forget`."""
        for rows in self._rows.values():
            if rows.months is not None:
                rows.months.forget()

    async def flush(self, fold: Fold, before: Checkpoint, *, status: str = "ready") -> Checkpoint:
        """Write what changed since the last flush, and the checkpoint, in one transaction.

        Raises:
            WriterFencedError: the rows are not as this writer left them.
        """
        anchor = fold.anchor or before.anchor
        after = before._replace(
            generation=fold.generation, position=fold.sequence, events=fold.events + before.events, anchor=anchor
        )
        changes = {name: table.take_changes() for name, table in fold.state.tables().items() if table.has_changes()}
        async with self._transaction(in_pipeline=not any(map(is_copied, changes.values()))):
            await self._advance(before, after)
            for name, changed in changes.items():
                await self._rows[name].write(self.connection, changed)
            await write_rules(self.connection, *self._key, fold.enforced)
            if self.projection.decides and self.edition == LIVE:
                await self._write_decisions(fold, status)
        fold.events = 0
        return after

    async def decider(self) -> Decider | None:
        """The decider's numbering, or None if it never decided."""
        cursor = await self.connection.execute(
            "SELECT epoch, next_number, settle_until FROM gpuledger.decider WHERE projection = %s",
            (self.projection.name,),
        )
        row = await cursor.fetchone()
        return None if row is None else Decider(*row)

    async def begin_epoch(self, epoch: str, head: Offset) -> Offset:
        """Begin an epoch of the decider, before it decides anything; returns its `settle_until`.

        An earlier build did not note where it has recorded a decision, which is within the log, whose head is given.
        """
        await self.checkpoint(lock=True)
        cursor = await self.connection.execute(
            "UPDATE gpuledger.decider SET epoch = %s, next_number = 1 WHERE projection = %s RETURNING settle_until",
            (epoch, self.projection.name),
        )
        row = await cursor.fetchone()
        assert row is not None, "a decider has a numbering from its beginning"
        await self.connection.execute(
            "UPDATE gpuledger.outbox SET sequence = %s WHERE projection = %s AND status = 'sent' AND sequence IS NULL",
            (head, self.projection.name),
        )
        return number_of(row[0])

    async def create_decider(self, decider: Decider) -> None:
        """Begin a decider's numbering anew, with an empty outbox."""
        name = self.projection.name
        await self.connection.execute("DELETE FROM gpuledger.outbox WHERE projection = %s", (name,))
        await self.connection.execute(
            "INSERT INTO gpuledger.decider (projection, epoch, next_number, settle_until) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (projection) DO UPDATE SET epoch = excluded.epoch, next_number = excluded.next_number, "
            "settle_until = excluded.settle_until",
            (name, *decider),
        )

    async def settle_at(self, head: Offset) -> None:
        """Hold decisions back until the rows are true up to `head`, where that was left open."""
        await self.connection.execute(
            "UPDATE gpuledger.decider SET settle_until = %s WHERE projection = %s AND settle_until = %s",
            (head, self.projection.name, UNSETTLED),
        )

    async def outbox(self) -> list[Decoded]:
        """The decisions that have not come back from the ledger, in order."""
        return [decode(bytes(data)) for (data,) in await self._outbox_rows("data", ("held", "ready", "sent"))]

    async def ready(self, ours: Checkpoint) -> dict[str, Outgoing]:
        """What these rows have decided and has to be published: see `ready_decisions`. Raises as `flush`."""
        ready = await ready_decisions(self.connection, self.projection.name, ours.incarnation)
        if ready is None:
            raise self._fenced()
        return ready

    async def session_of(self, ours: Checkpoint) -> int:
        """The number of the session that answers, if nobody swapped the rows. Raises as `flush`."""
        cursor = await self.connection.execute(
            "SELECT incarnation, pg_backend_pid() FROM gpuledger.projection WHERE name = %s AND edition = %s", self._key
        )
        row = await cursor.fetchone()
        if row is None or row[0] != ours.incarnation:
            raise self._fenced()
        return int(row[1])

    async def hold(self, ours: Checkpoint) -> None:
        """Keep everybody else from writing or swapping these rows until the transaction ends. Raises as `flush`."""
        found = await self.checkpoint(lock=True)
        if found is None or found.incarnation != ours.incarnation:
            raise self._fenced()

    async def release_held(self, ours: Checkpoint) -> tuple[list[Decoded], Numbering]:
        """Let go what was held back while the decider had not seen all of its own past; returns it, and what follows.

        It is numbered only now, because most of it came back meanwhile and needs none any more; raises as `flush`.
        """
        async with self.connection.transaction():
            await self.hold(ours)
            decider = await self.decider()
            assert decider is not None, "a decider has a numbering from its beginning"
            held = [decode(bytes(data)) for (data,) in await self._outbox_rows("data", ("held",))]
            numbered = [
                event._replace(epoch=decider.epoch, number=number)
                for number, event in enumerate(held, decider.next_number)
            ]
            following = Numbering(decider.epoch, decider.next_number + len(numbered))
            if numbered:
                await self.delete_decisions([event.id for event in numbered])
                await self.put_outbox(numbered, "ready")
                await self.write_numbering(following)
        return numbered, following

    async def mark_sent(self, sequences: Mapping[str, Offset]) -> None:
        """Note where these decisions, by their ids, are in the ledger."""
        await self.connection.execute(
            "UPDATE gpuledger.outbox SET status = 'sent', sequence = recorded.sequence "
            "FROM unnest(%s::text[], %s::bigint[]) AS recorded (id, sequence) "
            "WHERE projection = %s AND outbox.id = recorded.id",
            (list(sequences), list(sequences.values()), self.projection.name),
        )

    async def put_outbox(
        self, decisions: Iterable[Decoded], status: str, encodings: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        """Put decisions into the outbox, each with the id under which it will be published.

        `encodings` has what some are encoded as, by their ids.
        """
        rows = [
            (one.id, nats_subject_of(one), (encodings.get(one.id) or encode(one)).decode(), one.number, self._new_id())
            for one in decisions
        ]
        if not rows:
            return
        await self.connection.execute(
            "INSERT INTO gpuledger.outbox (projection, id, subject, data, number, status, message_id) "
            "SELECT %s, id, subject, convert_to(data, 'UTF8'), number, %s, message_id "
            "FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[]) "
            "AS decided (id, subject, data, number, message_id) ON CONFLICT (projection, id) DO NOTHING",
            (self.projection.name, status, *columns_of(rows)),
        )

    @property
    def _key(self) -> tuple[str, str]:
        return (self.projection.name, self.edition)

    @asynccontextmanager
    async def _transaction(self, *, in_pipeline: bool) -> AsyncIterator[None]:
        """A transaction; in a pipeline its statements do not wait for each other's answers."""
        async with AsyncExitStack() as stack:
            if in_pipeline:
                await stack.enter_async_context(self.connection.pipeline())
            await stack.enter_async_context(self.connection.transaction())
            yield

    async def _advance(self, before: Checkpoint, after: Checkpoint) -> None:
        cursor = await self.connection.execute(
            "UPDATE gpuledger.projection SET version = %s, generation = %s, position = %s, events = %s, "
            "ledger_id = %s, last_position = %s, last_event_id = %s, last_digest = %s, updated_at = now() "
            "WHERE name = %s AND edition = %s AND incarnation = %s AND partition = %s AND position = %s "
            "RETURNING position",
            (
                *(after.version, after.generation, after.position, after.events, after.ledger_id),
                *(after.anchor or (None, None, None)),
                *(*self._key, before.incarnation, before.partition, before.position),
            ),
        )
        if await cursor.fetchone() is None:
            raise self._fenced()

    def _fenced(self) -> WriterFencedError:
        return WriterFencedError(f"The rows of projection {self.projection.name} were written by somebody else.")

    async def _numbering(self, expected: Sequence[Decoded]) -> Numbering:
        decider = await self.decider()
        if decider is None:
            return NOT_PUBLISHED
        behind_held = max((event.number for event in expected), default=0) + 1
        return Numbering(decider.epoch, max(decider.next_number, behind_held))

    async def _write_decisions(self, fold: Fold, status: str) -> None:
        encodings, decided, returned = fold.encodings, fold.take_decided(), fold.waiting.take_returned()
        if decided:
            await self.put_outbox(decided, status, encodings)
            if status != "held":
                await self.write_numbering(fold.numbering)
        if returned:
            await self.delete_decisions(returned)

    async def write_numbering(self, numbering: Numbering) -> None:
        """Note where the decider's numbering stands."""
        await self.connection.execute(
            "UPDATE gpuledger.decider SET next_number = %s WHERE projection = %s",
            (numbering.next_number, self.projection.name),
        )

    async def delete_decisions(self, ids: Sequence[str]) -> None:
        """Take decisions out of the outbox."""
        await self.connection.execute(
            "DELETE FROM gpuledger.outbox WHERE projection = %s AND id = ANY(%s)", (self.projection.name, list(ids))
        )

    async def _outbox_rows(self, columns: str, statuses: Sequence[str]) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(
            f"SELECT {columns} FROM gpuledger.outbox "  # noqa: S608 - our own words
            "WHERE projection = %s AND status = ANY(%s) ORDER BY number",
            (self.projection.name, list(statuses)),
        )
        return await cursor.fetchall()

"""Any query at any moment: now, on the live tables; in the past, on a fold of the log into temporary tables.

`--as-recorded` folds the log up to a position as a projection would, from the nearest snapshot on; `--at` folds the
facts up to a time, in the order of their times; both together, those of the log up to the position. Only the
projections whose tables the query reaches are folded, and nothing of the live tables is touched.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.reached import Reached, reached_by
from gpuledger.db.readonly import SEARCH_PATH, STATEMENT_TIMEOUT_S, query
from gpuledger.db.scratch import LIVE, REPORT, TEMPORARY, Scratch, refuse_present, session_settings, table_name
from gpuledger.db.sql_text import clock_words
from gpuledger.deciders.seals.projection import SealsProjection
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.event_index import INDEXED_EVENT
from gpuledger.domain.fact import PAGES_PER_EVENT_MAX, AbsentRowsError, Fact, State
from gpuledger.domain.inventory.facts import INVENTORY_REPORT_HOUR
from gpuledger.events.position import Generations, Offset, Position, earliest, events_up_to, is_after, is_same
from gpuledger.projection.checker import Checked
from gpuledger.projection.definition import Observed, Projection
from gpuledger.projection.errors import ScratchFullError
from gpuledger.projection.event_time import CollectedFacts, collector_of, fold_fact, in_log_order
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.begun_tables import begin_tables
from gpuledger.projection.paging import fold_paged
from gpuledger.projection.replay import recorded_at, skipped_positions
from gpuledger.projection.scratch_rows import ScratchRows, kept_tables
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.tools.errors import RequestError
from gpuledger.tools.queries.backend import Backend, all_projections, bring_current, read
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import PointInTime, sequence_of

SCRATCH_MIB_MAX: Final = 4096
"""How much room the past of one query may take, unless it is given another bound."""

DISCONNECTED_CHECK_S: Final = 2
"""How soon the server notices that the command is gone while a query runs."""

PRIMARY_FOLDS: Final = (
    "The past is folded into temporary tables, which a replica does not take: the server in DATABASE_URL answers."
)

IN_LOG_ORDER: Final = (SourcesProjection.name, SealsProjection.name)
"""Projections that are about recording, and follow the order of the log."""

ABOUT_RECORDING: Final = frozenset(
    (
        *(spec.name for kind in (SourcesProjection, SealsProjection) for spec in kind.specs),
        INVENTORY_REPORT_HOUR.name,
        INDEXED_EVENT.name,
    )
)
"""Tables that are about recording, and have no past in event time."""

_CHECK_CLIENT: Final = f"SET client_connection_check_interval = '{DISCONNECTED_CHECK_S}s'"


class Result(NamedTuple):
    """What a query returned; the names of columns differ from each other."""

    columns: list[str]
    rows: list[RowDict]


class Bounds(NamedTuple):
    """How long a query may run, and how much room its past may take."""

    timeout_s: int = STATEMENT_TIMEOUT_S
    scratch_mib_max: int = SCRATCH_MIB_MAX

    @property
    def bytes_max(self) -> int:
        """The room in bytes."""
        return self.scratch_mib_max * 2**20


BOUNDS: Final = Bounds()
"""The bounds of a query that is given none."""


async def result_now(backend: Backend, statement: str, bounds: Bounds = BOUNDS) -> Result:
    """The result of one read-only statement on the live tables, which are brought up to date first.

    Raises:
        QueryError: PostgreSQL refuses it, or it takes too long.
    """

    async def ask(connection: AsyncConnection) -> Result:
        return await _result(await query(connection, statement))

    await bring_current(backend)
    return await read(backend, ask, application_name="gpuledger sql", statement_timeout_s=bounds.timeout_s)


async def result_then(backend: Backend, statement: str, moment: PointInTime, bounds: Bounds = BOUNDS) -> Result:
    """The result of one query on the tables as they were at a moment.

    Raises:
        QueryError: PostgreSQL refuses it, it takes too long, or it reads what has no past.
        RequestError: there is no such moment, or it reads what has no past in event time.
        ScratchFullError: the past takes more room than it may.
    """
    if backend.replica is not None:
        backend.reporter.message(PRIMARY_FOLDS)
    until = await backend.ledger.head() if moment.recorded is None else await sequence_of(backend, moment.recorded)
    if words := clock_words(statement):
        backend.reporter.message(
            f"{', '.join(words)} in the query means the server's present; report.asked_at() is the moment asked for."
        )
    settings = session_settings()
    async with connect(backend.database_url, application_name="gpuledger sql", settings=settings) as connection:
        await _notice_disconnection(connection)
        reached = await reached_by(connection, statement, SEARCH_PATH)
        _check(reached, moment)
        return await _Past(backend, connection, reached, moment, until, bounds).result(statement)


def _check(reached: Sequence[Reached], moment: PointInTime) -> None:
    refuse_present([one for one in reached if one.schema not in (LIVE, REPORT)])
    for one in reached:
        if moment.at is not None and one.is_named and one.schema == LIVE and one.name in ABOUT_RECORDING:
            raise RequestError(
                f"{one.schema}.{one.name} is about recording and has no history in event time", "Use --as-recorded"
            )


async def _notice_disconnection(connection: AsyncConnection) -> None:
    """Have the server end a query whose command was killed; where its system cannot, the time limit does."""
    try:
        await connection.execute(_CHECK_CLIENT.encode())
    except psycopg.Error:
        return


async def _result(cursor: psycopg.AsyncCursor[tuple[Any, ...]]) -> Result:
    columns = distinct([column.name for column in cursor.description or ()])
    return Result(columns, [dict(zip(columns, row, strict=True)) for row in await cursor.fetchall()])


def distinct(names: Sequence[str]) -> list[str]:
    """The names with a number behind those that occur again, so that no column hides another."""
    found: dict[str, None] = {}
    for name in names:
        number, unique = 0, name
        while unique in found:
            number += 1
            unique = f"{name}_{number}"
        found[unique] = None
    return list(found)


class _Past:
    """One moment of the past, as far as a query reaches."""

    def __init__(
        self,
        backend: Backend,
        connection: AsyncConnection,
        reached: Sequence[Reached],
        moment: PointInTime,
        until: Offset,
        bounds: Bounds,
    ) -> None:
        self._backend = backend
        self._ledger = backend.ledger
        self._connection = connection
        self._moment = moment
        self._until = until
        self._bounds = bounds
        live = {one.name for one in reached if one.schema == LIVE}
        self._tables: Mapping[str, list[str]] = {
            projection.name: kept_tables(projection, live)
            for projection in all_projections()
            if any(spec.name in live for spec in projection.specs)
        }
        self._histories: dict[str, datetime] = {}
        self._scratch = Scratch(connection, reached, [name for names in self._tables.values() for name in names])

    async def result(self, statement: str) -> Result:
        """Fold, and run the query."""
        await self._scratch.create_tables()
        projections = [one for one in all_projections() if one.name in self._tables]
        with seldom_collected():
            if projections:
                await self._fold(projections)
        await self._scratch.create_views(await self._asked_at(), self._histories)
        cursor = await self._scratch.query(statement, self._bounds.timeout_s)
        try:
            return await _result(cursor)
        finally:
            if not self._connection.broken:
                await self._connection.rollback()
                await self._connection.execute("RESET ROLE")
                await self._connection.execute("DISCARD TEMP")  # a pooler would keep them with the session

    async def _asked_at(self) -> datetime:
        if self._moment.at is not None:
            return self._moment.at
        if isinstance(self._moment.recorded, datetime):
            return self._moment.recorded
        return await recorded_at(self._ledger, self._until)

    async def _fold(self, projections: Sequence[Projection]) -> None:
        at = self._moment.at
        skipped = await skipped_positions(self._ledger)
        with ExitStack() as stack:
            folds: list[tuple[Fold, ScratchRows | None]] = []
            collected: list[tuple[Projection, CollectedFacts]] = []
            for projection in projections:
                if at is None:
                    folds.append(await self._begun(projection, skipped))
                elif projection.name in IN_LOG_ORDER:
                    folded = in_log_order(projection, at)
                    fold = Fold(folded, self._ledger.generations, skipped=skipped, publishes=False)
                    folds.append((fold, self._rows_of(projection, fold.state)))
                else:
                    facts = stack.enter_context(CollectedFacts(at, self._bounds.bytes_max))
                    collector = collector_of(projection, facts)
                    folds.append((Fold(collector, self._ledger.generations, skipped=skipped, publishes=False), None))
                    collected.append((projection, facts))
            await self._read_log(folds)
            if at is None:  # in event time a fold has all facts
                for fold, _ in folds:
                    self._histories |= fold.enforced.in_force.histories
            for projection, facts in collected:
                await self._fold_in_order(projection, facts)

    async def _begun(self, projection: Projection, skipped: Sequence[Position]) -> tuple[Fold, ScratchRows]:
        """A fold in the order of the log and its tables: at the nearest snapshot where there is one."""
        snapshots = self._backend.snapshots
        loaded = await begin_tables(
            projection, snapshots, self._until, skipped, lambda found: self._rows_of(projection, found.fold.state)
        )
        if loaded is not None:
            return loaded.fold, self._rows_of(projection, loaded.fold.state)
        fold = Fold(projection, self._ledger.generations, skipped=skipped, publishes=False)
        return fold, self._rows_of(projection, fold.state)

    async def _read_log(self, folds: Sequence[tuple[Fold, ScratchRows | None]]) -> None:
        """Have each fold take what is behind its position; the first of them checks for all."""
        if not folds:
            return
        total, begin = events_up_to(self._until), earliest(*(fold.sequence for fold, _ in folds))
        first = next(fold for fold, _ in folds if is_same(fold.sequence, begin))
        for fold, _ in folds:
            fold.begin(self._ledger.identity)
        with self._backend.reporter.progress("Reading the log", total=total, unit="events") as advance:
            async for messages in self._ledger.history(after=begin, until=self._until):
                batch = first.check_all(messages)
                for fold, rows in folds:
                    at = fold.sequence
                    await _take([one for one in batch if is_after(one.message.sequence, at)], fold, rows)
                advance.to(events_up_to(messages[-1].sequence))
        for _, rows in folds:
            if rows is not None:
                await rows.flush()

    async def _fold_in_order(self, projection: Projection, facts: CollectedFacts) -> None:
        state = projection.new_state()
        rows, enforced = self._rows_of(projection, state), None
        description = f"Folding {projection.name} in the order of time"
        with self._backend.reporter.progress(description, total=len(facts), unit="facts") as advance:
            for batch in facts.in_order():
                if projection.pages:
                    found = [
                        one for _, item in batch if isinstance(item, Fact) for one in projection.touched(state, item)
                    ]
                    await rows.page_in(found)
                for rules, item in batch:
                    if rules is not enforced:
                        projection.follow_rules(state, rules)
                        enforced = rules
                    await _take_fact(projection, state, self._ledger.generations, item, rows)
                if rows.is_full:
                    await rows.flush()
                advance(len(batch))
        await rows.flush()

    def _rows_of(self, projection: Projection, state: Any) -> ScratchRows:  # noqa: ANN401 - each has its own state
        names = {name: table_name(name) for name in self._tables[projection.name]}
        return ScratchRows(self._connection, projection, state, TEMPORARY, names, self._check_room)

    async def _check_room(self) -> None:
        taken = await self._scratch.bytes()
        if taken > self._bounds.bytes_max:
            raise ScratchFullError("The tables of the past", taken, self._bounds.bytes_max)


async def _take_fact(
    projection: Projection, state: State, generations: Generations, item: Fact | Observed, rows: ScratchRows
) -> None:
    """Fold a fact in event time, with the retired rows that its handler turns out to need."""
    for _ in range(PAGES_PER_EVENT_MAX):
        try:
            return fold_fact(projection, state, generations, item)
        except AbsentRowsError as absent:
            await rows.page_in(absent.touched)
    return fold_fact(projection, state, generations, item)


async def _take(batch: Sequence[Checked], fold: Fold, rows: ScratchRows | None) -> None:
    """Fold messages, with the retired rows that they touch; nobody publishes what is decided."""
    if rows is None:
        fold.apply_all_checked(batch)
    else:
        await fold_paged(fold, batch, rows.page_in)
    fold.take_decided()
    fold.waiting.take_returned()
    if rows is not None and rows.is_full:
        await rows.flush()

"""What can be seen of the database: its server, its schema and every projection's rows. Changes nothing."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import psycopg

from gpuledger.cli.doctor.check import Check, failed, ok, warning
from gpuledger.db.engine import AsyncConnection, connect, place_of
from gpuledger.db.errors import DatabaseError
from gpuledger.db.locks import try_lock, unlock
from gpuledger.db.revision import HEAD_REVISION, check_connection
from gpuledger.db.views import READER_ROLE
from gpuledger.ledger.api import Position
from gpuledger.projection.definition import Projection
from gpuledger.projection.store import LIVE, NEXT, PREV, Checkpoint, Store, schema_of
from gpuledger.runtime.clock import Clock, system_clock

MAJOR_MIN = 15
SKEW_WARN_S = 1.0

_ROLE = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)"
_LEFT = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename = ANY(%s)"
_OUTBOX = "SELECT count(*) FROM gpuledger.outbox WHERE projection = %s AND status <> 'sent'"
_GAPS = "SELECT count(*) FROM gpuledger_live.gap WHERE closed_at IS NULL"


class DatabaseChecks:
    """Looks at a PostgreSQL server; `head` is the log's last position, where that is known."""

    def __init__(
        self, url: str, projections: Sequence[Projection], head: Position | None, clock: Clock = system_clock
    ) -> None:
        self._url = url
        self._projections = projections
        self._head = head
        self._clock = clock

    async def run(self) -> AsyncIterator[Check]:
        """The checks, as they are made."""
        try:
            async with connect(self._url, application_name="gpuledger doctor") as connection:
                yield _server(connection.info.server_version, place_of(self._url))
                yield await self._skew(connection)
                async for check in self._schema(connection):
                    yield check
        except (DatabaseError, psycopg.Error) as error:
            yield failed("postgresql server", str(error).strip())

    async def _skew(self, connection: AsyncConnection) -> Check:
        before = self._clock()
        theirs = await _one(connection, "SELECT clock_timestamp()")
        return skew_check(before, theirs, self._clock())

    async def _schema(self, connection: AsyncConnection) -> AsyncIterator[Check]:
        try:
            await check_connection(connection)
        except DatabaseError as error:
            yield failed("schema", str(error))
            return
        yield ok("schema", f"Revision {HEAD_REVISION}, as this build needs it")
        yield await _reader(connection)
        for projection in self._projections:
            async for check in self._projection(connection, projection):
                yield check
        yield await _gaps(connection)

    async def _projection(self, connection: AsyncConnection, projection: Projection) -> AsyncIterator[Check]:
        live = await Store(connection, projection, LIVE).checkpoint()
        kept = await Store(connection, projection, PREV).checkpoint()
        yield projection_check(projection, live, kept, self._head)
        if await _leftover(connection, projection):
            yield warning(
                f"rebuild of {projection.name}",
                f"Tables of an interrupted rebuild are left. `gpuledger replay {projection.name}` clears them.",
            )
        if projection.decides:
            yield outbox_check(projection.name, await _one(connection, _OUTBOX, [projection.name]))


def projection_check(
    projection: Projection, live: Checkpoint | None, kept: Checkpoint | None, head: Position | None
) -> Check:
    """Whether a projection's rows are of this build and of this log, and how far they are."""
    name = f"projection {projection.name}"
    if live is None:
        return warning(name, "It has no rows yet. `gpuledger up`, or whichever command needs them, makes them.")
    if live.version != projection.version:
        found = f"Its rows are of version {live.version}, this build writes {projection.version}."
        return failed(name, f"{found} Rebuild them with `gpuledger replay {projection.name}`.")
    position = Position(live.generation, live.position)
    if head is not None and live.generation != head.generation:
        found = f"Its rows follow generation {live.generation}, the log is at generation {head.generation}."
        return failed(name, f"{found} Rebuild them with `gpuledger replay {projection.name}`.")
    lag = "" if head is None else f", {max(0, head.sequence - live.position):,} events behind"
    before = "" if kept is None else f", rows of version {kept.version} kept from before the last rebuild"
    return ok(name, f"Version {live.version} at {position}{lag}{before}")


def outbox_check(projection: str, waiting: int) -> Check:
    """Whether decisions wait to be published."""
    if waiting:
        return warning(f"outbox of {projection}", f"{waiting:,} decisions wait. `gpuledger up` publishes them.")
    return ok(f"outbox of {projection}", "Nothing waits to be published")


def skew_check(before: datetime, theirs: datetime, after: datetime) -> Check:
    """Whether the database's clock agrees with ours; `before` and `after` are ours around the question."""
    skew_s = max((before - theirs).total_seconds(), (theirs - after).total_seconds(), 0.0)
    detail = f"PostgreSQL's clock and this machine's differ by {skew_s:.3f} s"
    if skew_s > SKEW_WARN_S:
        return warning("clock", f"{detail}. Synchronise both (NTP), or lag and gaps are misjudged.")
    return ok("clock", detail)


def _server(version: int, backend: str) -> Check:
    major = version // 10_000
    if major < MAJOR_MIN:
        return failed("postgresql server", f"Version {major} at {backend} is too old. Use {MAJOR_MIN} or newer.")
    return ok("postgresql server", f"Version {major}.{version % 10_000} at {backend}")


async def _reader(connection: AsyncConnection) -> Check:
    if await _one(connection, _ROLE, [READER_ROLE]):
        return ok("reader role", READER_ROLE)
    return warning("reader role", f"There is no {READER_ROLE}. Have an administrator run `gpuledger migrate`.")


async def _leftover(connection: AsyncConnection, projection: Projection) -> bool:
    """Whether tables of a rebuild are there that nobody works on."""
    tables = [spec.name for spec in projection.specs]
    cursor = await connection.execute(_LEFT.encode(), [schema_of(NEXT), tables])
    if await cursor.fetchone() is None:
        return False
    name = f"rebuild:{projection.name}"
    return await try_lock(connection, name) and await unlock(connection, name)


async def _gaps(connection: AsyncConnection) -> Check:
    found = await _one(connection, _GAPS)
    if found:
        return warning("gaps", f"{found:,} ranges of events are missing. See `gpuledger log gaps`.")
    return ok("gaps", "No source's events are missing")


async def _one(connection: AsyncConnection, query: str, values: Sequence[object] = ()) -> Any:  # noqa: ANN401 - any column
    row = await (await connection.execute(query.encode(), values)).fetchone()
    assert row is not None, "these questions always have an answer"
    return row[0]

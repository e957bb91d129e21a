"""Projections on real servers: databases with their tables, runners beside the test, and queries of their rows."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg

from gpuledger.db.json_columns import read_json_as_text
from gpuledger.db.migrate import migrate
from gpuledger.domain.table import TableSpec
from gpuledger.events.envelope import Decoded
from gpuledger.events.position import Offset, is_at_or_after, number_of
from gpuledger.events.publishing import Rule
from gpuledger.ledger.api import Ledger
from gpuledger.projection.checkpoint import CHECKPOINT_COLUMNS, Checkpoint, checkpoint_of
from gpuledger.projection.definition import Projection
from gpuledger.projection.row_statements import column_types
from gpuledger.projection.runner import Runner, RunnerSettings
from gpuledger.projection.verify import verify
from gpuledger.runtime.backoff import Backoff
from support.deciders import SPECS as TOY_SPECS
from support.events import outgoing
from support.sessions import session
from support.waiting import eventually

QUICK = RunnerSettings(
    tick_s=0.05, backoff=Backoff(first_s=0.02, max_s=0.2), beginnings=Backoff(first_s=0.02, max_s=0.2)
)

QUICK_SERVICE = replace(QUICK, rules=tuple(Rule))
"""As the services run, which enforce every rule."""

CANCEL_AGAIN_S = 1.0
"""How long a task has to end before it is cancelled again."""


def prepare(database_url: str) -> str:
    """Migrate the database, and give the toy decider its table."""
    migrate(database_url)
    for spec in TOY_SPECS:
        execute(database_url, _create(spec))
    return database_url


def _create(spec: TableSpec[Any]) -> str:
    columns = [f"{name} {kind}" for name, kind in zip(spec.columns, column_types(spec.row), strict=True)]
    return f"CREATE TABLE gpuledger_live.{spec.name} ({', '.join(columns)}, PRIMARY KEY ({', '.join(spec.key)}))"


def execute(database_url: str, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    """What a statement returns, if anything."""
    cursor = session(database_url).execute(statement.encode(), arguments)
    return cursor.fetchall() if cursor.description else []


def dead_rows_kept(database_url: str, table_name: str) -> int:
    """How many dead rows VACUUM has to leave in a table, because a snapshot somewhere may still see them."""
    notices: list[str] = []
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        connection.execute(f"VACUUM (VERBOSE) {table_name}".encode())
    (kept,) = re.findall(r"(\d+) are dead but not yet removable", "\n".join(notices))
    return int(kept)


async def publish(ledger: Ledger, events: Iterable[Decoded]) -> int:
    """Record events; returns the sequence of the last one."""
    receipts = await ledger.publish_many([outgoing(event) for event in events])
    return number_of(receipts[-1].sequence)


async def checkpoint(database_url: str, projection: str, edition: str = "live") -> Checkpoint | None:
    """The projection's checkpoint."""
    rows = execute(
        database_url,
        f"SELECT {CHECKPOINT_COLUMNS} FROM gpuledger.projection WHERE name = %s AND edition = %s",
        projection,
        edition,
    )
    return checkpoint_of(rows[0]) if rows else None


async def reaches(database_url: str, projection: str, position: Offset) -> None:
    """Return when the projection's rows are true up to a position."""

    with psycopg.connect(database_url, autocommit=True) as connection:

        async def reached() -> bool:
            found = connection.execute(
                "SELECT position FROM gpuledger.projection WHERE name = %s AND edition = 'live'", (projection,)
            ).fetchone()
            return found is not None and is_at_or_after(found[0], position)

        await eventually(reached)


async def stands_by(database_url: str, application: str) -> bool:
    """Whether a session of this name has asked for a lock that another one holds."""
    sessions = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"
    asked = f"{sessions} AND state = 'idle' AND query LIKE '%%try_advisory%%'"
    return bool(execute(database_url, sessions, f"{application} %/%") and execute(database_url, asked, application))


@asynccontextmanager
async def running(*runners: Runner) -> AsyncIterator[list[asyncio.Task[None]]]:
    """The runners, running; one that stops unexpectedly ends its task."""
    tasks = [asyncio.create_task(runner.run()) for runner in runners]
    try:
        yield tasks
    finally:
        for task in tasks:
            await stop(task)


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended, because the NATS client swallows a cancellation now and then.

    What it raised stays its own.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
    if not task.cancelled():
        task.exception()


async def are_folded(ledger: Ledger, database_url: str, projections: Sequence[Projection]) -> bool:
    """Whether everything is folded that is in the log, and every decision is back."""
    head = await ledger.head()
    places = execute(database_url, "SELECT position FROM gpuledger.projection WHERE edition = 'live'")
    waiting = execute(database_url, "SELECT 1 FROM gpuledger.outbox WHERE strpos(projection, '@') = 0")
    return [place for (place,) in places] == [head] * len(projections) and not waiting


async def assert_true(ledger: Ledger, database_url: str, projections: Sequence[Projection]) -> None:
    """Every row is what the log says."""
    for projection in projections:
        verification = await verify(projection, ledger, database_url)
        assert verification.differences == 0, verification


def table(database_url: str, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
    """A live table's rows, ordered; JSON as the text that the fold wrote."""
    with session(database_url).cursor() as cursor:
        read_json_as_text(cursor)
        return sorted(cursor.execute(f"SELECT {columns} FROM gpuledger_live.{name}".encode()), key=str)


def lose_rows(url: str, projection: type[Projection]) -> None:
    """As when a database was lost: neither rows nor checkpoint nor outbox of any service are left."""
    for spec in projection.specs:
        execute(url, f"DELETE FROM gpuledger_live.{spec.name}")
    for name in ("projection", "numbers_seen", "numbers_seen_position", "decider", "outbox"):
        execute(url, f"DELETE FROM gpuledger.{name}")

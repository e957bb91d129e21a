"""Tables by months: what the tests ask of them, and what they have the writer do."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.domain.histories import CONTAINER_ALLOCATIONS
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.definition import Projection
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import AllocationsProjection
from support.events import hour
from support.projections import QUICK, execute, running, table
from support.waiting import eventually

ALLOCATIONS = AllocationsProjection()
BOTH = [ALLOCATIONS, SourcesProjection()]
TABLE = CONTAINER_ALLOCATIONS.name


def at(year: int, month: int, day: int = 10) -> float:
    """The hours from the start of all tests to a day."""
    return (datetime(year, month, day, tzinfo=UTC) - hour(0)) / timedelta(hours=1)


def partitions(url: str, schema: str = "gpuledger_live") -> list[tuple[str, str]]:
    """The partitions of the table in a schema, and the schemas where they are."""
    return execute(
        url,
        "SELECT relnamespace::regnamespace::text, relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = to_regclass(%s) ORDER BY relname",
        f"{schema}.{TABLE}",
    )


def names(url: str, schema: str = "gpuledger_live") -> list[str]:
    return [name for _, name in partitions(url, schema)]


def pods(url: str, name: str = TABLE) -> list[str]:
    return sorted(pod for (pod,) in table(url, name, "pod"))


async def catch_up(ledger: JetStreamLedger, url: str, projections: Sequence[Any] = BOTH) -> None:
    for projection in projections:
        await Runner(projection, ledger, url, settings=QUICK).catch_up(await ledger.head())


async def sweep(ledger: JetStreamLedger, url: str, projection: Projection = ALLOCATIONS, *tables: str) -> None:
    """Return when the writer has gone through the tables; whoever asks them meanwhile may wait for its lock."""
    swept = "SELECT count(*) FROM pg_class WHERE relnamespace = 'gpuledger_live'::regnamespace AND relname = ANY(%s) "
    swept += "AND obj_description(oid, 'pg_class') IS NOT NULL"
    names = list(tables or (TABLE,))

    async def is_over() -> bool:
        return execute(url, swept, names) == [(len(names),)]

    async with running(Runner(projection, ledger, url, settings=QUICK)):
        await eventually(is_over)

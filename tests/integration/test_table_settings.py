"""A start reads what is open by an index, and new tables of a rebuild keep the settings of those that they replace."""

from typing import Any

import psycopg
import pytest

from gpuledger.db.engine import connect
from gpuledger.domain.table import TableSpec
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.projection.rows import RowStore
from gpuledger.readmodels.projections import DevicesProjection
from gpuledger.tools.queries.backend import all_projections
from support.projections import execute

SETTINGS = (
    "SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'gpuledger_live'::regnamespace "
    "AND reloptions IS NOT NULL ORDER BY relname"
)
RETIRING = [
    spec for projection in all_projections() for spec in projection.specs if spec.retires and not spec.is_append_only
]


async def test_a_rebuild_keeps_fill_factors_and_the_settings_of_vacuum(url: str) -> None:
    before = execute(url, SETTINGS)
    assert {"device", "slot", "installation", "device_history"} <= {name for name, _ in before}
    await rebuild(DevicesProjection(), MemoryLedger(), url)
    assert execute(url, SETTINGS) == before


@pytest.mark.parametrize("spec", RETIRING, ids=lambda spec: spec.name)
async def test_what_is_open_is_read_by_an_index_of_it_alone(url: str, spec: TableSpec[Any]) -> None:
    """As of the query that a start executes: the index has no row that has retired."""
    async with connect(url, application_name="test") as connection:
        await connection.execute("SET enable_seqscan = off")
        query = RowStore(spec, "gpuledger_live").live_query.as_string(connection)
        plan = await (await connection.execute(f"EXPLAIN {query}".encode())).fetchall()
    with psycopg.connect(url) as blocking:
        partial = blocking.execute(
            "SELECT indexrelid::regclass::text FROM pg_index LEFT JOIN pg_inherits ON inhrelid = indrelid "
            "WHERE coalesce(inhparent, indrelid) = %s::regclass AND indpred IS NOT NULL",
            [f"gpuledger_live.{spec.name}"],
        ).fetchall()
    assert [name for (name,) in partial if name.removeprefix("gpuledger_live.") in str(plan)]

"""What a start reads of a table whose rows retire is found by an index, however many rows have retired."""

from typing import Any

import psycopg
import pytest

from gpuledger.domain.table import TableSpec
from gpuledger.projection.months import ANY_MONTH
from gpuledger.projection.rows import RowStore
from support.tables import OPEN, PROJECTIONS

RETIRING = [spec for specs in PROJECTIONS.values() for spec in specs if spec.retires and not spec.is_append_only]


def test_every_table_whose_rows_retire_one_by_one_has_such_an_index() -> None:
    assert {spec.name for spec in RETIRING} == set(OPEN)


@pytest.mark.parametrize("spec", RETIRING, ids=[spec.name for spec in RETIRING])
async def test_the_rows_that_have_not_retired_are_an_index_look_up(url: str, spec: TableSpec[Any]) -> None:
    part = "" if spec.by_month is None else f"_{ANY_MONTH}"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("SET enable_seqscan = off")  # a table this small is read whole otherwise
        assert [rows async for rows in RowStore(spec, "gpuledger_live").live(connection)] == []
        await connection.execute("SELECT pg_stat_force_next_flush()")
        cursor = await connection.execute(
            "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'gpuledger_live' AND indexrelname = %s",
            (f"{spec.name}{part}_{OPEN[spec.name]}_idx",),
        )
        assert await cursor.fetchall() == [(1,)]

"""Rows come back from PostgreSQL as they were written, whatever their texts hold, few as arrays and many copied."""

from datetime import UTC, datetime, timedelta

import pytest

from gpuledger.db.engine import connect
from gpuledger.db.json_columns import jsonb_columns
from gpuledger.domain.devices.fold import INSTALLATION, Installation
from gpuledger.domain.health.rows import DEPARTURE, Departure
from gpuledger.domain.table import Changes
from gpuledger.domain.workloads.fold import WORKLOAD_FACT, WorkloadFact
from gpuledger.projection.row_statements import inserts_of
from gpuledger.projection.rows import COPIED_ROWS_MIN, RowStore, columns_of
from gpuledger.tools.queries.backend import all_projections

AT = datetime(2026, 3, 1, 12, 30, 1, 5, tzinfo=UTC)
TEXTS = ("", " ", "null", "NULL", '"', "\\", '\\"', "{}", "{a,b}", "a\nb\t", "ü€🙂", "'", "%s", ",", "x" * 1_000)


def installation(device: str, text: str | None) -> Installation:
    return Installation(device, "s1", AT, None, text is None, text, "u", None, "source", "epoch")


@pytest.mark.parametrize("others", [0, COPIED_ROWS_MIN], ids=["arrays", "copied"])
async def test_rows_come_back_as_they_were(url: str, others: int) -> None:
    beside = [installation(f"x{number}", None) for number in range(others)]
    given = [installation(f"d{number}", text) for number, text in enumerate((*TEXTS, None))]
    changed = [row._replace(valid_to=AT + timedelta(days=40_000), model=row.serial) for row in (*given, *beside)]
    store = RowStore(INSTALLATION, "gpuledger_live")
    async with connect(url, application_name="test") as connection:
        for changes in (Changes([*given, *beside], [], []), Changes([], changed, [])):
            async with connection.transaction():
                await store.write(connection, changes)
            expected = changes.new or changes.changed
            assert {row async for rows in store.all(connection) for row in rows} == set(expected)
        gone = [row[:3] for row in changed[1:]]
        async with connection.transaction():
            await store.write(connection, Changes([], [], gone))
        assert [row async for rows in store.all(connection) for row in rows] == changed[:1]


@pytest.mark.parametrize("others", [0, COPIED_ROWS_MIN], ids=["arrays", "copied"])
async def test_a_row_that_is_all_key_may_be_written_again(url: str, others: int) -> None:
    rows = [Departure("n1", f"d{number}", AT) for number in range(others + 1)]
    store = RowStore(DEPARTURE, "gpuledger_live")
    async with connect(url, application_name="test") as connection:
        for changes in (Changes([], rows, []), Changes([], rows, [])):
            async with connection.transaction():
                await store.write(connection, changes)
        assert {row async for page in store.all(connection) for row in page} == set(rows)


async def test_each_table_takes_what_adds_and_replaces_its_rows(url: str) -> None:
    specs = [spec for one in all_projections() for spec in one.specs]
    async with connect(url, application_name="test") as connection:
        for spec in specs:
            table = RowStore(spec, "gpuledger_live").table
            columns = await jsonb_columns(connection, table)
            for statement in inserts_of(spec, "gpuledger_live", frozenset(columns)):
                await connection.execute(statement, ["{}"] * len(spec.columns))


async def test_rows_are_read_back_by_names_of_any_kind(url: str) -> None:
    rows = [
        WorkloadFact(name or "-", "submitted", AT, 2**53 + 1, None, name, 2**62, None, None, None, None)
        for name in TEXTS
    ]
    store = RowStore(WORKLOAD_FACT, "gpuledger_live")
    async with connect(url, application_name="test") as connection:
        async with connection.transaction():
            await store.write(connection, Changes(rows, [], []))
        names = [row.workload for row in rows[1:]]
        assert set(await store.page(connection, "workload", [*names, "not there"])) == set(rows[1:])


def test_a_column_is_an_array() -> None:
    assert columns_of([(1, None, True, "a"), (2, AT, False, None)]) == [
        "{1,2}",
        '{null,"2026-03-01T12:30:01.000005+00:00"}',
        "{true,false}",
        '{"a",null}',
    ]

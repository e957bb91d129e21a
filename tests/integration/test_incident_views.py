"""The reports about incidents, and incidents at a time, over rows that the real runner has written."""

import asyncio
import random
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from gpuledger.cli.get.nouns import INCIDENTS
from gpuledger.db.engine import connect
from gpuledger.db.views import view_of
from gpuledger.events.device import DeviceDetached, DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import NodeGone
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import DevicesProjection, IncidentsProjection
from gpuledger.tools.queries.rows import rows_at
from support.events import IMPORT, INVENTORY, RecordedFact, event, folded, health, hour, log_of, numbered
from support.health import REPORTS_OF_HEALTH, card_report, in_force, reported
from support.projections import QUICK, execute, publish, table

EXAMPLES = 25

CARDS = numbered(
    [
        RecordedFact(IMPORT, "a", 1, DeviceInserted(slot="n1/0", serial="A", model="K20X")),
        RecordedFact(IMPORT, "a", 11, DeviceRemoved(slot="n1/0")),
        RecordedFact(IMPORT, "a", 11, DeviceInserted(slot="n1/1")),
        RecordedFact(IMPORT, "b", 12, DeviceInserted(slot="n1/0")),
        RecordedFact(IMPORT, "b", 17, DeviceRemoved(slot="n1/0")),
        RecordedFact(IMPORT, "b", 18, DeviceFailed(kind="DBE", slot="n1/0")),
        RecordedFact(IMPORT, "c", 1, DeviceInserted(slot="n2/0")),
    ]
)
LEAVING = [
    event(DeviceDetached(name="g", slot="n1/0000:17:00.0"), "b", number=1, at=16.5, source=INVENTORY),
    event(NodeGone(), "n1", number=1, at=11.5, source="/watchers/nodes"),
]
MOVED = reported((91, card_report("c", "48")), source="/nodes/n2/agent")


async def fold(url: str, events: list[Decoded]) -> None:
    ledger = MemoryLedger()
    head = await publish(ledger, [in_force(), *events])
    for projection in (DevicesProjection(), IncidentsProjection()):
        await Runner(projection, ledger, url, settings=QUICK).catch_up(head)


def ask(url: str, report: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {view_of(report)}".encode()).fetchall()


@pytest.fixture
async def database(url: str) -> str:
    await fold(url, [*CARDS, *reported(*REPORTS_OF_HEALTH), *MOVED])
    return url


def test_incidents(database: str) -> None:
    rows = ask(database, "incidents")
    assert len({row["incident"] for row in rows}) == len(rows) == 7
    assert [(row["device"], row["opened_at"], row["ended_at"], row["ended_by"], row["reports"]) for row in rows] == [
        ("c", hour(91), None, None, 1),
        ("c", hour(17), None, None, 1),
        ("b", hour(16), None, None, 1),
        ("a", hour(11.2), None, None, 1),
        ("a", hour(9.35), hour(9.5), "healthy", 1),
        ("a", hour(9.2), hour(9.3), "healthy", 1),
        ("a", hour(8), hour(9), "healthy", 4),
    ]
    first = rows[-1]
    assert (first["codes"], first["first_cause"], first["last_cause"]) == ("79,94", "fell off the bus", "79,94")
    assert (first["action"], first["duration_s"], first["model"]) == ("RESTART_VM", 3600, "K20X")


def test_mean_times(database: str) -> None:
    rows = {(row["per"], row["value"]): row for row in ask(database, "mttr")}
    by_check = {("check", "ECC"), ("check", "XID")}
    assert set(rows) == {("all", "all"), *by_check, ("model", "K20X"), ("month", "2026-01"), ("node", "n1")}
    found = rows["check", "XID"]
    assert (found["incidents"], found["mttr_s"], found["longest_s"]) == (2, Decimal(1980), Decimal(3600))
    detected = {(row["per"], row["value"]): row for row in ask(database, "mttd")}["all", "all"]
    assert (detected["incidents"], detected["mttd_s"] > 0) == (7, True)


def test_patterns_over_history(database: str) -> None:
    (repeated,) = ask(database, "repeated-codes")
    assert (repeated["device"], repeated["code"], repeated["reports_in_day"]) == ("a", "79", 7)
    (flapping,) = ask(database, "flapping")
    assert (flapping["device"], flapping["check_name"], flapping["incidents_in_day"]) == ("a", "XID", 3)
    (slot,) = ask(database, "bad-slots")
    assert (slot["slot"], slot["devices"], slot["incidents"], slot["failures"]) == ("n1/0", 2, 4, 1)
    lemons = [(row["device"], row["incidents"], row["nodes"], row["lives"]) for row in ask(database, "lemons")]
    assert lemons == [("a", 4, 1, 2), ("c", 2, 2, 1)]


@pytest.mark.parametrize("seed", range(3))
async def test_processes_that_start_again_read_the_past_of_a_check_back(url: str, seed: int) -> None:
    events = [*reported(*REPORTS_OF_HEALTH), *LEAVING, *MOVED]
    random.Random(seed).shuffle(events)
    ledger = MemoryLedger()
    await publish(ledger, [in_force()])
    for one in events:
        head = await publish(ledger, [one])
        await Runner(IncidentsProjection(), ledger, url, settings=QUICK).catch_up(head)
    messages = log_of([in_force(), *events])
    for name, rows in folded(IncidentsProjection(), messages).state.tables().items():
        hidden = {"recorded_at"}
        columns = ", ".join(column for column in rows.spec.columns if column not in hidden)
        expected = [
            tuple(value for column, value in row._asdict().items() if column not in hidden)
            for row in rows.rows.values()
        ]
        assert table(url, name, columns) == sorted(expected, key=str), name


def test_incidents_at_a_time_are_the_fold_of_what_had_happened(migrated_url: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(recorded=health, until=st.integers(-1, 10), data=st.data())
    def agree(recorded: list[RecordedFact], until: int, data: st.DataObject) -> None:
        events = numbered(recorded)
        asyncio.run(_agree(migrated_url, events, data.draw(st.permutations(events)), until))

    agree()


async def _agree(url: str, events: list[Decoded], recorded: list[Decoded], until: int) -> None:
    tables = [spec.name for projection in (DevicesProjection, IncidentsProjection) for spec in projection.specs]
    live = ", ".join(f"gpuledger_live.{name}" for name in tables)
    execute(url, f"TRUNCATE {live}, gpuledger.projection, gpuledger.seen, gpuledger.enforced_rule")
    await fold(url, recorded)
    happened = sorted((event for event in events if event.time <= hour(until)), key=lambda event: event.time)
    then = folded(IncidentsProjection(), log_of(happened), types=[NodeHealthReported]).state.tables()["incident"]
    columns = INCIDENTS.source.columns
    expected = [{name: getattr(row, name) for name in columns} for row in then.rows.values()]
    async with connect(url, application_name="test") as connection:
        found = await rows_at(connection, INCIDENTS.source, hour(until))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))

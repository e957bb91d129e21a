"""Reports and functions of the `report` schema, over rows that a few facts fold to."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier

from gpuledger.db.errors import QueryError
from gpuledger.db.readonly import query, read_only
from gpuledger.db.views import FUNCTIONS_AT, READER_ROLE, REPORTS, recreate_views, view_of
from gpuledger.domain.devices import fold as devices
from gpuledger.domain.devices import installations, nodes
from gpuledger.domain.fact import Fact
from gpuledger.domain.health import fold as health_fold
from gpuledger.domain.health.rows import Health
from gpuledger.domain.sources import fold as sources
from gpuledger.domain.table import Table
from gpuledger.domain.workloads import allocations
from gpuledger.domain.workloads import fold as workloads
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationEnded, AllocationObserved
from gpuledger.events.device import DeviceErrorsObserved, DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.envelope import Event
from gpuledger.events.node import NodeDecommissioned, NodeRegistered
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import SourceKind
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.workload import DeviceShare, WorkloadEnded, WorkloadScheduled, WorkloadSubmitted
from gpuledger.readmodels.projections import PreflightProjection, SharesProjection
from support.doc_pages import blocks
from support.health import REPORTS_OF_HEALTH
from support.paths import ROOT

T0 = datetime(2024, 1, 1, tzinfo=UTC)
END = T0 + timedelta(days=100)
"""Where the source's data ends."""


def day(days: float) -> datetime:
    return T0 + timedelta(days=days)


HELD = AllocationObserved(
    node="n1",
    namespace="ml",
    pod="p",
    container="main",
    resources=(AllocatedDevices(resource="gpu.deckhouse.io/x", devices=("a", "b::1")),),
    claims=(AllocatedClaim(claim="c", driver="gpu.example.com", pool="n1", device="gpu-0"),),
)

FACTS: tuple[tuple[float, str, Payload], ...] = (
    (0, "n1", NodeRegistered(gpu_count=4, gpu_model="K20X")),
    (0, "n1/0", SlotDeclared(node="n1", index=0)),
    (1, "n1/1", SlotDeclared(node="n1", index=1)),
    (2, "n2/0", SlotDeclared(node="n2", index=0)),
    (1, "a", DeviceInserted(slot="n1/0", serial="A", model="K20X")),
    (5, "a", DeviceFailed(kind="DBE", slot="n1/0")),
    (11, "a", DeviceFailed(kind="OTB")),
    (11, "a", DeviceRemoved(slot="n1/0")),
    (11, "a", DeviceInserted(slot="n1/1", uuid="U")),
    (12, "b", DeviceInserted(slot="n1/0", serial="B")),
    (20, "b", DeviceRemoved(slot="n1/0", retired=True)),
    (15, "c", DeviceInserted(slot="n1/0")),  # beside b from 15 to 20
    (30, "c", DeviceInserted(slot="n2/0")),  # and in two slots since 30
    (40, "d", DeviceRemoved(slot="n2/0")),  # was never inserted
    (41, "e", DeviceFailed(kind="XID 79", slot="c11-2c1s4n1")),
    (50, "f", DeviceInserted(slot="c11-2c1s4n1")),
    (50, "f", DeviceRemoved(slot="c11-2c1s4n1")),  # a life of no length
    (60, "n1", NodeRegistered(gpu_count=2, gpu_model="K20X")),
    (90, "n2", NodeDecommissioned()),
    (1, "w1", WorkloadSubmitted(gpu_milli=1500, owner="ann", workload_class="LS")),
    (2, "w1", WorkloadScheduled(gpu_milli=1500, node="n1", devices=(DeviceShare(device="a", gpu_milli=1000),))),
    (4, "w1", WorkloadEnded(outcome="Succeeded")),
    (5, "w1", WorkloadScheduled(gpu_milli=500)),  # it runs once more
    (7, "w1", WorkloadEnded(outcome="Succeeded")),
    (3, "w2", WorkloadSubmitted(gpu_milli=250, workload_class="BE")),
    (99, "w2", WorkloadScheduled(gpu_milli=250)),  # holds on to the end of the data
    (3, "w3", WorkloadSubmitted(gpu_milli=1000, owner="ann", workload_class="LS")),
    (5, "w3", WorkloadEnded(outcome="Failed")),
    (98, "w4", WorkloadSubmitted(gpu_milli=1000, owner="ann", workload_class="LS")),
    (10, "n1/ml/p/main", HELD),
    (15, "n1/ml/p/main", HELD.model_copy(update={"claims": ()})),
    (18, "n1/ml/p/main", HELD.model_copy(update={"claims": ()})),
    (20, "n1/ml/p/main", AllocationEnded()),
    (14, "n1/ml/p/side", HELD.model_copy(update={"container": "side", "resources": ()})),
    (9, "a", DeviceErrorsObserved(kind="XID 31", cause="application", count=2, first_at=day(8))),
    (12, "a", DeviceErrorsObserved(kind="XID 31", cause="application", first_at=day(12))),
    (13, "z", DeviceErrorsObserved(kind="XID 63", cause="hardware", first_at=day(13))),
    *((at, "n1", report) for at, report in REPORTS_OF_HEALTH),
)
RECORDED = tuple(enumerate(FACTS, start=1))
HANDLERS = {**devices.HANDLERS, **installations.HANDLERS}
SOURCE = sources.Source("/import/test", "1", 28, 0, 28, 0, T0, END, T0, END, END)


class Folded:
    """The projections' tables after some facts."""

    def __init__(self, facts: Iterable[tuple[int, tuple[float, str, Payload]]]) -> None:
        states = (
            (devices.Devices(), HANDLERS),
            (nodes.Nodes(), nodes.HANDLERS),
            (workloads.Workloads(), workloads.HANDLERS),
            (allocations.Allocations(), allocations.HANDLERS),
            (Health(), health_fold.HANDLERS),
            *((one.new_state(), one.handlers) for one in (PreflightProjection(), SharesProjection())),
        )
        for position, (at, subject, data) in facts:
            source = "/nodes/n1/agent" if data.PUBLISH_RULE.publishers == (SourceKind.AGENTS,) else "/import/test"
            event = Event(str(position), source, data.TYPE, subject, day(at), data, "1", position)
            for state, handlers in states:
                if type(data) in handlers:
                    handlers[type(data)](state, Fact(event, position, 0), data)
        self.tables: dict[str, Table[Any]] = {}
        for state, _ in states:
            self.tables.update(state.tables())

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.tables[table].rows.values()]


@pytest.fixture
def database(migrated_url: str) -> str:
    folded = Folded(RECORDED)
    with psycopg.connect(migrated_url) as connection:
        for name in folded.tables:
            _insert(connection, name, folded.rows(name))
        _insert(connection, "source", [SOURCE])
    return migrated_url


def test_fleet(database: str) -> None:
    lives = 10 + 89 + 8 + 85 + 70 + 0
    assert _ask(database, "fleet") == [
        {
            "devices": 6,
            "slots": 4,
            "lives": 6,
            "gpu_years": round(Decimal(lives) / Decimal("365.25"), 2),
            "in_service": 2,
            "failures": {"DBE": 1, "OTB": 1, "XID 79": 1},
            "overlaps": 1,
            "overlap_slots": 1,
            "devices_in_two_places": 1,
            "nodes": 1,
            "gpus": 2,
            "workloads": 4,
            "never_scheduled": 1,
            "gpu_hours": Decimal("78.00"),
        }
    ]


def test_a_fleet_of_nothing(migrated_url: str) -> None:
    (fleet,) = _ask(migrated_url, "fleet")
    assert fleet.pop("failures") == {}
    assert set(fleet.values()) == {0}
    for report in REPORTS[1:]:
        assert _ask(migrated_url, report) == []


def test_fleet_by_day(database: str) -> None:
    rows = {row.pop("day"): tuple(row.values()) for row in _ask(database, "fleet-by-day")}
    assert list(rows) == [date(2024, 1, 2) + timedelta(days=days) for days in range(100)]
    assert rows[date(2024, 1, 2)] == (1, 1, 0, 0)
    assert rows[date(2024, 1, 12)] == (1, 1, 1, 1)  # a moved, and failed
    assert rows[date(2024, 1, 16)] == (3, 1, 0, 0)
    assert rows[date(2024, 1, 21)] == (2, 0, 1, 0)
    assert rows[date(2024, 1, 31)] == (2, 1, 0, 0)  # c is one device in two slots
    assert rows[date(2024, 2, 20)] == (2, 1, 1, 0)
    assert rows[date(2024, 4, 10)] == (2, 0, 0, 0)


def test_lifetimes(database: str) -> None:
    rows = {(row["device"], row["slot"]): row for row in _ask(database, "lifetimes")}
    assert {life: (row["days"], row["end_reason"], row["in_service"]) for life, row in rows.items()} == {
        ("a", "n1/0"): (10, "OTB", False),
        ("a", "n1/1"): (89, None, True),
        ("b", "n1/0"): (8, "retired", False),
        ("c", "n1/0"): (85, None, True),
        ("c", "n2/0"): (70, None, True),
        ("f", "c11-2c1s4n1"): (0, "removed", False),
    }
    assert rows["a", "n1/1"]["counted_to"] == END


def test_a_source_that_goes_on_counts_to_now(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE gpuledger_live.source SET completed_at = NULL")
        row = connection.execute(
            "SELECT bool_and(counted_to = now()), count(*) FROM report.lifetimes WHERE in_service"
        ).fetchone()
    assert row == (True, 3)


def test_mtbf(database: str) -> None:
    first, second = date(2024, 1, 1), date(2024, 4, 1)
    assert [tuple(row.values()) for row in _ask(database, "mtbf")] == [
        (first, "c11-2", 0, 1, 0),
        (first, "n1", Decimal(10 + 80 + 8 + 76), 2, Decimal(174 * 24 / 2)),
        (first, "n2", Decimal(61), 0, None),
        (second, "n1", Decimal(18), 0, None),
        (second, "n2", Decimal(9), 0, None),
    ]


def test_mtbf_of_a_life_over_quarters_without_change(migrated_url: str) -> None:
    with psycopg.connect(migrated_url) as connection:
        life = devices.Installation("g", "s", day(0), day(366), False, None, None, None, "/import/test", "1")
        _insert(connection, "installation", [life])
    rows = [(row["quarter"].month, row["location"], row["gpu_days"]) for row in _ask(migrated_url, "mtbf")]
    assert rows == [(1, "s", 91), (4, "s", 91), (7, "s", 92), (10, "s", 92)]


def test_offenders(database: str) -> None:
    rows = _ask(database, "offenders")
    assert [(row["device"], row["failures"], row["lives"], row["slots"], row["kinds"]) for row in rows] == [
        ("a", 2, 2, 2, {"DBE": 1, "OTB": 1}),
        ("e", 1, 0, 0, {"XID 79": 1}),
    ]
    assert (rows[0]["first_failed_at"], rows[0]["last_failed_at"]) == (day(5), day(11))


def test_gpu_hours_and_allocations(database: str) -> None:
    assert [tuple(row.values()) for row in _ask(database, "gpu-hours")] == [
        ("ann", "LS", 48 + 24),
        (None, "BE", 6),
    ]
    columns = ("workload", "device", "gpus", "hours", "valid_to")
    rows = [tuple(row[column] for column in columns) for row in _ask(database, "allocation")]
    assert sorted(rows, key=repr) == [
        ("w1", "a", 1, 48, day(4)),
        ("w1", None, Decimal("0.5"), 48, day(7)),
        ("w2", None, Decimal("0.25"), 24, None),
    ]


def test_container_allocations(database: str) -> None:
    columns = ("container", "resource", "device", "slice", "claim", "driver", "pool", "valid_from", "valid_to", "hours")
    rows = [tuple(row[column] for column in columns) for row in _ask(database, "container-allocations")]
    resource, claim = "gpu.deckhouse.io/x", ("c", "gpu.example.com", "n1")
    assert rows[:3] == [
        ("main", resource, "a", None, None, None, None, day(10), day(20), 240),
        ("main", resource, "b", 1, None, None, None, day(10), day(20), 240),
        ("main", None, "gpu-0", None, *claim, day(10), day(15), 120),
    ]
    assert [row[:-1] for row in rows[3:]] == [("side", None, "gpu-0", None, *claim, day(14), None)]
    assert rows[3][-1] > 240


def test_device_errors(database: str) -> None:
    assert [tuple(row.values()) for row in _ask(database, "device-errors")] == [
        ("a", "XID 31", "application", 3, day(8), day(12), "n1", "n1/1"),
        ("z", "XID 63", "hardware", 1, day(13), day(13), "n1", None),
    ]


def test_queue_waits(database: str) -> None:
    assert [tuple(row.values()) for row in _ask(database, "queue-waits")] == [
        ("ann", "LS", 3, 1, 1, 86400, 86400, 86400, 86400),
        (None, "BE", 1, 0, 0, 96 * 86400, 96 * 86400, 96 * 86400, 96 * 86400),
    ]


def test_contradictions(database: str) -> None:
    assert [tuple(row.values()) for row in _ask(database, "contradictions")] == [
        ("two-devices-in-slot", "n1/0", "b", "c", day(15), day(20), 120),
        ("device-in-two-slots", "c", "n1/0", "n2/0", day(30), None, 70 * 24),
        ("removed-not-inserted", "d", "n2/0", "", day(40), day(40), 0),
    ]


def test_the_past_is_what_the_facts_up_to_then_fold_to(database: str) -> None:
    for days in (-1, 0, 1, 3, 4.5, 5, 8, 8.3, 9, 9.25, 9.4, 11, 11.5, 15, 19, 20, 30, 40, 41, 50, 60, 90, 99, 200):
        recorded_by = [(position, fact) for position, fact in RECORDED if fact[0] <= days]
        then = Folded(sorted(recorded_by, key=lambda recorded: recorded[1][0]))
        for function in FUNCTIONS_AT:
            found = _at(database, function, day(days))
            assert sorted(found, key=repr) == sorted(_as_row(function, then), key=repr), (function, days)


def test_the_past_of_one_device_needs_no_scan(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("SET enable_seqscan = off")
        plan = connection.execute("EXPLAIN SELECT * FROM report.devices_at(now()) WHERE device = 'a'").fetchall()
    assert "Seq Scan" not in str(plan)


def test_everything_is_documented(database: str) -> None:
    with psycopg.connect(database) as connection:
        silent = connection.execute(
            "SELECT relname, attname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
            "WHERE relnamespace = 'report'::regnamespace AND relkind = 'v' "
            "AND (col_description(attrelid, attnum) IS NULL OR obj_description(pg_class.oid, 'pg_class') IS NULL) "
            "UNION ALL SELECT proname, '' FROM pg_proc WHERE pronamespace = 'report'::regnamespace "
            "AND obj_description(oid, 'pg_proc') IS NULL"
        ).fetchall()
    assert silent == []


def test_the_documentation_agrees_with_the_comments(database: str) -> None:
    text = (ROOT / "docs" / "reports.md").read_text()
    with psycopg.connect(database) as connection:
        names = connection.execute(
            "SELECT '| `' || attname || '` | ' || replace(format_type(atttypid, NULL), 'timestamp with time zone', "
            "'timestamptz') || ' | ' || col_description(attrelid, attnum) || ' |' "
            "FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
            "WHERE relnamespace = 'report'::regnamespace AND relkind = 'v' AND attnum > 0 "
            "UNION ALL SELECT obj_description(oid, 'pg_class') FROM pg_class "
            "WHERE relnamespace = 'report'::regnamespace AND relkind = 'v' "
            "UNION ALL SELECT obj_description(oid, 'pg_proc') FROM pg_proc "
            "WHERE pronamespace = 'report'::regnamespace"
        ).fetchall()
    assert [line for (line,) in names if line not in text] == []
    assert [report for report in REPORTS if f"### {report}\n" not in text] == []


async def test_the_queries_of_the_page_are_answered(database: str) -> None:
    shown = blocks("docs/reports.md", "sql")
    assert shown
    async with read_only(database) as connection:
        for section, text in shown:
            assert (await query(connection, text)).description, section


def test_views_follow_tables_that_changed_places(database: str) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE gpuledger_next.device (LIKE gpuledger_live.device INCLUDING ALL)")
        connection.execute("ALTER TABLE gpuledger_live.device SET SCHEMA gpuledger_prev")
        connection.execute("ALTER TABLE gpuledger_next.device SET SCHEMA gpuledger_live")
        recreate_views(connection)
    assert _ask(database, "fleet")[0]["devices"] == 0
    assert _at(database, "devices_at", END) == []
    with psycopg.connect(database) as connection:
        connection.execute(f"SET ROLE {READER_ROLE}".encode())
        connection.execute("SELECT * FROM gpuledger_live.device")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM gpuledger_prev.device")


async def test_the_reader_reads_reports_by_their_short_names(database: str) -> None:
    async with read_only(database) as connection:
        cursor = await query(connection, "SELECT devices FROM fleet")
        assert await cursor.fetchall() == [(6,)]
        assert await (await query(connection, "SELECT current_user")).fetchone() == (READER_ROLE,)
        assert await (await query(connection, "SELECT count(*) FROM devices_at('2024-01-03Z')")).fetchone() == (1,)


async def test_the_reader_cannot_write(database: str) -> None:
    for statement in (
        "DELETE FROM gpuledger_live.device",
        "RESET ROLE; DELETE FROM gpuledger_live.device",
        "COMMIT; RESET ROLE; DROP SCHEMA gpuledger_live CASCADE",
        "SET TRANSACTION READ WRITE",
        "DO $$ BEGIN EXECUTE 'RESET ROLE'; EXECUTE 'DELETE FROM gpuledger_live.device'; END $$",
        "DO $$ BEGIN COMMIT; END $$",
        "WITH gone AS (DELETE FROM gpuledger_live.device RETURNING 1) SELECT * FROM gone",
        "CREATE TABLE public.mine (x int)",
        "SELECT nonsense",
        "SELEC",
        "",
    ):
        async with read_only(database) as connection:
            with pytest.raises(QueryError):
                await query(connection, statement)
    assert _ask(database, "fleet")[0]["devices"] == 6


def _insert(connection: psycopg.Connection[Any], table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    with connection.cursor().copy(SQL("COPY {} FROM STDIN").format(Identifier("gpuledger_live", table))) as copy:
        for row in rows:
            copy.write_row(row)


def _ask(database_url: str, report: str) -> list[dict[str, Any]]:
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {view_of(report)}".encode()).fetchall()


def _at(database_url: str, function: str, at: datetime) -> list[tuple[Any, ...]]:
    with psycopg.connect(database_url) as connection:
        return connection.execute(f"SELECT * FROM report.{function}(%s)".encode(), [at]).fetchall()


def _as_row(function: str, then: Folded) -> list[tuple[Any, ...]]:
    table = function.removesuffix("_at").removesuffix("s")
    rows = then.rows(table)
    if table == "workload":
        hidden = {"submitted_position", "scheduled_position", "ended_position", "source", "epoch"}
        return [tuple(value for name, value in _named(row).items() if name not in hidden) for row in rows]
    return rows


def _named(row: tuple[Any, ...]) -> Mapping[str, Any]:
    return dict(zip(workloads.WORKLOAD.columns, row, strict=True))

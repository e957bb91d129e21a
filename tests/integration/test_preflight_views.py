"""The reports about preflight checks, and checks and gangs at a time, over rows that the real runner has written."""

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from gpuledger.cli.get.noun import Noun
from gpuledger.cli.get.preflight_nouns import PREFLIGHT_CHECKS, PREFLIGHT_GANGS
from gpuledger.db.engine import connect
from gpuledger.db.views import view_of
from gpuledger.domain.preflight.results_rows import SPECS
from gpuledger.events.envelope import Decoded
from gpuledger.events.preflight import PodPreflightGone, PodPreflightObserved, PreflightCheck, PreflightResult
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.runner import Runner
from gpuledger.readmodels.projections import PreflightProjection
from gpuledger.tools.queries.rows import rows_at
from support.events import RecordedFact, folded, hour, log_of, numbered
from support.preflight_results import GANG_STORY, TYPES, crash_loop, ended, gangs, in_order
from support.projections import QUICK, execute, publish, table

EXAMPLES = 25
SLOW = PreflightResult(
    outcome="failed",
    codes=("NCCL_SYSTEM_ERROR",),
    message="3.1 GB/s is below 5.0 GB/s",
    duration_s=90.0,
    gang_wait_s=60.25,
    bandwidth_gbps=3.1,
    threshold_gbps=5.0,
)
RUNNING = PreflightCheck(name="nccl", state="running", started_at=hour(2) - timedelta(seconds=30))
OTHER_POD = [
    (at, PodPreflightObserved(uid="u3", node="n2", gang="g", checks=(check,)))
    for at, check in (
        (0.0, PreflightCheck(name="nccl", state="waiting")),
        (1.999, RUNNING),
        (2.0, ended("nccl", at=2, exit_code=1, result=SLOW)),
    )
]
STORY = [*crash_loop(2), *in_order((("ml/w-1", *one) for one in OTHER_POD), first=100), *GANG_STORY]


async def fold(url: str, events: list[Decoded]) -> None:
    ledger = MemoryLedger()
    head = await publish(ledger, events)
    await Runner(PreflightProjection(), ledger, url, settings=QUICK).catch_up(head)


def ask(url: str, report: str) -> list[dict[str, Any]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        return connection.execute(f"SELECT * FROM {view_of(report)}".encode()).fetchall()


@pytest.fixture
async def database(url: str) -> str:
    await fold(url, STORY)
    return url


def test_attempts(database: str) -> None:
    rows = {(row["pod"], row["check_name"], row["attempt"]): row for row in ask(database, "preflight-checks")}
    assert len(rows) == 5
    slow = rows["ml/w-1", "nccl", 0]
    assert (slow["outcome"], slow["codes"], slow["gang"]) == ("failed", "NCCL_SYSTEM_ERROR", "ml/g")
    measured = (slow["duration_s"], slow["gang_wait_s"], slow["bandwidth_gbps"], slow["threshold_gbps"])
    assert measured == (Decimal(90), Decimal("60.25"), Decimal("3.1"), Decimal(5))
    assert [rows["ml/w-0", "bandwidth", attempt]["outcome"] for attempt in range(3)] == ["failed", "failed", "passed"]
    assert rows["ml/w-0", "dcgm-diag", 0]["duration_s"] == 30


def test_rates_and_durations(database: str) -> None:
    rows = {(row["per"], row["check_name"], row["node"]): row for row in ask(database, "preflight")}
    checks, on_nodes = ("bandwidth", "dcgm-diag", "nccl"), (("bandwidth", "n1"), ("dcgm-diag", "n1"), ("nccl", "n2"))
    assert set(rows) == {
        ("all", None, None),
        *(("check", check, None) for check in checks),
        *(("node", None, node) for node in ("n1", "n2")),
        *(("check on node", *one) for one in on_nodes),
    }
    whole, bandwidth = rows["all", None, None], rows["check", "bandwidth", None]
    assert (whole["attempts"], whole["passed"], whole["failed"], whole["pass_rate"]) == (5, 2, 3, Decimal("0.4"))
    assert (whole["slowest_s"], whole["slowest_pod"], whole["longest_gang_wait_s"]) == (90, "ml/w-1", Decimal("60.25"))
    assert (bandwidth["pass_rate"], bandwidth["p50_s"]) == (Decimal("0.3333"), Decimal("31.5"))


def test_failures_per_node_and_code(database: str) -> None:
    found = [tuple(row.values())[:6] for row in ask(database, "preflight-failures")]
    assert found == [
        ("n1", "bandwidth", "failed", "NVLINK_FAIL", 2, 1),
        ("n2", "nccl", "failed", "NCCL_SYSTEM_ERROR", 1, 1),
    ]


def test_gangs(database: str) -> None:
    later, first = ask(database, "preflight-gangs")
    assert (first["state"], first["expected"], first["found"], first["waited_s"]) == ("complete", 2, 2, 90)
    assert (first["timed_out_at"], first["dissolved_at"]) == (hour(1.5), hour(3))
    assert (first["pods_waited"], first["longest_wait_s"]) == (1, Decimal("60.25"))
    assert (later["state"], later["reason"], later["dissolved_at"]) == ("not-configured", "Taken", None)


def test_the_waits_of_all_gangs_are_one_pass_over_the_attempts(migrated_url: str) -> None:
    """A pass for each gang took minutes for some thousands of them."""
    attempt = (
        "SELECT 'u' || i, 'nccl', 0, 0, 'ml/w-' || i, 'ml', 'n1', 'ml/g' || i / 16, 'ended', 'passed', 0, NULL, '', '',"
        " now(), now(), 1, 1, NULL, NULL, now(), NULL, now(), now(), i, now() FROM generate_series(1, 8000) AS i"
    )
    gang = (
        "SELECT 'ml/g' || i, now(), 'ml', 'complete', 'm', 's', 16, 16, 1, now(), NULL, NULL, '', NULL, false, now(),"
        " 'configured', 1, 1 FROM generate_series(1, 499) AS i"
    )
    with psycopg.connect(migrated_url) as connection:
        connection.execute(f"INSERT INTO gpuledger_live.preflight_check {attempt}".encode())
        connection.execute(f"INSERT INTO gpuledger_live.preflight_gang {gang}".encode())
        connection.execute("ANALYZE")
        explained = f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM {view_of('preflight-gangs')}"
        ((plan,),) = connection.execute(explained.encode()).fetchall()
        (waited,) = connection.execute("SELECT DISTINCT pods_waited FROM report.preflight_gangs").fetchall()
    read = [one["Actual Loops"] for one in parts_of(plan[0]["Plan"]) if one.get("Relation Name") == "preflight_check"]
    assert (read, waited) == ([1], (16,))


def parts_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from parts_of(part)


@pytest.mark.parametrize("size", [1, 3])
async def test_processes_that_start_again_read_the_past_back(url: str, size: int) -> None:
    ledger, events = MemoryLedger(), list(reversed(STORY))
    for at in range(0, len(events), size):
        head = await publish(ledger, events[at : at + size])
        await Runner(PreflightProjection(), ledger, url, settings=QUICK).catch_up(head)
    for name, rows in folded(PreflightProjection(), log_of(events), types=TYPES).state.tables().items():
        expected = [tuple(row) for row in rows.rows.values()]
        assert table(url, name, ", ".join(rows.spec.columns)) == sorted(expected, key=str), name


def test_checks_at_a_time_are_the_fold_of_what_had_happened(database: str) -> None:
    asyncio.run(_agree(database, STORY, PREFLIGHT_CHECKS, [hour(number / 4) for number in range(-1, 30)]))


def test_gangs_at_a_time_are_the_fold_of_what_had_happened(migrated_url: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(recorded=gangs, until=st.integers(-1, 9), data=st.data())
    def agree(recorded: list[RecordedFact], until: int, data: st.DataObject) -> None:
        events = numbered(recorded)
        tables = ", ".join(f"gpuledger_live.{spec.name}" for spec in SPECS)
        execute(migrated_url, f"TRUNCATE {tables}, gpuledger.projection, gpuledger.seen, gpuledger.enforced_rule")
        asyncio.run(fold(migrated_url, data.draw(st.permutations(events))))
        asyncio.run(_agree(migrated_url, events, PREFLIGHT_GANGS, [hour(until)]))

    agree()


async def _agree(url: str, events: list[Decoded], noun: Noun, times: list[datetime]) -> None:
    columns = noun.source.columns
    async with connect(url, application_name="test") as connection:
        for time in times:
            happened = sorted((event for event in events if event.time <= time), key=lambda event: event.time)
            then = folded(PreflightProjection(), log_of(happened), types=TYPES).state.tables()[noun.spec.name]
            expected = [{name: getattr(row, name) for name in columns} for row in then.rows.values()]
            found = await rows_at(connection, noun.source, time)
            assert sorted(map(repr, found)) == sorted(map(repr, expected)), time


async def test_a_pod_that_ends_early_leaves_nothing_open(url: str) -> None:
    checks = (PreflightCheck(name="a", state="running"), PreflightCheck(name="b", state="waiting"))
    facts = [
        ("ml/w-0", 0.0, PodPreflightObserved(uid="u1", checks=checks)),
        ("ml/w-0", 1.0, PodPreflightGone(uid="u1")),
    ]
    await fold(url, in_order(facts))
    assert {row["check_name"]: row["outcome"] for row in ask(url, "preflight-checks")} == {
        "a": "unknown",
        "b": "not-run",
    }

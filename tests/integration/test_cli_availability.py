"""Slices, pools and claims on the command line, on real servers: now, in the past, as recorded; reports, charts."""

import asyncio
import csv
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import pytest
import yaml

from gpuledger.cli.commands.report import (
    ABOUT_CONFIG_POOLS,
    ABOUT_GPU_POOLS,
    ABOUT_NAMESPACES,
    ABOUT_NODES,
    ABOUT_POOLS,
    ABOUT_VIEWS,
    ReportOutput,
)
from gpuledger.cli.render import Console, Output
from gpuledger.cli.times import format_time
from gpuledger.db.views import REPORTS
from support import servers
from support.cli import Cli, Result, next_line, watching
from support.dra_facts import (
    DRIVER,
    MEMORY,
    allocated,
    device,
    events_of,
    fact_at,
    published,
    released,
    requested,
    withdrawn,
)
from support.events import RecordedFact, hour
from support.ledgers import new_ledger
from support.projections import publish

DEADLINE_S = 60.0

OTHER = "other.example.com"
ONE, TWO, SHARED = device("a"), device("b"), device("m", memory="40Gi")

HISTORY = (
    fact_at(0, "w1-gpu", published("w1", [ONE, TWO, SHARED], node="w1")),
    fact_at(0, "net-1", published("net", [device("nic", tainted=True), device("nic2")], driver=OTHER, slices=2)),
    fact_at(1, "ml/train", requested(owner="Pod/train-0")),
    fact_at(2, "ml/train", allocated(("w1", "a", None), owner="Pod/train-0")),
    fact_at(3, "ml/part", allocated(("w1", "m", "s1"), consumed={MEMORY: "10Gi"})),
    fact_at(4, "web/idle", requested()),
    fact_at(5, "ops/look", allocated(("w1", "b", None), admin=True)),
    fact_at(6, "ml/gone", allocated(("w1", "zz", None))),
    fact_at(8, "ml/train", released()),
)
LAST_COLUMNS = {
    ("slices", "table"): "PARTIAL",
    ("slices", "wide"): "PUBLISHED",
    ("slicepools", "table"): "VALID",
    ("slicepools", "wide"): "WARNINGS",
    ("claims", "table"): "SINCE",
    ("claims", "wide"): "HELD",
}
POOLS = ("gpu.example.com/w1", "other.example.com/net")


@pytest.fixture(scope="module")
def urls(postgres_server_url: str, migrated_template: str) -> Iterator[dict[str, str]]:
    """Two real servers with the history in the log, and a migrated database."""
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url, migrated_template) as database_url:
        asyncio.run(_record(nats.url))
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


@pytest.fixture
def cli(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line on those servers, in a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "72")
    return cli


def test_slices(cli: Cli) -> None:
    rows = cli("get", "slices", "-o", "json").json()
    assert [row["name"] for row in rows] == ["net-1", "w1-gpu"]
    counted = ("total", "allocated", "available", "partial", "unavailable")
    assert [tuple(row[name] for name in counted) for row in rows] == [(2, 0, 0, 0, 2), (3, 1, 2, 1, 0)]
    assert [(row["driver"], row["pool"], row["node"], row["complete"]) for row in rows] == [
        (OTHER, "net", None, False),
        (DRIVER, "w1", "w1", True),
    ]
    wide = cli("get", "slice", "w1-gpu", "-o", "wide").out.splitlines()
    assert wide[0].split()[-5:] == ["UNAVAILABLE", "GENERATION", "COMPLETE", "VALID", "PUBLISHED"]
    assert wide[1].split()[-1] == format_time(hour(0))


def test_pools_bear_upstreams_names(cli: Cli) -> None:
    rows = {row["driver"]: row for row in cli("get", "slicepools", "-o", "json").json()}
    assert rows[DRIVER] == {
        "driver": DRIVER,
        "poolName": "w1",
        "nodeName": "w1",
        "generation": 1,
        "resourceSliceCount": 1,
        "observedSliceCount": 1,
        "totalDevices": 3,
        "allocatedDevices": 1,
        "availableDevices": 2,
        "partiallyAllocatedDevices": 1,
        "unavailableDevices": 0,
        "complete": True,
        "valid": True,
        "validationError": None,
        "warnings": ["ResourceClaim ml/gone references non-existent device 'zz' in pool 'w1'"],
    }
    assert rows[OTHER]["validationError"] == "1 of 2 slices of generation 1 are there."
    for row in rows.values():
        counted = row["allocatedDevices"] + row["availableDevices"] + row["unavailableDevices"]
        assert counted == row["totalDevices"]
    (header, first, _) = cli("get", "slicepools").out.splitlines()
    assert header.split()[4:6] == ["SLICES", "TOTAL"]
    assert first.split()[:6] == [DRIVER, "w1", "w1", "1", "1/1", "3"]


def test_claims(cli: Cli) -> None:
    assert cli("get", "claims", "-o", "name").out.splitlines() == [
        "claim/ml/gone",
        "claim/ml/part",
        "claim/ops/look",
        "claim/web/idle",
    ]
    (part,) = cli("get", "claims", "ml/part", "-o", "json").json()
    held = {
        "request": "r0",
        "driver": DRIVER,
        "pool": "w1",
        "device": "m",
        "share": "s1",
        "consumed": {MEMORY: "10Gi"},
        "admin_access": False,
    }
    assert (part["phase"], part["devices"], part["held"]) == ("Allocated", 1, [held])
    wide = cli("get", "claims", "-n", "ml", "-o", "wide", "--no-headers").out.splitlines()
    assert [line.split()[-1] for line in wide] == [f"{DRIVER}/w1/zz", f"{DRIVER}/w1/m"]
    assert [row["name"] for row in cli("get", "claims", "-n", "web", "-o", "json").json()] == ["idle"]
    assert cli("get", "claims", "-n", "web", "-A", "-o", "name").out.count("claim/") == 4
    assert cli("get", "claims", "idle", "-n", "web", "-o", "name").out == "claim/web/idle\n"


@pytest.mark.parametrize("kind", ["slices", "slicepools", "claims"])
def test_names_are_taken_as_they_are_written(cli: Cli, kind: str) -> None:
    for name in cli("get", kind, "-o", "name").out.splitlines():
        assert cli("get", kind, name, "-o", "name").out == f"{name}\n"


@pytest.mark.parametrize("kind", ["slices", "slicepools", "claims"])
def test_every_output_shows_the_same_rows(cli: Cli, kind: str) -> None:
    rows = cli("get", kind, "-o", "json").json()
    assert yaml.safe_load(cli("get", kind, "-o", "yaml").out) == rows
    assert len(cli("get", kind, "-o", "jsonl").out.splitlines()) == len(rows)
    assert len(list(csv.DictReader(io.StringIO(cli("get", kind, "-o", "csv").out)))) == len(rows)
    for output in ("table", "wide"):
        (heading, *lines) = [line.split() for line in cli("get", kind, "-o", output).out.splitlines()]
        bare = cli("get", kind, "-o", output, "--no-headers").out.splitlines()
        assert lines == [line.split() for line in bare]
        assert len(lines) == len(rows)
        assert heading[-1] == LAST_COLUMNS[kind, output]


def test_the_past_and_the_state_as_recorded(cli: Cli) -> None:
    """The last fact that is shown by time, and by position, is the one that was allocated."""
    now = cli("get", "slices", "-o", "json").json()
    assert cli("get", "slices", "--at", format_time(hour(100)), "-o", "json").json() == now
    assert cli("get", "slices", "--as-recorded", f"1/{len(HISTORY)}", "-o", "json").json() == now
    for number, moment in ((0, -1), (2, 0), (3, 1), (4, 2), (5, 3), (8, 7)):
        for kind in ("slices", "slicepools", "claims"):
            then = cli("get", kind, "--at", format_time(hour(moment)), "-o", "json").json()
            expected = cli("get", kind, "--as-recorded", f"1/{number}", "-o", "json").json()
            assert then == expected, (kind, moment)
    (claim,) = cli("get", "claims", "ml/train", "--at", format_time(hour(7)), "-o", "json").json()
    assert (claim["phase"], claim["since"], claim["owner"]) == ("Allocated", format_time(hour(2)), "Pod/train-0")
    assert cli("get", "slices", "--at", format_time(hour(-1)), "-o", "json").json() == []


@pytest.mark.parametrize(
    ("arguments", "code", "fact_at"),
    [
        (("get", "claims", "ml/train"), 1, "claim 'ml/train' was not found"),
        (("get", "claims", "train", "-n", "ml"), 1, "claim 'ml/train' was not found"),
        (("get", "slices", "-n", "ml"), 2, "slices come from the ledger"),
        (("get", "claims", "-l", "a=b"), 2, "--selector does not apply"),
        (("get", "slices", "--at", "now", "--as-recorded", "1"), 2, "exclude each other"),
        (("get", "slices", "-w", "--at", "now"), 2, "--at does not apply"),
        (("get", "slices", "-w", "-o", "json"), 2, "Use `-o jsonl`"),
        (("get", "slicepools", "--as-recorded", "1/999"), 2, "The log ends at position"),
        (("report", "fleet", "--pool", "a/b"), 2, "--pool does not apply to fleet"),
        (("report", "never-released", "--node", "n"), 2, "--node does not apply to never-released"),
        (("report", "availability", "--pool", "ab"), 2, "names no pool"),
        (("report", "fleet", "--namespace", "ml"), 2, "--namespace does not apply to fleet"),
        (("report", "availability", "-o", "plot"), 2, "Choose one, such as --pool"),
        (("report", "exhausted", "-o", "svg"), 2, "has no time axis"),
        (("report", "availability", "--pool", "no/pool", "-o", "svg"), 1, "nothing to draw"),
    ],
)
def test_errors_are_one_sentence_and_a_next_step(cli: Cli, arguments: tuple[str, ...], code: int, fact_at: str) -> None:
    result = cli(*arguments)
    assert (result.code, result.out) == (code, "")
    assert fact_at in result.err
    assert len(result.err.splitlines()) == 1


def test_reports_of_one_pool(cli: Cli) -> None:
    for report in ABOUT_POOLS:
        rows = _without_hours(cli("report", report, "-o", "json"))
        assert rows
        for pool in POOLS:
            found = _without_hours(cli("report", report, "--pool", pool, "-o", "json"))
            assert [row for row in rows if f"{row['driver']}/{row['pool']}" == pool] == found
    assert cli("report", "exhausted", "--node", "w1", "-o", "json").json() == []
    assert cli("report", "availability", "--node", "w1", "-o", "json").json() == (
        cli("report", "availability", "--pool", POOLS[0], "-o", "json").json()
    )


def test_reports_of_one_namespace(cli: Cli) -> None:
    rows = _without_hours(cli("report", "device-allocations", "-o", "json"))
    found = _without_hours(cli("report", "device-allocations", "-n", "ml", "-o", "json"))
    assert [row for row in rows if row["namespace"] == "ml"] == found
    assert 0 < len(found) < len(rows)


def test_the_options_of_reports_fit_their_columns(cli: Cli) -> None:
    pools, nodes = (*ABOUT_POOLS, *ABOUT_GPU_POOLS, *ABOUT_CONFIG_POOLS), (*ABOUT_VIEWS, *ABOUT_NODES)
    without = {
        "node": {"allocation", "pool-pods"},
        "pool": {"allocation", "container-allocations", "container-hours-by-day"},
    }
    for column, reports in (("pool", pools), ("node", nodes), ("namespace", ABOUT_NAMESPACES)):
        having = cli(
            "sql",
            "SELECT table_name AS name FROM information_schema.columns WHERE table_schema = 'report' "
            f"AND column_name = '{column}' AND table_name IN (SELECT viewname FROM pg_views)",
            "-o",
            "json",
        ).json()
        named = {row["name"].replace("_", "-") for row in having} & set(REPORTS)
        assert named - without.get(column, set()) == set(reports)
    assert {output.value for output in ReportOutput} == {output.value for output in Output} | {"plot", "svg"}


def test_availability_is_drawn_in_the_terminal_and_as_a_file(cli: Cli) -> None:
    drawn = cli("report", "availability", "--pool", POOLS[0], "-o", "plot").out.splitlines()
    assert drawn[0] == f"{POOLS[0]} on w1: devices"
    assert drawn[-1] == "= total   # allocated   o available   * several at once"
    assert max(map(len, drawn)) <= 72
    file = fromstring(cli("report", "availability", "--pool", POOLS[0], "-o", "svg").out)
    assert {line.get("class") for line in file.iter("{http://www.w3.org/2000/svg}polyline")} == {
        "total",
        "allocated",
        "available",
    }


def test_a_terminal_gets_a_picture_and_a_script_gets_columns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("report", "availability", "--pool", POOLS[0])
    assert cli(*command).out == cli(*command, "-o", "table").out
    monkeypatch.setattr(Console, "standard", _terminal)
    assert cli(*command).out.startswith(f"{POOLS[0]} on w1: devices\n")
    assert cli(*command, "-o", "table").out.startswith("DRIVER")
    assert cli("report", "availability").out.startswith("DRIVER")
    assert cli("report", "exhausted", "--pool", POOLS[0]).code == 0


def test_the_projection_takes_part_in_everything(cli: Cli, urls: dict[str, str]) -> None:
    assert cli("verify", "availability").code == 0
    servers._execute(urls["DATABASE_URL"], "UPDATE gpuledger_live.pool_availability SET total = total + 1")
    wrong = cli("verify")
    assert (wrong.code, "gpuledger replay availability" in wrong.err) == (1, True)
    assert cli("replay", "--dry-run", "availability").code == 0
    assert cli("replay", "availability").code == 0
    assert cli("verify").code == 0
    checks = {row["check"]: row["status"] for row in cli("doctor", "-o", "json").json()}
    assert checks["projection availability"] == "ok"


async def test_watch_follows_the_log(migrated_url: str) -> None:
    with servers.nats_server() as nats:
        await _record(nats.url)
        environ = os.environ | {"NATS_URL": nats.url, "DATABASE_URL": migrated_url}
        async with watching(environ, "get", "slices", "w1-gpu", "-w") as process:
            heading, row = await next_line(process), await next_line(process)
            assert heading.split()[4:] == ["TOTAL", "ALLOCATED", "AVAILABLE", "PARTIAL"]
            assert row.split()[4:] == ["3", "1", "2", "1"]
            await _record(nats.url, fact_at(9, "ml/new", allocated(("w1", "b", None))))
            assert (await next_line(process)).split()[4:] == ["3", "2", "1", "1"]
            await _record(
                nats.url, fact_at(9, "ml/new", allocated(("w1", "b", None))), fact_at(10, "w1-gpu", withdrawn())
            )
            assert process.stderr is not None
            async with asyncio.timeout(DEADLINE_S):
                assert b"slice 'w1-gpu' is gone" in await process.stderr.readline()


def _without_hours(result: Result) -> list[dict[str, object]]:
    """The rows without what goes on as the test runs."""
    return [{name: value for name, value in row.items() if name != "hours"} for row in result.json()]


def _terminal() -> Console:
    return replace(Console.of(sys.stdout, sys.stderr, os.environ), terminal=True)


async def _record(nats_url: str, *more: RecordedFact) -> None:
    """Record the history, and more after it; what is there already is not recorded again."""
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, events_of([*HISTORY, *more]))

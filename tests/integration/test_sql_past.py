"""`gpuledger sql` in the past: every table and view as it was, in temporary tables that nobody else sees."""

import asyncio
import os
import random
import signal
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.cli.times import format_time
from gpuledger.db.views import FUNCTIONS_AT, REPORTS
from gpuledger.tools.importers.sample import write_titan_sample
from gpuledger.tools.queries.backend import all_projections
from support import servers
from support.cli import INTERRUPTED, Cli
from support.projections import execute
from support.titan import TitanFile
from support.up import COMMAND, gpuledger
from support.waiting import eventually

DEVICES = 60
MOMENTS = 3


@pytest.fixture(scope="module")
def sample() -> Iterator[Path]:
    with servers.short_directory() as folder:
        path = folder / "sample.csv"
        with path.open("w", newline="") as file:
            write_titan_sample(file, seed=7, devices=DEVICES)
        yield path


@pytest.fixture(scope="module")
def urls(postgres_server_url: str) -> Iterator[dict[str, str]]:
    with servers.nats_server() as nats, servers.fresh_database(postgres_server_url) as database_url:
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


@pytest.fixture(scope="module")
def fleet(urls: dict[str, str], sample: Path) -> TitanFile:
    for arguments in (("migrate",), ("import", "titan", str(sample))):
        done = gpuledger(sample.parent / "data", *arguments, **urls)
        assert done.returncode == 0, done.stderr
    return TitanFile(sample)


@pytest.fixture
def cli(
    urls: dict[str, str], fleet: TitanFile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    for name, url in urls.items():
        monkeypatch.setenv(name, url)
    monkeypatch.setenv("NO_COLOR", "1")
    return Cli(capsys)


def _rows(cli: Cli, statement: str, *options: str) -> list[dict[str, object]]:
    result = cli("sql", statement, *options, "-o", "json")
    assert result.code == 0, result.err
    found: list[dict[str, object]] = result.json()
    return found


def _columns(cli: Cli, kind: str) -> str:
    return ", ".join(cli("get", kind, "-o", "json").json()[0])


@pytest.mark.parametrize("kind", ["devices", "slots", "contradictions", "failures"])
def test_a_table_at_a_time_is_what_get_shows(cli: Cli, fleet: TitanFile, kind: str) -> None:
    columns, table = _columns(cli, kind), kind.removesuffix("s")
    for moment in random.Random(kind).sample(fleet.moments(), MOMENTS):
        at = ("--at", format_time(moment))
        shown = cli("get", kind, *at, "-o", "json").json()
        assert sorted(map(repr, _rows(cli, f"SELECT {columns} FROM {table}", *at))) == sorted(map(repr, shown))


@pytest.mark.parametrize("kind", ["devices", "slots", "contradictions", "failures", "sources"])
def test_a_table_as_recorded_is_what_get_shows(cli: Cli, kind: str) -> None:
    head = int(str(_rows(cli, "SELECT max(position) AS at FROM gpuledger.projection")[0]["at"]))
    columns, table = _columns(cli, kind), kind.removesuffix("s")
    for number in random.Random(kind).sample(range(1, head), MOMENTS):
        as_recorded = ("--as-recorded", str(number))
        shown = cli("get", kind, *as_recorded, "-o", "json").json()
        found = _rows(cli, f"SELECT {columns} FROM gpuledger_live.{table}", *as_recorded)
        assert sorted(map(repr, found)) == sorted(map(repr, shown))


@pytest.mark.long
def test_every_table_as_recorded_now_is_the_live_one(cli: Cli, urls: dict[str, str]) -> None:
    for projection in all_projections():
        for spec in projection.specs:
            statement = f"SELECT * FROM gpuledger_live.{spec.name} AS t ORDER BY t"
            assert _rows(cli, statement, "--as-recorded", "now") == _rows(cli, statement), spec.name


@pytest.mark.long
def test_every_view_and_function_has_a_past(cli: Cli) -> None:
    for report in REPORTS:
        view = report.replace("-", "_")
        for options in (
            ("--at", "2016-01-01"),
            ("--as-recorded", "150"),
            ("--at", "2016-01-01", "--as-recorded", "99"),
        ):
            assert _rows(cli, f"SELECT count(*) AS n FROM report.{view}", *options) == _rows(
                cli, f"SELECT count(*) AS n FROM {view}", *options
            )
    for function in FUNCTIONS_AT:
        statement = f"SELECT count(*) AS n FROM {{}}{function}('2015-01-01Z')"
        assert _rows(cli, statement.format("report."), "--at", "2016-01-01") == _rows(cli, statement.format(""))


def test_a_view_at_a_time_counts_to_that_time(cli: Cli, fleet: TitanFile) -> None:
    moment = fleet.moments()[len(fleet.moments()) // 2]
    (row,) = _rows(
        cli, "SELECT max(counted_to) AS at, report.asked_at() AS asked FROM lifetimes", "--at", format_time(moment)
    )
    assert row["at"] == row["asked"] == format_time(moment)


def test_both_together_is_what_was_known_then_of_that_time(cli: Cli, fleet: TitanFile) -> None:
    moment = format_time(fleet.moments()[40])
    recorded = _rows(cli, "SELECT count(*) AS n FROM installation", "--as-recorded", "20")
    assert _rows(cli, "SELECT count(*) AS n FROM installation", "--as-recorded", "20", "--at", "now") == recorded
    both = _rows(cli, "SELECT count(*) AS n FROM installation", "--as-recorded", "20", "--at", moment)
    assert both == _rows(cli, f"SELECT count(*) AS n FROM installations_at('{moment}')", "--as-recorded", "20")


@pytest.mark.parametrize(
    ("statement", "options", "code", "expected"),
    [
        ("SELECT 1", ("--at", "2999-01-01"), 2, "lies in the future"),
        ("SELECT 1", ("--as-recorded", "+1h"), 2, "lies in the future"),
        ("SELECT 1", ("--as-recorded", "999999999"), 2, "The log ends at position"),
        ("SELECT 1", ("--as-recorded", "7/1"), 2, "The log is at generation 1, not 7"),
        ("SELECT * FROM source", ("--at", "2016-01-01"), 2, "Use --as-recorded"),
        ("SELECT * FROM seal_chain", ("--at", "2016-01-01"), 2, "Use --as-recorded"),
        ("SELECT * FROM projection", ("--at", "2016-01-01"), 1, "gpuledger.projection has no past"),
        ("SELECT * FROM information_schema.tables", ("--at", "2016-01-01"), 1, "has no past"),
        ("SELECT 'gpuledger_live.device'::regclass", ("--at", "2016-01-01"), 1, "reads the present"),
        ("SELEC 1", ("--at", "2016-01-01"), 1, "Only a query has a past"),
        ("SELECT nothing FROM device", ("--at", "2016-01-01"), 1, 'column "nothing" does not exist'),
        ("SELECT 1; DELETE FROM gpuledger_live.device", ("--at", "2016-01-01"), 1, "PostgreSQL refuses"),
        (
            "SELECT 1) AS q; DROP TABLE gpuledger_live.device; SELECT (1",
            ("--at", "2016-01-01"),
            1,
            "PostgreSQL refuses",
        ),
        ("WITH gone AS (DELETE FROM device RETURNING 1) SELECT * FROM gone", ("--at", "2016-01-01"), 1, "refuses"),
        ("SELECT * FROM device FOR UPDATE", ("--at", "2016-01-01"), 1, "PostgreSQL refuses"),
        ("SELECT pg_read_file('/etc/passwd')", ("--at", "2016-01-01"), 1, "permission denied"),
        ("SELECT pg_sleep(60)", ("--at", "2016-01-01", "--timeout", "1"), 1, "took too long"),
        ("SELECT * FROM installation", ("--at", "2016-01-01", "--scratch-max", "0"), 2, "--scratch-max"),
        ("/* a comment */ COPY (SELECT 1) TO PROGRAM 'cat'", (), 1, "COPY is not supported here"),
        ("SELECT pg_read_file('/etc/passwd')", (), 1, "permission denied"),
    ],
)
def test_what_is_refused(cli: Cli, statement: str, options: tuple[str, ...], code: int, expected: str) -> None:
    result = cli("sql", statement, *options)
    assert (result.code, result.out) == (code, ""), result.err
    assert expected in result.err
    assert "pg_temp" not in result.err


def test_a_past_that_takes_too_much_room_ends(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuledger.tools.queries.sql.Bounds.bytes_max", 1000)
    for options in (("--at", "2016-01-01"), ("--as-recorded", "now")):
        result = cli("sql", "SELECT * FROM installation", *options)
        assert (result.code, "raise the bound with --scratch-max" in result.err) == (1, True)


def test_the_servers_clock_is_announced(cli: Cli) -> None:
    result = cli("sql", "SELECT count(*) FROM device WHERE last_failed_at < now()", "--at", "2016-01-01")
    assert (result.code, "report.asked_at()" in result.err) == (0, True)


def test_a_query_comes_from_a_file_or_stdin(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "query.sql"
    file.write_text("-- how many\nSELECT count(*) AS n FROM device;\n-- so many\n")
    expected = _rows(cli, "SELECT count(*) AS n FROM device")
    assert cli("sql", "-f", str(file), "-o", "json").json() == expected
    assert cli("sql", "-f", str(file), "--as-recorded", "now", "-o", "json").json() == expected
    for arguments in (("-",), ("-f", "-")):
        with file.open() as opened:
            monkeypatch.setattr("sys.stdin", opened)
            assert cli("sql", *arguments, "-o", "json").json() == expected
    assert cli("sql").code == 2
    assert cli("sql", "SELECT 1", "-f", str(file)).code == 2
    assert cli("sql", "-f", str(tmp_path / "none.sql")).code == 2


def test_nothing_is_left_in_the_database(cli: Cli, urls: dict[str, str]) -> None:
    objects = "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text ~ '^pg_temp'"
    url = urls["DATABASE_URL"]
    assert _rows(cli, "SELECT count(*) AS n FROM fleet", "--at", "2016-01-01", "--as-recorded", "now") == [{"n": 1}]
    cli("sql", "SELECT pg_sleep(60) FROM device", "--as-recorded", "now", "--timeout", "1")
    assert execute(url, objects) == [(0,)]


def test_a_table_with_the_name_of_a_view_is_found(cli: Cli) -> None:
    for statement in (
        "SELECT count(*) AS n FROM gpuledger_live.allocation",
        "SELECT count(allocation.node) AS n FROM gpuledger_live.allocation WHERE gpuledger_live.allocation.node <> ''",
        "SELECT count(*) AS n FROM report.allocation JOIN gpuledger_live.allocation AS other USING (workload)",
        "SELECT count(report.day) AS n FROM fleet_by_day AS report WHERE day < '2014-01-01'",
    ):
        assert _rows(cli, statement, "--as-recorded", "now") == _rows(cli, statement)


def test_columns_may_share_a_name(cli: Cli) -> None:
    assert _rows(cli, "SELECT 1 AS a, 2 AS a", "--at", "2016-01-01") == [{"a": 1, "a_1": 2}]


@pytest.mark.parametrize(("ends_by", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, INTERRUPTED)])
async def test_an_end_in_the_middle_leaves_nothing(
    urls: dict[str, str], fleet: TitanFile, ends_by: signal.Signals, code: int
) -> None:
    sessions = "SELECT state, query FROM pg_stat_activity WHERE application_name = 'gpuledger sql'"
    query = "SELECT pg_sleep(600) FROM device"
    arguments = ("sql", query, "--as-recorded", "now", "--timeout", "600")
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stderr=PIPE, env={**os.environ, **urls})

    async def runs() -> bool:
        return any(state == "active" and query in text for state, text in execute(urls["DATABASE_URL"], sessions))

    async def is_gone() -> bool:
        objects = "SELECT count(*) FROM pg_class WHERE relnamespace::regnamespace::text ~ '^pg_temp'"
        return execute(urls["DATABASE_URL"], sessions) == [] and execute(urls["DATABASE_URL"], objects) == [(0,)]

    await eventually(runs)
    process.send_signal(ends_by)
    assert await process.wait() == code
    await eventually(is_gone)

"""Commands that only ask read from a standby, and contact nothing else; all others stay with the primary."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuledger.cli.times import format_time
from gpuledger.local.servers.postgres import PostgresServer
from integration.replica.test_reading import NOBODY, facts
from support import servers
from support.cli import Cli
from support.events import hour
from support.ledgers import new_ledger
from support.projections import execute, publish
from support.standby import StandbyServer, pause_replay, replayed, resume_replay, url_on


@pytest.fixture
def cli(
    clean_nats_url: str,
    url: str,
    replica_url: str,
    standby: StandbyServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Cli:
    """The command line: the rows of some facts stand in both servers, and only the standby is there to ask."""
    asyncio.run(_record(clean_nats_url))
    cli = Cli(capsys)
    for name, value in (("NATS_URL", clean_nats_url), ("DATABASE_URL", url), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    assert cli("report", "fleet").code == 0
    asyncio.run(replayed(url, standby))
    monkeypatch.setenv("DATABASE_READ_URL", replica_url)
    return cli


async def _record(nats_url: str) -> None:
    async with new_ledger(nats_url) as ledger:
        await publish(ledger, facts())


ASKED = [
    ("report", "fleet"),
    ("report", "mtbf", "-o", "csv"),
    ("sql", "SELECT * FROM gpuledger_live.device"),
    ("get", "devices"),
    ("get", "devices", "--at", format_time(hour(2))),
    ("get", "devices", "--as-recorded", "1"),
    ("get", "nodes"),
    ("get", "workloads"),
    ("get", "allocations"),
    ("get", "slices"),
    ("get", "slicepools"),
    ("diff", format_time(hour(0)), "now"),
    ("describe", "device", "d1", "--no-kube"),
    ("timeline", "device", "d1", "--no-kube"),
    ("timeline", "node", "n1", "--no-kube"),
    ("log", "tail"),
    ("log", "show", "1"),
    ("log", "stats"),
    ("log", "gaps"),
]


def test_commands_that_only_ask_need_no_primary(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", NOBODY)
    for command in ASKED:
        result = cli(*command)
        assert result.code == 0, (command, result.err)
        assert all(line.startswith("No ") for line in result.err.splitlines()), command
    monkeypatch.delenv("DATABASE_READ_URL")
    assert cli(*ASKED[0]).code == 4


@pytest.fixture
def person_url(url: str, replica_url: str, standby: StandbyServer) -> Iterator[str]:
    """The standby for somebody who may only read."""
    execute(url, "CREATE ROLE person LOGIN PASSWORD 'secret' IN ROLE gpuledger_reader")
    asyncio.run(replayed(url, standby))
    yield f"postgresql://person:secret@{replica_url.rpartition('@')[2]}"
    execute(url, "DROP ROLE person")


def test_a_login_that_may_only_read_is_enough_there(cli: Cli, person_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", NOBODY)
    monkeypatch.setenv("DATABASE_READ_URL", person_url)
    for command in ASKED:
        result = cli(*command)
        assert result.code == 0, (command, result.err)
    assert check_of(cli)[0] == "ok"


def test_the_past_of_a_query_is_folded_on_the_primary(
    cli: Cli, replica_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("sql", "SELECT count(*) AS n FROM gpuledger_live.device", "--as-recorded", "2", "-o", "json")
    result = cli(*command)
    assert (result.code, result.json()) == (0, [{"n": 1}])
    assert "which a replica does not take: the server in DATABASE_URL answers" in result.err
    monkeypatch.setenv("DATABASE_URL", replica_url)
    refused = cli(*command)
    assert (refused.code, "which a standby does not take" in refused.err) == (1, True)


def test_a_primary_may_answer_as_well(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_READ_URL", url)
    monkeypatch.setenv("DATABASE_URL", NOBODY)
    assert (cli("report", "fleet").code, cli("get", "devices").code) == (0, 0)


def test_of_several_servers_a_standby_answers(
    cli: Cli, primary: PostgresServer, url: str, replica_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, _, database = replica_url.rpartition("/")
    several = f"{login.rpartition(':')[0]}:{primary.port},{login.rpartition('@')[2]}/{database}"
    monkeypatch.setenv("DATABASE_READ_URL", f"{several}?target_session_attrs=prefer-standby&load_balance_hosts=random")
    monkeypatch.setenv("DATABASE_URL", NOBODY)
    found = cli("sql", "SELECT pg_is_in_recovery() AS follows, count(*) AS n FROM gpuledger_live.device", "-o", "json")
    assert found.json() == [{"follows": True, "n": 1}]


def test_whoever_writes_or_proves_asks_the_primary_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_READ_URL", NOBODY)
    for command in ("verify", "history list", "migrate", "replay devices --dry-run"):
        assert cli(*command.split()).code == 0, command


def test_tables_are_archived_from_the_replica(
    cli: Cli, standby: StandbyServer, replica_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "archive")
    assert cli("log", "archive", "write", folder).code == 0
    found = cli("sql", "SELECT count(*) AS n FROM device", "--archive", folder, "-o", "json")
    assert found.json() == [{"n": 1}]
    monkeypatch.setenv("DATABASE_READ_URL", NOBODY)
    assert cli("log", "archive", "write", folder).code == 4
    assert cli("log", "archive", "write", folder, "--no-tables").code == 0


def test_a_replica_that_is_away_or_not_migrated_is_named(
    cli: Cli, primary: PostgresServer, standby: StandbyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_READ_URL", NOBODY)
    away = cli("report", "fleet")
    assert (away.code, "DATABASE_READ_URL names it; without that the primary answers" in away.err) == (4, True)
    with servers.fresh_database(primary.url) as empty:
        asyncio.run(replayed(empty, standby))
        monkeypatch.setenv("DATABASE_READ_URL", url_on(standby, empty))
        empty_one = cli("report", "fleet")
    assert empty_one.code == 1
    assert "has not replayed the migration yet, or is no standby of the server in DATABASE_URL" in empty_one.err


def check_of(cli: Cli) -> tuple[str, str]:
    (found,) = [row for row in cli("doctor", "-o", "json").json() if row["check"] == "read replica"]
    return found["status"], found["detail"]


def test_a_replica_of_another_ledger_is_refused(cli: Cli, clean_nats_url: str) -> None:
    assert check_of(cli)[0] == "ok"
    servers.delete_streams(clean_nats_url)
    asyncio.run(_record(clean_nats_url))
    refused = cli("report", "fleet")
    assert refused.code == 1
    assert "which is no standby of ours: " in refused.err
    assert "follow the ledger" in refused.err
    status, detail = check_of(cli)
    assert (status, "is no standby of ours" in detail) == ("failed", True)


def test_doctor_checks_the_replica(
    cli: Cli, standby: StandbyServer, monkeypatch: pytest.MonkeyPatch, freezing: Callable[[], None]
) -> None:
    status, detail = check_of(cli)
    assert (status, " is a standby, " in detail) == ("ok", True)
    freezing()
    status, detail = check_of(cli)
    assert (status, "its replay is paused" in detail) == ("warning", True)
    monkeypatch.setenv("DATABASE_READ_URL", NOBODY)
    status, detail = check_of(cli)
    assert (status, "Cannot reach PostgreSQL" in detail) == ("failed", True)


@pytest.fixture
def freezing(standby: StandbyServer) -> Iterator[Callable[[], None]]:
    """Pauses the replay until the test is over."""

    def pause() -> None:
        pause_replay(standby)

    yield pause
    resume_replay(standby)

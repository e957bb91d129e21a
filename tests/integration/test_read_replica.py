"""Commands that only ask read from a standby: nothing else is contacted, and each says how far its rows reach."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from gpuledger.cli.times import format_time
from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import RecoveryConflictError
from gpuledger.db.readonly import read_only
from gpuledger.db.replica import CONFLICT_RETRIES_MAX, past_conflicts, replay_of
from gpuledger.events.device import DeviceFailed, DeviceInserted
from gpuledger.events.envelope import Decoded
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.readmodels.projections import DevicesProjection, NodesProjection
from gpuledger.tools.queries.backend import Backend, bring_current, read
from gpuledger.tools.queries.replica import Replica
from gpuledger.tools.reporting import Silent
from support import projections, servers
from support.cli import Cli
from support.events import event, hour
from support.ledgers import jetstream_ledger, new_ledger
from support.projections import execute, publish
from support.standby import StandbyServer, ask, pause_replay, replayed, resume_replay, url_on
from support.waiting import eventually

NOBODY = "postgresql://nobody@127.0.0.1:1/nothing"
"""A primary that is away."""

DEVICES = b"SELECT device FROM gpuledger_live.device ORDER BY device"


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with servers.postgres_server() as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[StandbyServer]:
    """It cancels at once whatever is in the way of its replay."""
    patience = {"max_standby_streaming_delay": "0", "hot_standby_feedback": "off"}
    with servers.short_directory() as folder, StandbyServer(folder / "standby", primary, patience) as server:
        yield server


@pytest.fixture(scope="module")
def template(primary: PostgresServer) -> Iterator[str]:
    with servers.fresh_database(primary.url) as url:
        yield servers.database_name(projections.prepare(url))


@pytest.fixture
def url(primary: PostgresServer, standby: StandbyServer, template: str) -> Iterator[str]:
    """A migrated database of the primary, which the standby follows."""
    resume_replay(standby)
    with servers.fresh_database(primary.url, template) as url:
        yield url
        resume_replay(standby)


@pytest.fixture
def replica_url(standby: StandbyServer, url: str) -> str:
    return url_on(standby, url)


def failed(device: str, number: int) -> Decoded:
    return event(DeviceFailed(kind="DBE"), device, number=number)


def facts() -> list[Decoded]:
    return [event(DeviceInserted(slot="n1/0"), "d1", at=1, number=1), failed("d1", 2)]


@pytest.fixture
async def backend(clean_nats_url: str, url: str) -> AsyncIterator[Backend]:
    """The primary, which the rows of some facts stand in."""
    async with jetstream_ledger(clean_nats_url) as ledger:
        found = Backend(ledger, url, clean_nats_url, None)
        await publish(ledger, facts())
        await bring_current(found)
        yield found


class Lines(Silent):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def on(replica_url: str, backend: Backend, *, wait_s: float) -> tuple[Backend, Lines]:
    """The same ledger, with a replica that answers, and a primary that nobody reaches."""
    lines = Lines()
    replica = Replica(replica_url, backend.ledger, lines, wait_s=wait_s)
    return Backend(backend.ledger, NOBODY, backend.nats_url, None, lines, replica=replica), lines


async def devices(backend: Backend) -> list[str]:
    async def work(connection: AsyncConnection) -> list[str]:
        return [device for (device,) in await (await connection.execute(DEVICES)).fetchall()]

    await bring_current(backend, [DevicesProjection()])
    return await read(backend, work, application_name="gpuledger test")


async def test_rows_are_awaited_on_the_replica(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    await replayed(url, standby)
    pause_replay(standby)
    await publish(backend.ledger, [failed("d2", 3)])
    await bring_current(backend, [DevicesProjection()])
    asking, lines = on(replica_url, backend, wait_s=60)
    task = asyncio.create_task(devices(asking))

    async def is_waiting() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gpuledger test' AND query = 'ROLLBACK'"
        return ask(standby, query) == [(1,)]

    await eventually(is_waiting)
    resume_replay(standby)
    assert await task == ["d1", "d2"]
    assert not lines.lines


async def test_a_replica_that_does_not_get_there_says_how_far_it_is(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    await replayed(url, standby)
    pause_replay(standby)
    await publish(backend.ledger, [failed("d2", 3)])
    await bring_current(backend, [DevicesProjection()])
    asking, lines = on(replica_url, backend, wait_s=0)
    assert await devices(asking) == ["d1"]
    behind, replay = lines.lines
    assert (
        "Projection devices is 1 events behind the log; what follows is as of its checkpoint, 1/2, recorded" in behind
    )
    assert "has replayed what was committed by 20" in replay
    assert "its replay is paused" in replay
    assert "Without DATABASE_READ_URL the primary answers" in replay


async def test_projections_with_one_checkpoint_are_one_line(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    await replayed(url, standby)
    pause_replay(standby)
    await publish(backend.ledger, [failed("d2", 3)])
    asking, lines = on(replica_url, backend, wait_s=0)
    await bring_current(asking, [DevicesProjection(), NodesProjection()])
    await read(asking, replay_of, application_name="gpuledger test")
    assert lines.lines[0].startswith(
        "Projections devices, nodes are 1 events behind the log; what follows is as of their"
    )


@pytest.mark.parametrize("is_idle", [True, False], ids=["between statements", "within a statement"])
async def test_what_recovery_cancels_is_asked_again(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer, is_idle: bool
) -> None:
    asking, _ = on(replica_url, backend, wait_s=60)
    times = 0

    async def work(connection: AsyncConnection) -> int:
        nonlocal times
        times += 1
        await connection.execute(DEVICES)
        if times == 1:
            await conflict(connection, url, standby, is_idle=is_idle)
        return times

    await bring_current(asking, [DevicesProjection()])
    await replayed(url, standby)
    assert await read(asking, work, application_name="gpuledger test") == 2


async def conflict(connection: AsyncConnection, url: str, standby: StandbyServer, *, is_idle: bool) -> None:
    """Have the primary vacuum rows that the transaction may still see, until that cancels it."""
    question = "SELECT 1" if is_idle else "SELECT pg_sleep(600)"
    asking = None if is_idle else asyncio.create_task(connection.execute(question))

    async def is_asking() -> bool:
        return ask(standby, "SELECT 1 FROM pg_stat_activity WHERE query = %s", question) != []

    async def is_canceled() -> bool:
        # Another session of the primary may keep these rows for a moment, and vacuum then leaves them.
        execute(url, "UPDATE gpuledger_live.device SET device = device")
        execute(url, "VACUUM gpuledger_live.device")
        await replayed(url, standby)
        if asking is None:
            await connection.execute("SELECT 1")
        return asking is not None and asking.done()

    if asking is not None:
        await eventually(is_asking)
    await eventually(is_canceled)
    if asking is not None:
        await asking


async def test_what_recovery_cancels_each_time_ends_with_what_to_do(
    backend: Backend, replica_url: str, url: str, standby: StandbyServer
) -> None:
    times, pauses = 0, list[float]()

    async def work() -> None:
        nonlocal times
        times += 1
        async with read_only(replica_url) as connection:
            await connection.execute(DEVICES)
            await conflict(connection, url, standby, is_idle=False)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    await replayed(url, standby)
    with pytest.raises(
        RecoveryConflictError, match=r"max_standby_streaming_delay .* hot_standby_feedback = on"
    ) as found:
        await past_conflicts(work, pause=pause)
    assert "User query might have needed to see row versions that must be removed" in str(found.value)
    assert times == CONFLICT_RETRIES_MAX + 1
    assert pauses == sorted(pauses)
    assert len(pauses) == CONFLICT_RETRIES_MAX


async def test_what_has_another_cause_is_not_asked_again(replica_url: str, url: str, standby: StandbyServer) -> None:
    times = 0

    async def work() -> None:
        nonlocal times
        times += 1
        async with read_only(replica_url, statement_timeout_s=1) as connection:
            await connection.execute("SELECT pg_sleep(600)")

    await replayed(url, standby)
    with pytest.raises(psycopg.errors.QueryCanceled):
        await past_conflicts(work)
    assert times == 1


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
    ("get", "slices"),
    ("get", "slicepools"),
    ("diff", format_time(hour(0)), "now"),
    ("describe", "device", "d1", "--no-kube"),
    ("timeline", "device", "d1", "--no-kube"),
]


def test_commands_that_only_ask_need_no_primary(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", NOBODY)
    for command in ASKED:
        result = cli(*command)
        assert result.code == 0, (command, result.err)
        assert set(result.err.splitlines()) <= {"No slices found.", "No slicepools found."}, command
    monkeypatch.delenv("DATABASE_READ_URL")
    assert cli(*ASKED[0]).code == 4


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
    for command in ("verify", "history list", "log gaps", "migrate", "replay devices --dry-run"):
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

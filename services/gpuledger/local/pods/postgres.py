"""PostgreSQL in a pod of the chart: one database, whose owner logs in over TLS with the password of the Secret.

The superuser has no way in: what takes one is done while the server does not listen. The server never runs as root, and
never listens without TLS. A renewed certificate takes a reload, another password a new start.
"""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpuledger.api.bundled import DATABASE, DATABASE_USER, PASSWORD_KEY
from gpuledger.local.pods.postgres_pod import (
    CONNECTIONS_MAX,
    SUPERUSER,
    PostgresOptions,
    PostgresPod,
    check_tls,
    password,
)
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.local.servers.postgres_data import (
    await_old_sessions,
    check_version,
    new_data,
    run_initdb,
    run_program,
)
from gpuledger.local.servers.privileges import Launch, as_account, as_ourselves, owner_for

_ACCESS: Final = f"""
local all {SUPERUSER} reject
local {DATABASE} all scram-sha-256
hostssl all {SUPERUSER} all reject
hostssl {DATABASE} all all scram-sha-256
"""
"""Whoever connects over the network does so over TLS; the socket is for commands in the container."""

OF_PATRONI: Final = "patroni.dynamic.json"
"""Patroni keeps a copy of the cluster's configuration among the data."""

_ACCESS_FILE: Final = "pg_hba.conf"


class PodPostgres(PostgresPod):
    """PostgreSQL with the database `gpuledger`."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": ends the sessions, writes a checkpoint

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__(options)
        self._password = ""

    def prepare(self) -> Launch:
        """Make the database the first time, and give its owner the Secret's password."""
        self._owner = owner_for(self._data)
        launch = as_ourselves("INT") if self._owner is None else as_account(self._owner, "INT")
        self._options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._password = password(self.secret / PASSWORD_KEY)
        self._write_runtime({_ACCESS_FILE: _ACCESS})
        if self._data.exists():
            _check_alone(self._data)
            check_version(self._data, launch)
        else:
            with new_data(self._data, self._owner) as fresh:
                run_initdb(fresh, launch, SUPERUSER, "--auth-local=reject", "--auth-host=reject")
                owner = f"CREATE ROLE {DATABASE_USER} LOGIN CREATEROLE;\n"
                _alone(fresh, launch, f"{owner}CREATE DATABASE {DATABASE} OWNER {DATABASE_USER};\n")
        check_tls(launch, self._data)
        await_old_sessions(self._data)
        _alone(self._data, launch, f"ALTER ROLE {DATABASE_USER} PASSWORD '{self._password}';\n")
        return launch

    def command(self) -> Sequence[str]:
        """The command line of the server."""
        settings = self._settings() | {
            "listen_addresses": "*",
            "port": str(self._options.port),
            "max_connections": str(CONNECTIONS_MAX),
            "hba_file": str(self._options.runtime / _ACCESS_FILE),
        }
        arguments = (f"--{name}={value}" for name, value in settings.items())
        return (str(find_binaries() / "postgres"), "-D", str(self._data), *arguments)

    def renew(self) -> bool:
        """Put the renewed certificate where the server reloads it from; another password takes a new start."""
        self._write_runtime({_ACCESS_FILE: _ACCESS})
        return password(self.secret / PASSWORD_KEY) != self._password


def _check_alone(data: Path) -> None:
    """Refuse the data of one of three servers: another one may have more of what was committed."""
    if (data / OF_PATRONI).exists():
        raise ServerStartError(
            f"{data} is of one of three servers, and another of them may have more of what was committed. Set "
            "postgresql.replicas=3 again, save the database with `pg_dump --format=custom`, and load it into a server "
            "with an empty volume by `pg_restore --no-owner --no-privileges --exit-on-error` (docs/installing.md)."
        )


def _alone(data: Path, launch: Launch, statements: str) -> None:
    """Run statements, one a line, while no server does and nobody can connect."""
    done = run_program("postgres", data, launch, "--single", "-D", str(data), SUPERUSER, given=statements.encode())
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0 or "ERROR:" in output:
        shown = "\n".join(line for line in output.splitlines() if "PASSWORD" not in line)
        raise ServerStartError(f"PostgreSQL could not prepare {data}. Check the disk. Its output:\n{shown}")

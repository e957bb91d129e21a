"""PostgreSQL in a pod of the chart: one database, whose owner logs in over TLS with the password of the Secret.

The superuser has no way in: what takes one is done while the server does not listen. The server never runs as root, and
never listens without TLS. A renewed certificate takes a reload, another password a new start.
"""

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.api.bundled import DATABASE, DATABASE_USER, PASSWORD_KEY
from gpuledger.db.engine import KEEPALIVE_COUNT, KEEPALIVE_IDLE_S, KEEPALIVE_INTERVAL_S, UNACKNOWLEDGED_MAX_S
from gpuledger.local.pods.foreground import PodServer
from gpuledger.local.servers.errors import ServerStartError
from gpuledger.local.servers.files import write_private
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.local.servers.postgres_data import (
    PASSABLE_MODE,
    await_old_sessions,
    check_version,
    new_data,
    run_initdb,
    run_program,
)
from gpuledger.local.servers.privileges import Account, Launch, as_account, as_ourselves, owner_for
from gpuledger.runtime.settings import POSTGRES_BIN

SUPERUSER: Final = "postgres"
CONNECTIONS_MAX: Final = 200
"""Three pods of the services hold some 50 each while a Deployment is rolled out."""

_ACCESS: Final = f"""
local all {SUPERUSER} reject
local {DATABASE} all scram-sha-256
hostssl all {SUPERUSER} all reject
hostssl {DATABASE} all all scram-sha-256
"""
"""Whoever connects over the network does so over TLS; the socket is for commands in the container."""

_ACCESS_FILE: Final = "pg_hba.conf"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_PASSWORD: Final = re.compile(r"[0-9A-Za-z_-]{16,128}", re.ASCII)
_SETTINGS: Final = {
    "listen_addresses": "*",
    "ssl": "on",
    "max_connections": str(CONNECTIONS_MAX),
    # A session whose machine is gone ends, so that the locks it held are free for others.
    "tcp_keepalives_idle": str(KEEPALIVE_IDLE_S),
    "tcp_keepalives_interval": str(KEEPALIVE_INTERVAL_S),
    "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    "tcp_user_timeout": f"{UNACKNOWLEDGED_MAX_S}s",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresOptions(NamedTuple):
    """Where the server keeps and finds what it needs."""

    secret: Path
    data: Path
    runtime: Path
    port: int


class PodPostgres(PodServer):
    """PostgreSQL with the database `gpuledger`."""

    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # "fast": ends the sessions, writes a checkpoint

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__(options.secret)
        self._options = options
        self._data = options.data / "postgres"
        self._password = ""
        self._owner: Account | None = None

    def prepare(self) -> Launch:
        """Make the database the first time, and give its owner the Secret's password."""
        self._owner = owner_for(self._data)
        launch = as_ourselves("INT") if self._owner is None else as_account(self._owner, "INT")
        self._options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._password = _password(self.secret / PASSWORD_KEY)
        self._write_runtime()
        if self._data.exists():
            check_version(self._data, launch)
        else:
            with new_data(self._data, self._owner) as fresh:
                run_initdb(fresh, launch, SUPERUSER, "--auth-local=reject", "--auth-host=reject")
                owner = f"CREATE ROLE {DATABASE_USER} LOGIN CREATEROLE;\n"
                _alone(fresh, launch, f"{owner}CREATE DATABASE {DATABASE} OWNER {DATABASE_USER};\n")
        _check_tls(self._data, launch)
        await_old_sessions(self._data)
        _alone(self._data, launch, f"ALTER ROLE {DATABASE_USER} PASSWORD '{self._password}';\n")
        return launch

    def command(self) -> Sequence[str]:
        """The command line of the server."""
        runtime = self._options.runtime
        settings = _SETTINGS | {
            "port": str(self._options.port),
            "hba_file": str(runtime / _ACCESS_FILE),
            "ssl_cert_file": str(runtime / _CERTIFICATE),
            "ssl_key_file": str(runtime / _KEY),
            "unix_socket_directories": str(runtime),
        }
        arguments = (f"--{name}={value}" for name, value in settings.items())
        return (str(find_binaries() / "postgres"), "-D", str(self._data), *arguments)

    def renew(self) -> bool:
        """Put the renewed certificate where the server reloads it from; another password takes a new start."""
        self._write_runtime()
        return _password(self.secret / PASSWORD_KEY) != self._password

    def _write_runtime(self) -> None:
        """Write who may connect, and copy the certificate: the server wants its key to be its own file."""
        runtime = self._options.runtime
        files = {_ACCESS_FILE: _ACCESS} | {name: _read(self.secret / name) for name in (_CERTIFICATE, _KEY)}
        for name, text in files.items():
            write_private(runtime / name, text)
        if self._owner is not None:
            self._options.data.chmod(PASSABLE_MODE)
            for path in (runtime, *(runtime / name for name in files)):
                os.chown(path, self._owner.uid, self._owner.gid)


def _alone(data: Path, launch: Launch, statements: str) -> None:
    """Run statements, one a line, while no server does and nobody can connect."""
    done = run_program("postgres", data, launch, "--single", "-D", str(data), SUPERUSER, given=statements.encode())
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0 or "ERROR:" in output:
        shown = "\n".join(line for line in output.splitlines() if "PASSWORD" not in line)
        raise ServerStartError(f"PostgreSQL could not prepare {data}. Check the disk. Its output:\n{shown}")


def _check_tls(data: Path, launch: Launch) -> None:
    """Refuse a build without OpenSSL, such as the wheel's."""
    done = run_program("postgres", data, launch, "-D", str(data), "--ssl=on", "-C", "ssl")
    if done.returncode != 0:
        raise ServerStartError(
            f"The PostgreSQL in {find_binaries()} cannot serve TLS. Run the image, or name a build with OpenSSL "
            f"in {POSTGRES_BIN}. Its output:\n{done.stdout.decode(errors='replace')}"
        )


def _password(path: Path) -> str:
    text = _read(path).strip()
    if not _PASSWORD.fullmatch(text):
        raise ServerStartError(
            f"The password in {path} is not 16 to 128 letters, digits, `_` and `-`. Delete its key from the Secret, "
            "and run `gpuledger credentials create`, as `helm upgrade` does."
        )
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ServerStartError(
            f"The Secret of PostgreSQL has no {path.name} ({error.strerror}). Run `gpuledger credentials create`, as "
            "the chart's job does, and mount the Secret."
        ) from error


def link_programs(runtime: Path) -> None:
    """Give the programs for back-ups and people a short path in the container."""
    for name in ("psql", "pg_dump", "pg_restore", "pg_isready"):
        link = runtime / name
        link.unlink(missing_ok=True)
        link.symlink_to(find_binaries() / name)

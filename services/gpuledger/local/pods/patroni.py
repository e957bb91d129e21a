"""One of three PostgreSQL servers in a pod: Patroni runs it, elects the leader, and makes the others follow.

Beside it, the leader's process keeps the database, the roles and their passwords, and the cluster's configuration as
they should be. It never runs statements on a server that follows, and never while the server is not running: what a
follower writes by itself would part it from its leader.
"""

import asyncio
import json
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import psycopg
import structlog
import yaml
from psycopg import sql

from gpuledger.api.bundled import (
    DATABASE,
    DATABASE_USER,
    PASSWORD_KEY,
    PATRONI_PORT,
    REPLICATION_KEY,
    REWIND_KEY,
)
from gpuledger.local.pods.patroni_config import (
    CLUSTER,
    REPLICATOR,
    REWINDER,
    Member,
    Passwords,
    Place,
    configuration,
)
from gpuledger.local.pods.postgres_pod import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    SUPERUSER,
    PostgresOptions,
    PostgresPod,
    check_tls,
    password,
)
from gpuledger.local.servers.errors import EmbeddedError
from gpuledger.local.servers.postgres_binaries import find_binaries
from gpuledger.local.servers.postgres_data import check_version
from gpuledger.local.servers.privileges import Launch, as_account, as_ourselves, owner_for
from gpuledger.runtime.tasks import end

KEEP_INTERVAL_S: Final = 2.0
"""How often a leader looks whether something is missing."""

ANSWER_MAX_S: Final = 10.0

_FILE: Final = "patroni.yml"
_REWIND_FUNCTIONS: Final = (
    "pg_ls_dir(text, boolean, boolean)",
    "pg_stat_file(text, boolean)",
    "pg_read_binary_file(text)",
    "pg_read_binary_file(text, bigint, bigint, boolean)",
)

log = structlog.get_logger("gpuledger.serve")


class PodPatroni(PostgresPod):
    """A PostgreSQL server of three."""

    name = "Patroni"
    stop_signal = signal.SIGTERM  # stops PostgreSQL in order, and gives up the lead

    def __init__(self, options: PostgresOptions, member: Member) -> None:
        super().__init__(options)
        self._member = member
        self._socket = options.runtime / f".s.PGSQL.{options.port}"

    def prepare(self) -> Launch:
        """Write Patroni's configuration; refuse data or programs that it could not run."""
        self._owner = owner_for(self._data)
        launch = as_ourselves("TERM") if self._owner is None else as_account(self._owner, "TERM")
        self._options.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_tls(launch, self._data)
        if self._data.exists():
            check_version(self._data, launch)
        self.renew()
        return launch

    def command(self) -> Sequence[str]:
        """The command line of Patroni."""
        return (sys.executable, "-W", "ignore::FutureWarning", "-m", "patroni", str(self._options.runtime / _FILE))

    def renew(self) -> bool:
        """Write the configuration and the certificate anew, which Patroni and PostgreSQL reload."""
        passwords = Passwords(*(password(self.secret / key) for key in (REPLICATION_KEY, REWIND_KEY)))
        place = Place(self._data, self._options.runtime, find_binaries(), self._options.port)
        made = configuration(self._member, passwords, self._settings(), place)
        self._write_runtime({_FILE: yaml.safe_dump(made)})
        return False

    def beside(self) -> AbstractAsyncContextManager[None]:
        """Keep what a leader has to."""
        return self._keeping()

    @asynccontextmanager
    async def _keeping(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            await end([task])

    async def _keep(self) -> None:
        kept: Mapping[str, str] | None = None
        while True:
            await asyncio.sleep(KEEP_INTERVAL_S)
            if not self._socket.exists():
                kept = None  # the server is not there yet, or starts anew
                continue
            try:
                due = self._passwords()
                led = await self._lead(None if due == kept else due)
                if led and kept != due:
                    await asyncio.to_thread(self._configure)
                kept = due if led else None
            except (psycopg.Error, OSError, ValueError, EmbeddedError) as error:
                kept = None
                log.info("serve.not-kept", server=self.name, error=str(error).strip(), retry_s=KEEP_INTERVAL_S)

    def _passwords(self) -> dict[str, str]:
        keys = {DATABASE_USER: PASSWORD_KEY, REPLICATOR: REPLICATION_KEY, REWINDER: REWIND_KEY}
        return {role: password(self.secret / key) for role, key in keys.items()}

    async def _lead(self, passwords: Mapping[str, str] | None) -> bool:
        """Whether this server leads; if it does, make database and roles with these passwords."""
        connection = await psycopg.AsyncConnection.connect(
            host=str(self._options.runtime),
            port=self._options.port,
            user=SUPERUSER,
            dbname=SUPERUSER,
            autocommit=True,
            connect_timeout=int(ANSWER_MAX_S),
        )
        async with connection:
            follows = await (await connection.execute("SELECT pg_is_in_recovery()")).fetchone()
            if follows != (False,):
                return False
            if passwords is not None:
                # Followers may need these roles first.
                await connection.execute("SET synchronous_commit = local")
                for statement in await statements(connection, passwords):
                    await connection.execute(statement)
        return True

    def _configure(self) -> None:
        """Put the cluster's configuration where all members read it."""
        runtime = self._options.runtime
        context = ssl.create_default_context(cafile=runtime / AUTHORITY)
        context.load_cert_chain(runtime / CERTIFICATE, runtime / KEY)
        request = urllib.request.Request(
            f"https://localhost:{PATRONI_PORT}/config",
            json.dumps(CLUSTER).encode(),
            {"Content-Type": "application/json"},
            method="PATCH",
        )
        with urllib.request.urlopen(request, timeout=ANSWER_MAX_S, context=context) as answer:  # noqa: S310
            answer.read()


async def statements(connection: psycopg.AsyncConnection[Any], passwords: Mapping[str, str]) -> list[sql.Composed]:
    """What gives the server its roles with these passwords, and its database."""
    roles = {name for (name,) in await (await connection.execute("SELECT rolname FROM pg_roles")).fetchall()}
    options = {DATABASE_USER: "LOGIN CREATEROLE", REPLICATOR: "LOGIN REPLICATION", REWINDER: "LOGIN"}
    made = []
    for role, given in passwords.items():
        verb = sql.SQL("ALTER ROLE {} {} PASSWORD {}" if role in roles else "CREATE ROLE {} {} PASSWORD {}")
        verifier = connection.pgconn.encrypt_password(given.encode(), role.encode(), b"scram-sha-256").decode()
        made.append(verb.format(sql.Identifier(role), sql.SQL(options[role]), sql.Literal(verifier)))
    grant = sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}")
    functions = [sql.SQL("pg_catalog." + one) for one in _REWIND_FUNCTIONS]
    made += [grant.format(function, sql.Identifier(REWINDER)) for function in functions]
    found = await (await connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))).fetchone()
    if found is None:
        create = sql.SQL("CREATE DATABASE {} OWNER {}")
        made.append(create.format(sql.Identifier(DATABASE), sql.Identifier(DATABASE_USER)))
    return made

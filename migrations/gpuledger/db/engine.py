"""Connections to PostgreSQL, and the one place where psycopg's errors become ours.

Nothing here knows a table. A password never gets into a message. Both ends of every connection give up a peer that
vanished, so that whatever the session held is free within `PEER_LOST_MAX_S`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Literal

from gpuledger.db.errors import DatabaseUnavailableError, DatabaseUrlError
from gpuledger.db.pooler import is_pooled, refuse_shared_sessions

CONNECT_TIMEOUT_S = 10
KEEPALIVE_IDLE_S = 4
KEEPALIVE_INTERVAL_S = 2
KEEPALIVE_COUNT = 3
UNACKNOWLEDGED_MAX_S = 8
"""How long what was sent may stay unacknowledged, and a silent peer unanswering, before the connection is given up."""

PEER_LOST_MAX_S = KEEPALIVE_IDLE_S + KEEPALIVE_COUNT * KEEPALIVE_INTERVAL_S
"""After so long at most either end knows that the other's machine has vanished."""

_IN_UTC = "SET TIME ZONE 'UTC'"
"""For every session, whatever URL, environment and server say: in a zone with daylight saving a time within the
repeated hour equals no time in UTC, and a late one may lie beyond the calendar's end."""

_BEGIN_SESSION = "; ".join(
    (
        _IN_UTC,
        # The server's end of the connection; a unix socket ignores them.
        f"SET tcp_keepalives_idle = {KEEPALIVE_IDLE_S}",
        f"SET tcp_keepalives_interval = {KEEPALIVE_INTERVAL_S}",
        f"SET tcp_keepalives_count = {KEEPALIVE_COUNT}",
        f"SET tcp_user_timeout = '{UNACKNOWLEDGED_MAX_S}s'",
        "SELECT pg_backend_pid()",
    )
)

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

_TLS_TROUBLE = re.compile(
    r"\b(private key|SSL|TLS|certificate|sslmode|sslrootcert|sslcert|sslkey|root\.crt)\b", re.IGNORECASE
)
_TLS_REMEDY = (
    "See to sslmode, sslrootcert, sslcert and sslkey in DATABASE_URL, or PGSSLMODE, PGSSLROOTCERT, PGSSLCERT and "
    "PGSSLKEY (docs/operations.md, TLS to PostgreSQL)."
)

_POOL_IS_FULL = re.compile(r"query_wait_timeout|no more connections allowed", re.IGNORECASE)
_POOL_REMEDY = "Its pooler has no session left for us: give the pool more of them, or let DATABASE_URL name PostgreSQL."

DATABASE_TRANSIENT = (
    DatabaseUnavailableError,
    psycopg.OperationalError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.TransactionTimeout,
)
"""What is over some time later, such as a server that is away, or a primary that was demoted under a session."""

AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]
Connection = psycopg.Connection[tuple[Any, ...]]


@asynccontextmanager
async def connect(
    url: str, *, application_name: str, autocommit: bool = True, settings: Mapping[str, str] = NO_SETTINGS
) -> AsyncIterator[AsyncConnection]:
    """A connection of one's own, closed at the end.

    Args:
        url: as PostgreSQL takes it: postgresql://user:password@host:port/database.
        application_name: what `pg_stat_activity` shows.
        autocommit: without it the block is one transaction, committed unless it raises.
        settings: the server's settings for this session, such as `work_mem`; a pooler refuses those of a connection.

    Raises:
        DatabaseUrlError: the URL cannot be understood.
        DatabaseUnavailableError: no connection can be made, or it is lost within the block.
        PoolerError: a pooler lets several connections share one session.
    """
    connection = await open_connection(url, application_name=application_name, autocommit=autocommit, settings=settings)
    try:
        async with connection:
            yield connection
    except psycopg.OperationalError as error:
        if connection.broken:
            raise unavailable(url, error) from error
        raise


async def open_connection(
    url: str, *, application_name: str, autocommit: bool = True, settings: Mapping[str, str] = NO_SETTINGS
) -> AsyncConnection:
    """A connection that the caller closes; raises as `connect` does."""
    parameters = connection_parameters(url, application_name)
    try:
        connection = await psycopg.AsyncConnection.connect(**parameters, autocommit=True)
        try:
            cursor = await connection.execute(_beginning(settings))
            if is_pooled(connection, _last_value(cursor)):
                await asyncio.to_thread(refuse_shared_sessions, parameters, place_of(url))
            await connection.set_autocommit(autocommit)
        except BaseException:
            await connection.close()  # cancelled here, say: nobody else has it yet
            raise
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error
    return connection


@contextmanager
def connect_blocking(
    url: str, *, application_name: str, autocommit: bool = True, settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[Connection]:
    """`connect` for code that runs before or beside any event loop."""
    connection = open_blocking(url, application_name=application_name, autocommit=autocommit, settings=settings)
    try:
        with connection:
            yield connection
    except psycopg.OperationalError as error:
        if connection.broken:
            raise unavailable(url, error) from error
        raise


def open_blocking(
    url: str, *, application_name: str, autocommit: bool, settings: Mapping[str, str] = NO_SETTINGS
) -> Connection:
    """A connection that the caller closes; raises as `connect` does."""
    parameters = connection_parameters(url, application_name)
    try:
        connection = psycopg.connect(**parameters, autocommit=True)
        try:
            if is_pooled(connection, _last_value(connection.execute(_beginning(settings)))):
                refuse_shared_sessions(parameters, place_of(url))
            connection.autocommit = autocommit
        except BaseException:
            connection.close()
            raise
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error
    return connection


def connection_parameters(url: str, application_name: str) -> dict[str, Any]:
    """What libpq is given: the URL's own parameters win, but for the name."""
    return {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": KEEPALIVE_IDLE_S,
        "keepalives_interval": KEEPALIVE_INTERVAL_S,
        "keepalives_count": KEEPALIVE_COUNT,
        "tcp_user_timeout": UNACKNOWLEDGED_MAX_S * 1000,
        **_parsed(url),
        "application_name": application_name,
    }


def place_of(url: str) -> str:
    """Host, port and database of a URL, for messages; hosts with a comma where there are several."""
    given = _parsed(url)
    hosts = str(given.get("host") or given.get("hostaddr") or "the local socket").split(",")
    ports = str(given.get("port") or "5432").split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    places = ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=True))
    return f"{places}/{given.get('dbname') or given.get('user') or ''}"


def unavailable(url: str, error: psycopg.Error) -> DatabaseUnavailableError:
    """The error that says that this database cannot be reached, and why."""
    reason = _reason(error)
    return DatabaseUnavailableError(f"Cannot reach PostgreSQL at {place_of(url)}: {reason}. {_remedy(reason)}")


def _remedy(reason: str) -> str:
    if _TLS_TROUBLE.search(reason):
        return _TLS_REMEDY
    return _POOL_REMEDY if _POOL_IS_FULL.search(reason) else "Start it, or set DATABASE_URL."


def _beginning(settings: Mapping[str, str]) -> bytes:
    """What a session begins with; several statements, which take no parameters. The last one returns its process."""
    set_one = SQL("SELECT set_config({}, {}, false); ")
    ours = "".join(set_one.format(Literal(name), Literal(value)).as_string() for name, value in settings.items())
    return f"{ours}{_BEGIN_SESSION}".encode()


def _last_value(cursor: psycopg.Cursor[tuple[Any, ...]] | psycopg.AsyncCursor[tuple[Any, ...]]) -> object:
    """The value that the last of several statements returned."""
    while cursor.nextset():
        pass
    assert cursor.pgresult is not None, "the statements returned"
    return int(cursor.pgresult.get_value(0, 0) or 0)


def _parsed(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        # The cause would show the URL, and the password in it.
        raise DatabaseUrlError(
            "The database URL cannot be understood. Set DATABASE_URL to postgresql://user:password@host:port/database."
        ) from None


def _reason(error: psycopg.Error) -> str:
    """The last part of libpq's first line: what the server or the system said."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    return first.rsplit("failed: ", 1)[-1].strip().rstrip(".")

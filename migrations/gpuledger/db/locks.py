"""Advisory locks by name, which elect the one process that may write something.

A connection holds a lock, and the lock is gone with it. A lock belongs to one database: the same name in another
database is another lock. Who stands by asks now and then, and never waits within the server: a statement that waits
there has a snapshot, which keeps vacuum from removing anything in the whole database.
"""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn, TypeVar

import psycopg

from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.errors import DatabaseUnavailableError, LockLostError
from gpuledger.runtime.backoff import Jitter, system_jitter
from gpuledger.runtime.tasks import Work, abandon, run_until_one_ends

VIEWS_LOCK = "views"
"""Who makes the views anew takes this first, before any table: see `lock_until_commit`."""

WATCHERS_LOCK = "watchers"
STATUSWRITER_LOCK = "statuswriter"
NODEWRITER_LOCK = "nodewriter"
REMEDIATOR_LOCK = "remediator"
PREFLIGHT_LOCK = "preflight-coordinator"
EXTENDER_LOCK = "extender"
EXPORT_LOCK = "export"
"""Who exports events holds this one."""

SNAPSHOTS_LOCK = "fold-snapshots"
"""Who takes snapshots of folds, or deletes some, holds this one."""

EDGE_LOCKS = (
    WATCHERS_LOCK,
    STATUSWRITER_LOCK,
    NODEWRITER_LOCK,
    REMEDIATOR_LOCK,
    PREFLIGHT_LOCK,
    EXTENDER_LOCK,
)
"""The locks of the services beside a cluster that have one active instance."""

STANDBY_INTERVAL_S = 1.0
"""How often who stands by asks for the lock; jitter cuts up to half, so that not all ask at once."""

LOCK_WAIT_MAX_S = 15
"""How long a transaction under way waits for a lock."""

SEVERED_WAIT_S = 0.5
"""How long what was done over a severed connection has to find out; it may have waited for something else."""

APPLICATION_NAME_BYTES_MAX = 63
"""What PostgreSQL keeps of a session's name."""

T = TypeVar("T")

_KEY_MASK = (1 << 63) - 1
_SINCE = "%Y%m%dT%H%M%SZ"
_TRY_HOLD = (
    "SELECT CASE WHEN current_setting('transaction_read_only')::boolean THEN '' "
    "WHEN pg_try_advisory_lock(%s) THEN set_config('application_name', "
    "%s || to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD\"T\"HH24MISS\"Z\"'), false) END, pg_backend_pid()"
)
_READ_ONLY = (
    "PostgreSQL takes no writes: it is a standby that was not promoted, or default_transaction_read_only is on. "
    "Let DATABASE_URL name the primary, such as with target_session_attrs=read-write."
)
_SINCE_BYTES = len("20260101T000000Z")
_HOLDER = re.compile(r"(?P<application>.+) (?P<process>\S+/\d+) (?P<since>\d{8}T\d{6}Z)")
_HOLDERS = (
    "SELECT (classid::bigint << 32) | objid::bigint, pid, application_name FROM pg_locks "
    "JOIN pg_database ON pg_database.oid = database JOIN pg_stat_activity USING (pid) "
    "WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pg_database.datname = current_database()"
)


def lock_key(name: str) -> int:
    """The number that PostgreSQL knows a lock by; the same in every process, 63 bits wide."""
    return int.from_bytes(sha256(f"gpuledger:{name}".encode()).digest()[:8], "big") & _KEY_MASK


class LockCheck(NamedTuple):
    """How often the connection that holds a lock is checked, and how soon PostgreSQL has to answer.

    Together they are shorter than PostgreSQL takes to give up a machine that vanished (`UNACKNOWLEDGED_MAX_S`): a
    holder that is cut off stops before another one begins.
    """

    interval_s: float = 1.4
    answer_timeout_s: float = 5.0


class LockHolder(NamedTuple):
    """Who holds a lock: the session's name, the process as host/number, and since when (None: it does not say)."""

    application: str
    process: str
    since: datetime | None


class HeldLock:
    """A lock that a connection holds, for as long as the same session of the server answers."""

    def __init__(self, connection: AsyncConnection, name: str, backend: int, check: LockCheck) -> None:
        self._connection = connection
        self._name = name
        self._backend = backend
        self._check = check

    async def watch(self) -> NoReturn:
        """Never return.

        Raises:
            LockLostError: the lock is lost, or nobody answers any more.
        """
        while True:
            try:
                await _silence(self._connection, self._check.interval_s)
            except psycopg.OperationalError as error:
                raise self._lost(str(error).strip()) from error
            await self.beat()

    async def beat(self, asked: Coroutine[Any, Any, int] | None = None) -> None:
        """Return once the session that holds the lock has answered; raises as `watch`.

        `asked` is a question of the caller's own over the connection, whose answer has the session's number as well.
        """
        asked = _backend_of(self._connection) if asked is None else asked
        try:
            backend = await _in_time(self._connection, asked, self._check.answer_timeout_s)
        except TimeoutError as error:
            raise self._lost("time-out") from error
        except psycopg.OperationalError as error:
            raise self._lost(str(error).strip()) from error
        if backend != self._backend:
            raise self._lost("another session answers, as behind a pooler that changes them")

    async def within(self, timeout_s: float, work: Coroutine[Any, Any, T]) -> T:
        """What is done over the connection that holds the lock; too late or cancelled, connection and lock are lost.

        Raises:
            LockLostError: it took too long.
        """
        try:
            return await _in_time(self._connection, work, timeout_s)
        except TimeoutError as error:
            raise self._lost(f"no end after {timeout_s:g} s") from error

    def _lost(self, reason: str) -> LockLostError:
        return LockLostError(
            f"PostgreSQL no longer answers for the lock {self._name!r} ({reason}). "
            "Nothing more is written until this process holds it again."
        )


async def try_lock(connection: AsyncConnection, name: str) -> bool:
    """Take the lock if nobody holds it; says whether this connection has it now."""
    cursor = await connection.execute("SELECT pg_try_advisory_lock(%s)", [lock_key(name)])
    return await cursor.fetchone() == (True,)


async def try_hold(connection: AsyncConnection, name: str, check: LockCheck | None = None) -> HeldLock | None:
    """Take the lock if nobody holds it, and let the session's name say which process leads, since when.

    Raises:
        DatabaseUnavailableError: the server takes no writes, such as a standby, which has locks of its own.
    """
    application = connection.info.parameter_status("application_name") or "gpuledger"
    leading = leading_name(application, socket.gethostname(), os.getpid())
    cursor = await connection.execute(_TRY_HOLD, [lock_key(name), f"{leading} "])
    row = await cursor.fetchone()
    assert row is not None, "the query always gives a row"
    session_name, backend = row
    if session_name == "":
        raise DatabaseUnavailableError(_READ_ONLY)
    return None if session_name is None else HeldLock(connection, name, backend, check or LockCheck())


async def stand_by(
    connection: AsyncConnection,
    name: str,
    check: LockCheck | None = None,
    *,
    interval_s: float = STANDBY_INTERVAL_S,
    jitter: Jitter = system_jitter,
    before_each: Callable[[], Awaitable[None]] | None = None,
) -> HeldLock:
    """Ask for the lock until it is ours, over a connection whose statements commit by themselves.

    `before_each` is awaited before each time; what it raises ends the wait.

    Raises:
        DatabaseUnavailableError: PostgreSQL is silent for as long as `check` lets it be, and the lock may be ours by
            then; or it takes no writes.
    """
    assert connection.autocommit, "a transaction that stays open while it stands by stops vacuum"
    check = check or LockCheck()

    async def ask() -> HeldLock | None:
        if before_each is not None:
            await before_each()
        return await try_hold(connection, name, check)

    while True:
        try:
            held = await _in_time(connection, ask(), check.answer_timeout_s)
        except TimeoutError as error:
            raise DatabaseUnavailableError(
                f"PostgreSQL does not answer who holds the lock {name!r}. Check it, and what stands before it."
            ) from error
        if held is not None:
            return held
        await asyncio.sleep(interval_s * (1 + jitter()) / 2)


async def while_locked(
    database_url: str, name: str, work: Callable[[], Work], *, application_name: str, check: LockCheck
) -> None:
    """Wait for the lock, and run `work` until it ends or the lock is lost, before anything else happens.

    Raises:
        LockLostError: the connection, and the lock with it, is lost.
        DatabaseUnavailableError: no connection can be made.
    """
    async with connect(database_url, application_name=application_name) as connection:
        held = await stand_by(connection, name, check)
        await run_until_one_ends(held.watch(), work())


async def unlock(connection: AsyncConnection, name: str) -> bool:
    """Give the lock back; says whether this connection held it."""
    cursor = await connection.execute("SELECT pg_advisory_unlock(%s)", [lock_key(name)])
    return await cursor.fetchone() == (True,)


async def unlock_all(connection: AsyncConnection) -> None:
    """Give back whatever locks the connection holds, if it still answers; for the end of a command.

    A session that is closed keeps its locks until the server has noticed, so the next command could find them taken.
    """
    with suppress(psycopg.Error):
        await connection.execute("SELECT pg_advisory_unlock_all()")


async def lock_until_commit(connection: AsyncConnection, name: str) -> None:
    """Wait until the lock is ours, for the rest of the transaction under way.

    Nothing in that transaction waits for a lock longer than `LOCK_WAIT_MAX_S`: who comes after waits behind it.
    """
    await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT_MAX_S}s'")
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [lock_key(name)])


async def lock_holders(connection: AsyncConnection, names: Iterable[str]) -> dict[str, LockHolder | None]:
    """Who holds each of these locks at this moment, None for nobody. Sessions that are gone hold nothing."""
    cursor = await connection.execute(_HOLDERS)
    found = {key: _holder(pid, application or "") for key, pid, application in await cursor.fetchall()}
    return {name: found.get(lock_key(name)) for name in names}


def leading_name(application: str, host: str, process: int) -> str:
    """The session's name without the time; of a long host name the end is kept, which tells pods apart."""
    room = APPLICATION_NAME_BYTES_MAX - len(f"{application} /{process} ") - _SINCE_BYTES
    return f"{application} {host[-max(room, 1) :]}/{process}"


def _holder(backend: int, application: str) -> LockHolder:
    found = _HOLDER.fullmatch(application)
    if found is None:
        return LockHolder(application, f"session {backend}", None)
    since = datetime.strptime(found["since"], _SINCE).replace(tzinfo=UTC)
    return LockHolder(found["application"], found["process"], since)


async def _silence(connection: AsyncConnection, longest_s: float) -> None:
    """Return after a while, or as soon as the connection breaks: a server that was asked nothing says nothing else.

    psycopg's own wait for notifications would wake the process ten times a second.
    """
    loop, spoken = asyncio.get_running_loop(), asyncio.Event()
    descriptor = connection.fileno()
    loop.add_reader(descriptor, spoken.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await spoken.wait()
    finally:
        loop.remove_reader(descriptor)


async def _backend_of(connection: AsyncConnection) -> int:
    row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    assert row is not None, "the query always gives a row"
    return int(row[0])


async def _in_time(connection: AsyncConnection, asking: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """What the server answers to what is asked over the connection, which is severed where that takes too long.

    Raises:
        TimeoutError: it took too long.
    """
    task = asyncio.create_task(asking)
    try:
        for _ in range(2):  # the event loop itself may have stood still for one half
            await asyncio.wait((task,), timeout=timeout_s / 2)
            if task.done():
                return task.result()
        raise TimeoutError
    finally:
        if not task.done():
            _sever(connection)  # to cancel a query would wait for the very server that is silent
            try:
                await asyncio.wait((task,), timeout=SEVERED_WAIT_S)
            finally:
                await abandon(task)


def _sever(connection: AsyncConnection) -> None:
    """End whatever waits on the connection, whose socket belongs to libpq."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)

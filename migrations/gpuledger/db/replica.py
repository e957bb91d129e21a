"""What differs where a standby answers: recovery may cancel a query, and the rows are as old as what was replayed.

A standby replays what its primary did. A query that stands in the way of that, such as one on rows that were vacuumed
meanwhile or on a table that a rebuild replaced, is canceled once `max_standby_streaming_delay` is over. Nothing here
writes or takes a lock, which a standby could not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

import psycopg

from gpuledger.db.engine import AsyncConnection, place_of
from gpuledger.db.errors import DatabaseUnavailableError, DatabaseUrlError, RecoveryConflictError, SchemaOutdatedError
from gpuledger.db.revision import check_current
from gpuledger.runtime.backoff import Backoff, Jitter, Retries, system_jitter
from gpuledger.runtime.settings import DATABASE_READ_URL, DATABASE_URL

CONFLICT_RETRIES_MAX: Final = 3
"""How often what recovery canceled is asked again."""

CONFLICT_BACKOFF: Final = Backoff(first_s=0.5, max_s=4.0)
"""How long the standby has to catch up before that: one that is behind its primary has less patience with queries."""

REPLAY_DELAY_WARN_S: Final = 30.0
"""How far a standby may be behind its primary before `doctor` warns."""

_CONFLICTS: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
"""SQLSTATE 40001 and 40P01, which a transaction that only reads meets nowhere but in the way of recovery."""

_REPLAY: Final = """
SELECT pg_is_in_recovery(), clock_timestamp(), pg_last_xact_replay_timestamp(),
    coalesce(pg_last_wal_receive_lsn() > pg_last_wal_replay_lsn(), false),
    CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END,
    EXISTS (SELECT FROM pg_stat_wal_receiver)
"""

T = TypeVar("T")
Pause = Callable[[float], Awaitable[None]]


class Replay(NamedTuple):
    """How far a server has replayed its primary's changes.

    `replayed_at` is when the primary committed the last transaction that was replayed, None where there was none yet.
    `has_more`: changes have come that are not replayed yet. A primary is no standby, and replays nothing.
    """

    is_standby: bool
    asked_at: datetime
    replayed_at: datetime | None
    has_more: bool
    is_paused: bool
    is_receiving: bool

    @property
    def is_current(self) -> bool:
        """Whether it has replayed all that its primary has sent, and its primary sends."""
        return not self.is_standby or (self.is_receiving and not self.is_paused and not self.has_more)

    @property
    def delay_s(self) -> float:
        """How old the last replayed transaction is; 0 where the standby is current."""
        if self.is_current or self.replayed_at is None:
            return 0.0
        return max((self.asked_at - self.replayed_at).total_seconds(), 0.0)

    @property
    def reason(self) -> str:
        """Why it goes no further, with what to do; empty where it only takes its time."""
        if self.is_paused:
            return "its replay is paused (SELECT pg_wal_replay_resume())"
        if self.is_standby and not self.is_receiving:
            return "it receives nothing from its primary (primary_conninfo, and the standby's log)"
        return ""


async def replay_of(connection: AsyncConnection) -> Replay:
    """How far the server behind a connection has replayed its primary's changes."""
    row = await (await connection.execute(_REPLAY.encode())).fetchone()
    assert row is not None, "the query always gives a row"
    return Replay(*row)


async def past_conflicts(
    ask: Callable[[], Awaitable[T]], *, pause: Pause = asyncio.sleep, jitter: Jitter = system_jitter
) -> T:
    """What is asked of a standby, asked again where recovery cancels it.

    Raises:
        RecoveryConflictError: recovery canceled it each time.
    """
    retries = Retries(CONFLICT_BACKOFF, jitter)
    while True:
        try:
            return await ask()
        except (psycopg.OperationalError, DatabaseUnavailableError) as error:
            conflict = _conflict_in(error)
            if conflict is None:
                raise
            if retries.failures == CONFLICT_RETRIES_MAX:
                raise _refused_by_recovery(conflict) from error
        await pause(retries.pause_s())


def _conflict_in(error: BaseException | None) -> psycopg.Error | None:
    """The conflict with recovery that an error is, or comes from: one between two statements ends the connection."""
    while error is not None:
        if isinstance(error, _CONFLICTS):
            return error
        error = error.__cause__
    return None


def _refused_by_recovery(conflict: psycopg.Error) -> RecoveryConflictError:
    reason = (conflict.diag.message_detail or conflict.diag.message_primary or str(conflict)).strip().rstrip(".")
    return RecoveryConflictError(
        f"The read replica canceled the query {CONFLICT_RETRIES_MAX + 1} times, because it kept it from replaying its "
        f"primary's changes: {reason}. Ask for less at a time, raise max_standby_streaming_delay on the replica, or "
        f"set hot_standby_feedback = on there; without {DATABASE_READ_URL} the primary answers."
    )


def check_replica(url: str) -> None:
    """Check that the server that is to answer instead of the primary can be read by this build.

    Raises:
        DatabaseUnavailableError: no connection can be made.
        DatabaseUrlError: its URL cannot be understood.
        SchemaOutdatedError: it has not got the migration yet, or is no standby of our primary.
        SchemaUnknownError: a newer build migrated it to what this one does not work with.
    """
    try:
        check_current(url)
    except DatabaseUrlError:
        raise DatabaseUrlError(
            f"{DATABASE_READ_URL} cannot be understood. Set it to postgresql://user:password@host:port/database."
        ) from None
    except DatabaseUnavailableError as error:
        raise DatabaseUnavailableError(
            f"{error} {DATABASE_READ_URL} names it; without that the primary answers."
        ) from error
    except SchemaOutdatedError as error:
        raise SchemaOutdatedError(
            f"{DATABASE_READ_URL} leads to {place_of(url)}, which has not replayed the migration yet, or is no standby "
            f"of the server in {DATABASE_URL}. {error}"
        ) from error

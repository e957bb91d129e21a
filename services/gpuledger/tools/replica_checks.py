"""The check of `gpuledger doctor` on the read replica: whether it answers, for our ledger, and how far behind it is.

Changes nothing, and takes no lock.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import psycopg

from gpuledger.db.engine import AsyncConnection, connect, place_of
from gpuledger.db.errors import DatabaseError
from gpuledger.db.replica import REPLAY_DELAY_WARN_S, Replay, replay_of
from gpuledger.db.revision import check_connection
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import LogReplacedError
from gpuledger.projection.checkpoint import live_checkpoints
from gpuledger.projection.continuity import check_ledger
from gpuledger.projection.definition import Projection
from gpuledger.runtime.settings import DATABASE_READ_URL, DATABASE_URL
from gpuledger.tools.doctor import Check, failed, ok, warning

CHECK = "read replica"

LOOKS_MAX: Final = 5
"""How often a standby is looked at that has not replayed all that it has."""

LOOK_AGAIN_S: Final = 0.2


async def replica_check(url: str, projections: Sequence[Projection], ledger: Ledger | None) -> Check:
    """Whether the server that answers what is only asked can do so; `ledger` is None where it cannot be used."""
    try:
        async with connect(url, application_name="gpuledger doctor") as connection:
            await check_connection(connection)
            if ledger is not None:
                await _confirm_ledger(connection, projections, ledger)
            return replay_check(await _settled(connection), place_of(url))
    except LogReplacedError as error:
        found = f"{place_of(url)} is no standby of ours: {error}."
        return failed(CHECK, f"{found} Let {DATABASE_READ_URL} name one of the server in {DATABASE_URL}.")
    except (DatabaseError, psycopg.Error) as error:
        return failed(CHECK, f"{str(error).strip()} ({DATABASE_READ_URL} names it.)")


async def _settled(connection: AsyncConnection) -> Replay:
    """How far it has replayed, once it has what came just now: the transaction before that may be long ago."""
    for _ in range(LOOKS_MAX):
        replay = await replay_of(connection)
        if replay.is_current or replay.reason:
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    return replay


async def _confirm_ledger(connection: AsyncConnection, projections: Sequence[Projection], ledger: Ledger) -> None:
    found = await live_checkpoints(connection, projections)
    for projection in projections:
        if projection.name in found:
            check_ledger(projection, ledger, found[projection.name])


def replay_check(replay: Replay, place: str) -> Check:
    """Whether a replica keeps up with its primary."""
    if not replay.is_standby:
        return ok(CHECK, f"{place} is no standby: it answers as a primary does")
    if replay.reason or replay.delay_s > REPLAY_DELAY_WARN_S:
        reason = f", as {replay.reason}" if replay.reason else ""
        return warning(
            CHECK, f"{place} is {replay.delay_s:.0f} s behind its primary{reason}. Reports are as old as that."
        )
    return ok(CHECK, f"{place} is a standby, {replay.delay_s:.0f} s behind its primary")

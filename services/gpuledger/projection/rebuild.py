"""Blue/green rebuild: new rows grow in shadow tables while the old ones serve, then both change places.

They begin with those of the nearest snapshot of this version where there is one, and else with the first event. The
swap is one transaction that also makes the views anew, because views follow a table and not its name. The old rows stay
as edition `prev`, so that a rollback is possible. Cancelling leaves nothing behind.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import psycopg
import structlog
from psycopg import AsyncConnection

from gpuledger.db.engine import connect
from gpuledger.db.locks import LOCK_WAIT_MAX_S, VIEWS_LOCK, lock_until_commit, stand_by, try_hold, unlock_all
from gpuledger.db.views import keep_views_async, recreate_views_async
from gpuledger.domain.fact import changed_rows
from gpuledger.events.position import Offset, events_up_to, is_after, is_origin, lag
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Ledger
from gpuledger.projection.checkpoint import LIVE, NEXT, PREV, Checkpoint
from gpuledger.projection.continuity import confirm_log, follows_log
from gpuledger.projection.contraction import create_shadows
from gpuledger.projection.decision_size import is_too_large
from gpuledger.projection.definition import Projection
from gpuledger.projection.editions import (
    drop_edition,
    drop_tables,
    move_edition,
    rebuild_lock,
    renew_edition,
)
from gpuledger.projection.errors import FewerEventsError, NothingToRollBackError, RebuildBusyError, SwapBlockedError
from gpuledger.projection.fold import Fold
from gpuledger.projection.fold_snapshots.begun_tables import begin_tables
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots, LoadedFold
from gpuledger.projection.outbox import copy_outbox, exchange_outbox, recall
from gpuledger.projection.replay import OnProgress, new_fold, skipped_positions
from gpuledger.projection.shadow_rows import ShadowRows
from gpuledger.projection.shared_numbers import SharedNumbers
from gpuledger.projection.store import Decider, ProjectionStore
from gpuledger.runtime.backoff import Retries
from gpuledger.runtime.clock import NewId, random_id
from gpuledger.runtime.garbage import seldom_collected

log = structlog.get_logger("gpuledger.projection")

CHANGED_ROWS_MAX = 100_000
"""How many rows may have changed before they are written: the fewer writes, the fewer rows are written twice."""

CATCH_UP_ROUNDS_MAX = 20
"""How often a rebuild catches up with a live projection that moves on, before it makes it wait."""

SWAPS_MAX = 100
"""How often an upgrade tries to change places with rows that queries hold."""

CLEAN_UP_WAIT_MAX_S = 5.0
"""How long a rebuild that lost its connection waits until PostgreSQL has ended its session, or another rebuild ends."""


class RebuildResult(NamedTuple):
    """The outcome of a rebuild: its checkpoint, where it began, and how many events it counted from there on."""

    checkpoint: Checkpoint
    since: Offset
    events: int


async def rebuild(
    projection: Projection,
    ledger: Ledger,
    database_url: str,
    *,
    new_id: NewId = random_id,
    on_progress: OnProgress | None = None,
    accept_loss: bool = False,
    snapshots: FoldSnapshots | None = None,
) -> RebuildResult:
    """Fold the log into new tables, from the nearest of these snapshots or from its start, and swap them in.

    With `accept_loss` it is from its start: nobody has checked what the log lost before the snapshot.

    Raises:
        RebuildBusyError: another rebuild of this projection is running, or it was begun meanwhile.
        LogChangedError: the rows that serve follow what the log has lost; `accept_loss` says that this is known.
        FewerEventsError: the log holds fewer events than the rows that serve count; `accept_loss` lets it pass.
        ProjectionError: an event stops the fold; the rows that serve are untouched.
    """
    async with _rebuilding(projection, database_url) as connection:
        work = _Rebuild(projection, ledger, connection, new_id, on_progress or (lambda _done, _total: None))
        with seldom_collected():
            await work.begin(None if accept_loss else snapshots, database_url, accept_loss=accept_loss)
            await work.catch_up()
            result = await work.swap()
        await work.offer_numbers(database_url)
        return result


async def upgrade(
    projection: Projection,
    ledger: Ledger,
    database_url: str,
    *,
    new_id: NewId = random_id,
    on_progress: OnProgress | None = None,
    blocked: Retries,
    snapshots: FoldSnapshots | None = None,
) -> bool:
    """Rebuild rows of an older version; False if there are none of one, or no longer. It never rebuilds downwards.

    A swap that a query's lock holds up is tried again after the pauses of `blocked`, with what was folded until then.

    Raises:
        RebuildBusyError: another rebuild of this projection is running.
        SwapBlockedError: queries held the tables `SWAPS_MAX` times.
        LogChangedError: the rows that serve do not follow this log; only an operator builds others then.
        GenerationMismatchError: likewise.
        ProjectionError: an event stops the fold; the rows that serve are untouched.
    """
    async with _rebuilding(projection, database_url) as connection:
        served = await ProjectionStore(connection, projection).checkpoint()
        if served is None or served.version >= projection.version or projection.takes_over(served.version):
            return False
        await confirm_log(projection, ledger, served)
        work = _Rebuild(projection, ledger, connection, new_id, on_progress or (lambda _done, _total: None))
        with seldom_collected():
            await work.begin(snapshots, database_url, accept_loss=False)
            for attempt in range(1, SWAPS_MAX + 1):
                await work.catch_up()
                try:
                    await work.swap()
                except psycopg.errors.LockNotAvailable:
                    if attempt == SWAPS_MAX:
                        raise
                    pause_s = blocked.pause_s()
                    log.warning("projection.swap-blocked", projection=projection.name, retry_s=pause_s)
                    await asyncio.sleep(pause_s)
                else:
                    break
        await work.offer_numbers(database_url)
    return True


async def rollback(projection: Projection, database_url: str, *, new_id: NewId = random_id) -> Checkpoint:
    """Put the rows of before the last rebuild back; those of the rebuild become `prev`.

    A decider's outbox goes back as well. It then decides again what it had decided since, which is held back until it
    has read whether that is in the log. Its rows get another incarnation, so that a leader of before the rebuild, which
    does not know that its outbox is held back, loads them again.

    Raises:
        NothingToRollBackError: no earlier rows are kept.
        RebuildBusyError: a rebuild is running.
    """
    async with _rebuilding(projection, database_url) as connection:
        previous = await ProjectionStore(connection, projection, PREV).checkpoint()
        if previous is None:
            raise NothingToRollBackError(
                f"Projection {projection.name} keeps no rows from before a rebuild; there is nothing to go back to."
            )
        async with connection.transaction():
            await _hold_views(connection)
            await ProjectionStore(connection, projection).checkpoint(lock=True)
            if projection.decides:
                await exchange_outbox(connection, projection.name, new_id())
            await keep_views_async(connection)
            await move_edition(connection, projection, LIVE, NEXT)
            await move_edition(connection, projection, PREV, LIVE)
            await move_edition(connection, projection, NEXT, PREV)
            await recreate_views_async(connection)
            return await renew_edition(connection, projection, previous, new_id())


@asynccontextmanager
async def _rebuilding(projection: Projection, database_url: str) -> AsyncIterator[AsyncConnection[Any]]:
    name = f"gpuledger rebuild {projection.name}"
    async with connect(database_url, application_name=name) as connection:
        if await try_hold(connection, rebuild_lock(projection)) is None:
            raise RebuildBusyError(
                f"Another rebuild of projection {projection.name} is running; wait for it or cancel it."
            )
        await drop_edition(connection, projection, NEXT)
        try:
            yield connection
        except psycopg.errors.LockNotAvailable as error:
            raise SwapBlockedError(
                f"The rows of projection {projection.name} could not change places within {LOCK_WAIT_MAX_S} s, "
                "because a query still reads them; nothing was changed. End that query, and run the command again."
            ) from error
        finally:
            await _leave_nothing(connection, projection, database_url)
            await unlock_all(connection)


async def _leave_nothing(connection: AsyncConnection[Any], projection: Projection, database_url: str) -> None:
    """Drop the new tables; over another connection only with the lock again, or they may be those of another rebuild.

    Whoever has it drops what it finds when it begins.
    """
    if not connection.closed and not connection.broken:
        with suppress(psycopg.Error):
            await connection.rollback()
            await drop_edition(connection, projection, NEXT)
            return
        await connection.close()  # a COPY that was cancelled may leave it of no use, with the lock
    with suppress(psycopg.Error, OSError):
        async with connect(database_url, application_name="gpuledger clean-up") as another:
            async with asyncio.timeout(CLEAN_UP_WAIT_MAX_S):
                await stand_by(another, rebuild_lock(projection))
            await drop_edition(another, projection, NEXT)


class _Rebuild:
    """One rebuild under way."""

    def __init__(
        self,
        projection: Projection,
        ledger: Ledger,
        connection: AsyncConnection[Any],
        new_id: NewId,
        on_progress: OnProgress,
    ) -> None:
        self._projection = projection
        self._ledger = ledger
        self._connection = connection
        self._new_id = new_id
        self._on_progress = on_progress
        self._live = ProjectionStore(connection, projection)
        self._next = ProjectionStore(connection, projection, NEXT)
        self._checkpoint: Checkpoint
        self._fold: Fold
        self._begun: Checkpoint

    async def begin(self, snapshots: FoldSnapshots | None, database_url: str, *, accept_loss: bool) -> None:
        """Make the shadow tables, with the rows of a snapshot where there is one."""
        before = await self._live.checkpoint()
        self._accepts_loss = accept_loss
        self._is_same_log = before is None or await follows_log(
            self._projection, self._ledger, before, accept_loss=accept_loss
        )
        await create_shadows(self._connection, self._projection)
        self._checkpoint = await self._next.create(self._ledger.identity, self._new_id())
        loaded = await self._loaded(snapshots, database_url)
        if loaded is None:
            self._fold, self._begun = await new_fold(self._projection, self._ledger), self._checkpoint
        else:
            await self._begin_at(loaded)
        self._fold.decision_bytes_max = self._ledger.message_bytes_max

    async def _loaded(self, snapshots: FoldSnapshots | None, database_url: str) -> LoadedFold | None:
        """The fold at a snapshot whose rows the new tables have; None: they have none.

        A fold from the start stops where a decision is one that the ledger would not take: none begins behind that.
        """
        skipped = await skipped_positions(self._ledger)
        shadow = ShadowRows(self._next, self._checkpoint, database_url)
        loaded = await begin_tables(self._projection, snapshots, await self._target(), skipped, lambda _: shadow)
        bytes_max = self._ledger.message_bytes_max
        if loaded is not None and any(is_too_large(event, bytes_max) for event in loaded.fold.outstanding()):
            await self._next.empty()
            return None
        return loaded

    async def _begin_at(self, loaded: LoadedFold) -> None:
        self._fold = loaded.fold
        self._fold.enforced.renew()
        self._checkpoint = self._checkpoint._replace(anchor=loaded.manifest.anchor)
        await self._flush()
        self._begun = self._checkpoint

    async def catch_up(self) -> None:
        """Fold until the live rows are at most a batch ahead."""
        for _ in range(CATCH_UP_ROUNDS_MAX):
            target = await self._target()
            behind_max = 0 if is_origin(self._fold.sequence) else MESSAGES_PER_BATCH_MAX
            if lag(self._fold.sequence, target) <= behind_max:
                return
            await self._fold_to(target)

    async def swap(self) -> RebuildResult:
        """Change places, and fold the rest while the live writer waits.

        What a query's lock may hold up comes first: then nothing was folded that is not in the new tables, and the swap
        can be tried again.
        """
        async with self._connection.transaction():
            await _hold_views(self._connection)
            await self._live.hold_beginning()
            served = await self._live.checkpoint(lock=True)
            self._refuse_ahead(served)
            target = await self._target()
            await self._change_places(served)
            self._next = self._live
            try:
                await self._fold_to(target)
                self._refuse_fewer(served)
                if self._projection.decides:
                    await copy_outbox(self._connection, self._projection.name)
                    await self._hand_over_decisions(served)
            finally:
                self._next = ProjectionStore(self._connection, self._projection, NEXT)
                self._live.forget_months()
        self._log_changed_decisions()
        return RebuildResult(self._checkpoint, self._begun.position, self._checkpoint.events - self._begun.events)

    async def offer_numbers(self, database_url: str) -> None:
        """Leave the numbers seen to those who go on from the new rows."""
        if self._checkpoint.anchor is not None:
            await SharedNumbers(self._ledger, database_url).offer(self._fold.seen, self._checkpoint.anchor)

    def _log_changed_decisions(self) -> None:
        """Others go on to show what was recorded of them; see ADR 14."""
        count, last = self._fold.waiting.changed
        if last is not None:
            name, position = self._projection.name, self._checkpoint.at._replace(sequence=last)
            log.warning("projection.decisions-changed", projection=name, count=count, last=str(position))

    async def _change_places(self, served: Checkpoint | None) -> None:
        await keep_views_async(self._connection)
        await drop_edition(self._connection, self._projection, PREV)
        if served is None:
            await drop_tables(self._connection, self._projection, LIVE)
        else:
            await move_edition(self._connection, self._projection, LIVE, PREV)
        await move_edition(self._connection, self._projection, NEXT, LIVE)
        await recreate_views_async(self._connection)

    async def _target(self) -> Offset:
        """The live rows' position, so that a decider's rebuild never runs ahead of its decisions."""
        served = await self._live.checkpoint()
        if served is None or not self._is_same_log:
            return await self._ledger.head()
        return served.position

    def _refuse_ahead(self, served: Checkpoint | None) -> None:
        """A decider's new rows have met decisions that wait for a leader whose rows are not as far.

        It has begun them after this rebuild, which would fold these decisions once more, and publish them again.
        """
        if served is None or not self._is_same_log or not self._projection.decides:
            return
        if is_after(self._fold.sequence, served.position):
            name = self._projection.name
            raise RebuildBusyError(
                f"`gpuledger up` began projection {name} while it was rebuilt, and is not as far; nothing was changed. "
                f"It builds the same rows: wait for it, or run `gpuledger replay {name}` again."
            )

    def _refuse_fewer(self, served: Checkpoint | None) -> None:
        """A log that has lost events must not pass for the whole; another version may count others."""
        if served is None or not self._is_same_log or self._accepts_loss or served.version != self._checkpoint.version:
            return
        if self._checkpoint.events < served.events:
            raise FewerEventsError(self._projection.name, self._checkpoint.events, served.events)

    async def _fold_to(self, target: Offset) -> None:
        async for messages in self._ledger.history(after=self._fold.sequence, until=target):
            batch = self._fold.check_all(messages)
            await self._next.fold(self._fold, batch)
            # Only those that have not come back in the end are handed over: see `Fold.outstanding`.
            self._fold.take_decided()
            self._fold.waiting.take_returned()
            if changed_rows(self._fold.state) >= CHANGED_ROWS_MAX:
                await self._flush()
            self._on_progress(events_up_to(self._fold.sequence), events_up_to(target))
        await self._flush()

    async def _flush(self) -> None:
        self._checkpoint = await self._next.flush(self._fold, self._checkpoint)

    async def _hand_over_decisions(self, served: Checkpoint | None) -> None:
        """Keep the decisions of the live rows; hold back what the new rows decide beyond them.

        The next leader numbers and publishes that, in an epoch that follows those of all that is ready, and without
        what it meets in the log. What was sent and does not come back is published once more.
        What operators skip is left out, and what NATS refuses: nobody ever saw it, and it would stop the new rows as it
        stopped the old.
        """
        await self._live.delete_decisions([one.id for one in await self._live.outbox() if self._fold.is_given_up(one)])
        await recall(self._connection, self._projection.name)
        waiting, decider, ours = await self._live.outbox(), await self._live.decider(), self._fold.outstanding()
        if served is None or not self._is_same_log or decider is None:
            waiting, decider = [], Decider(self._new_id(), 1, self._checkpoint.position)
            await self._live.create_decider(decider)
        decided = {event.id for event in waiting}
        more = [event for event in ours if event.id not in decided]
        following = max((event.number for event in waiting), default=0) + 1
        numbered = [event._replace(number=number) for number, event in enumerate(more, following)]
        await self._live.put_outbox(numbered, "held")
        self._fold.adopt(waiting)
        await self._flush()


async def _hold_views(connection: AsyncConnection[Any]) -> None:
    """The views are locked before any table, or two transactions may wait for each other."""
    await lock_until_commit(connection, VIEWS_LOCK)

"""Runs one projection: reads the log, folds, and writes rows and checkpoint in one transaction.

One writer per projection: an advisory lock on the very connection that writes. Standbys ask for it now and then, and
that is the whole of high availability. Batches are natural: what has arrived is folded and flushed together, so an idle
ledger means the latency of one commit and a backlog means large batches.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from gpuledger.db.engine import DATABASE_TRANSIENT, AsyncConnection, connect
from gpuledger.db.locks import HeldLock, LockCheck, stand_by, try_hold
from gpuledger.events.position import NEVER, Offset, is_at_or_after, number_of
from gpuledger.events.publishing import Rule
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Ledger
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.projection.checker import Checked
from gpuledger.projection.checkpoint import Checkpoint
from gpuledger.projection.continuity import confirm_version
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import AnotherLeaderError, NumbersChangedError, WriterFencedError
from gpuledger.projection.feed import Feed
from gpuledger.projection.outbox import recall
from gpuledger.projection.shared_numbers import SharedNumbers
from gpuledger.projection.store import ProjectionStore
from gpuledger.projection.writer import RowWriter, WriterContext
from gpuledger.runtime.backoff import Backoff, Retries
from gpuledger.runtime.clock import Clock, NewId, random_id, system_clock
from gpuledger.runtime.garbage import seldom_collected
from gpuledger.runtime.telemetry import ProjectionMetrics

log = structlog.get_logger("gpuledger.projection")

BATCH_TIMEOUT_S = 900.0
"""How long rows may take to load, and a batch to be folded, committed and published; many times what they need."""

BEGINNINGS_MAX = 3
"""How often within `BEGINNINGS_WITHIN` a leader that met another one's events begins again, before it stops."""

BEGINNINGS_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Bounds of a runner. `tick_s` is how often an idle one checks its lock, and a decider is asked what is due.

    `rules` are those that `sources` has enforced from now on: a service has all, a command that only reads none.
    `beginnings` are the pauses before a leader begins again behind another's events, which may still be on their way.
    """

    messages_per_batch: int = MESSAGES_PER_BATCH_MAX
    tick_s: float = 1.0
    batch_timeout_s: float = BATCH_TIMEOUT_S
    rules: tuple[Rule, ...] = ()
    backoff: Backoff = field(default_factory=lambda: Backoff(max_s=10.0))
    beginnings: Backoff = field(default_factory=lambda: Backoff(first_s=1.0, max_s=10.0))
    lock_check: LockCheck = field(default_factory=LockCheck)


TRANSIENT = (
    *DATABASE_TRANSIENT,
    LedgerUnavailableError,
    PublishError,
    WriterFencedError,
    NumbersChangedError,
)
"""What a runner recovers from by loading its rows again and going on from their checkpoint."""


def writer_lock(projection: str) -> str:
    """The name of the lock that the writer of a projection holds."""
    return f"projection:{projection}"


class Runner:
    """Keeps one projection's live rows true."""

    def __init__(
        self,
        projection: Projection,
        ledger: Ledger,
        database_url: str,
        *,
        settings: RunnerSettings | None = None,
        clock: Clock = system_clock,
        new_id: NewId = random_id,
        on_flush: Callable[[Checkpoint], None] | None = None,
        may_enforce: Callable[[], bool] = lambda: True,
        feed: Feed | None = None,
        numbers: SharedNumbers | None = None,
    ) -> None:
        """`may_enforce` says whether the rules of the settings are enforced yet.

        `is_writing` is false while it stands by, or waits for a server. `feed` is what projections of one process read
        together, and `numbers` are those that they share; whoever shares them has them written.
        """
        self.projection = projection
        self.settings = settings or RunnerSettings()
        self.metrics = ProjectionMetrics(projection.name)
        self.is_writing = False
        self._ledger = ledger
        self._database_url = database_url
        self._feed = feed
        self._beginnings: list[datetime] = []
        shared = numbers or SharedNumbers(ledger, database_url, [projection])
        self._own_numbers = shared if numbers is None else None
        rules = self.settings.rules
        self._context = WriterContext(
            projection,
            ledger,
            clock,
            new_id,
            self.metrics,
            on_flush,
            lambda: rules if may_enforce() else (),
            shared.at,
        )

    async def run(self) -> None:
        """Run until cancelled, recovering from servers that go away.

        Raises:
            VersionError: the rows are, or became while this process stood by, those of another version.
            ProjectionError: the projection has to stop; the message says what to do.
        """
        clock = asyncio.get_running_loop().time
        retries = Retries(self.settings.backoff)
        while True:
            begun_s = clock()
            try:
                async with AsyncExitStack() as stack:
                    connection = await self._connected(stack)
                    held = await self._stand_by(connection)
                    await self._lead(connection, held)
            except TRANSIENT as error:
                if clock() - begun_s >= self.settings.backoff.healthy_after_s:
                    retries.reset()
                await self._interrupted(error, retries.pause_s())

    async def catch_up(self, until: Offset) -> bool:
        """Bring the rows up to a position and stop; False where another writer holds them.

        Raises:
            ProjectionError: as `run`.
        """
        async with AsyncExitStack() as stack:
            connection = await self._connected(stack)
            held = await try_hold(connection, writer_lock(self.projection.name), self.settings.lock_check)
            if held is None:
                return False
            await self._follow(await self._writer(connection, held), held, until)
        if self._own_numbers is not None:
            await self._own_numbers.write()
        return True

    async def _lead(self, connection: AsyncConnection, held: HeldLock) -> None:
        """Follow the log for as long as this process holds the lock; behind another leader's events it begins again.

        What it has published and did not come back may count nowhere then, so it is held back, and whoever leads next
        publishes it anew in the next epoch, as far as the log does not have it. The pause gives time to what the other
        one has on its way, so nobody else gets the lock meanwhile.
        """
        name, timeout_s = self.projection.name, self.settings.batch_timeout_s
        while True:
            try:
                await self._follow(await self._writer(connection, held), held, NEVER)
            except AnotherLeaderError as error:
                await held.within(timeout_s, recall(connection, name, ready=True))
                if not self._may_begin_again():
                    raise
                await self._interrupted(error, self.settings.beginnings.pause_s(len(self._beginnings)))
                await held.beat()

    async def _interrupted(self, error: Exception, pause_s: float) -> None:
        self._stands_by()
        self.metrics.failed(error)
        log.warning("projection.interrupted", projection=self.projection.name, reason=str(error), retry_s=pause_s)
        await asyncio.sleep(pause_s)

    def _stands_by(self) -> None:
        self.is_writing = False
        self.metrics.standing_by()

    def _may_begin_again(self) -> bool:
        """Whether this leader may begin a new epoch behind another's events; two that go on would do so for ever."""
        now = self._context.clock()
        self._beginnings = [at for at in self._beginnings if abs(now - at) < BEGINNINGS_WITHIN]
        self._beginnings.append(now)
        return len(self._beginnings) <= BEGINNINGS_MAX

    async def _connected(self, stack: AsyncExitStack) -> AsyncConnection:
        self._stands_by()
        name = f"gpuledger {self.projection.name}"
        return await stack.enter_async_context(connect(self._database_url, application_name=name))

    async def _stand_by(self, connection: AsyncConnection) -> HeldLock:
        """Wait for the writer's lock, as long as the rows are of this version."""
        store = ProjectionStore(connection, self.projection)

        async def confirm() -> None:
            confirm_version(self.projection, await store.checkpoint())

        lock = writer_lock(self.projection.name)
        return await stand_by(connection, lock, self.settings.lock_check, before_each=confirm)

    async def _writer(self, connection: AsyncConnection, held: HeldLock) -> RowWriter:
        loading = RowWriter.load(self._context, ProjectionStore(connection, self.projection))
        return await held.within(self.settings.batch_timeout_s, loading)

    async def _follow(self, writer: RowWriter, held: HeldLock, until: Offset) -> None:
        self.is_writing = True
        self.metrics.writing(number_of(writer.checkpoint.position))
        if is_at_or_after(writer.checkpoint.position, until):
            return
        with seldom_collected():
            await self._take_all(writer, held, until)

    async def _take_all(self, writer: RowWriter, held: HeldLock, until: Offset) -> None:
        """Read with the other projections of the process where they are, and alone until there."""
        if self._feed is not None:
            await held.within(self.settings.batch_timeout_s, self._feed.assemble(writer.behind_at_start))
        while not is_at_or_after(writer.checkpoint.position, until):
            if self._feed is not None:
                await self._take_together(self._feed, writer, held)
            await self._take_alone(writer, held, until)

    async def _take_together(self, feed: Feed, writer: RowWriter, held: HeldLock) -> None:
        """Take what the feed reads, as long as this projection has a place there."""
        settings = self.settings
        with feed.place(writer.checkpoint.position, writer.checkpoint.anchor, writer.enforced) as place:
            while place is not None:
                batch = await place.next_batch(settings.messages_per_batch, settings.tick_s)
                if batch is None:
                    return
                await self._take(writer, held, batch)

    async def _take_alone(self, writer: RowWriter, held: HeldLock, until: Offset) -> None:
        """Read alone: to the end, or until the feed has a place for this projection."""
        async with self._ledger.read(writer.checkpoint.position, anchor=writer.checkpoint.anchor) as reader:
            while not is_at_or_after(writer.checkpoint.position, until):
                messages = await reader.next_batch(self.settings.messages_per_batch, self.settings.tick_s)
                await self._take(writer, held, writer.check(messages))
                if self._feed is not None and self._feed.reaches(writer.checkpoint.position):
                    return

    async def _take(self, writer: RowWriter, held: HeldLock, batch: list[Checked]) -> None:
        timeout_s = self.settings.batch_timeout_s
        if not batch:
            await held.beat(writer.confirm())  # nothing else would reveal that the lock is lost, or the rows are
        await held.within(timeout_s, writer.take(batch))

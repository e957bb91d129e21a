"""The status writer's life: wait for the lock, fold the ledger to its head, then follow ledger and API server.

Nothing is written before the fold has reached the head that the ledger had at the start, because history never acts.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

import psycopg
import structlog

from gpuledger.clock import Clock, system_clock
from gpuledger.db.engine import AsyncConnection, connect
from gpuledger.db.errors import DatabaseUnavailableError
from gpuledger.db.locks import lock
from gpuledger.kube.client import ALL, KubeClient, Selection
from gpuledger.kube.crds import node_feature_rule
from gpuledger.kube.errors import UnavailableError
from gpuledger.kube.names import MODULE_CONFIG, NODE_FEATURE_RULE
from gpuledger.kube.watch import Changes, Interrupted, Jitter, Listed, Reflector, system_jitter
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerUnavailableError
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.fold import Fold
from gpuledger.projection.garbage import seldom_collected
from gpuledger.projection.skips import skipped_positions
from gpuledger.statuswriter.announcer import Announcer
from gpuledger.statuswriter.decide import RESOURCES, Key, Kind, is_changed_by_others
from gpuledger.statuswriter.gate import Bucket, Gate
from gpuledger.statuswriter.known import Change, Seen, read
from gpuledger.statuswriter.metrics import ACTIVE, HANDLER_ERRORS, inventory_metrics
from gpuledger.statuswriter.news import is_fresh
from gpuledger.statuswriter.queue import Queue
from gpuledger.statuswriter.settings import StatusWriterSettings
from gpuledger.statuswriter.together import together
from gpuledger.statuswriter.view import View
from gpuledger.statuswriter.wanted import Wanted, WantedProjection
from gpuledger.statuswriter.writer import Writer

LOCK = "statuswriter"
"""Who holds this lock may write."""

INSTANCE = "gpuledger-statuswriter"
TRANSIENT = (LedgerUnavailableError, DatabaseUnavailableError, psycopg.OperationalError)
"""What the status writer recovers from by starting anew."""

SELECTIONS = {
    Kind.RULE: Selection(fields=f"metadata.name={NODE_FEATURE_RULE}"),
    Kind.MODULE: Selection(fields=f"metadata.name={MODULE_CONFIG}"),
}

log = structlog.get_logger("gpuledger.statuswriter")


class StatusWriterHealth(NamedTuple):
    """`state` is standing-by, folding, writing, disabled or stopped, which has a `reason`.

    `waiting` counts objects that are to be looked at now, `failing` those that could not be written and are tried again
    later, `left` those that are left as somebody else has them; `unlisted`
    names the kinds that the API server has not shown yet.
    """

    state: str
    position: int
    waiting: int
    failing: int
    left: int
    unlisted: tuple[str, ...]
    reason: str | None


class StatusWriter:
    """Keeps the API server's objects equal to what follows from the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        database_url: str,
        client: KubeClient,
        *,
        settings: StatusWriterSettings | None = None,
        clock: Clock = system_clock,
        jitter: Jitter = system_jitter,
    ) -> None:
        self._ledger = ledger
        self._database_url = database_url
        self._client = client
        self._settings = settings or StatusWriterSettings()
        self._clock = clock
        self._jitter = jitter
        self._round: _Round | None = None
        self._stopped: str | None = None

    def health(self) -> StatusWriterHealth:
        """How it stands."""
        if self._stopped is not None or self._round is None:
            return StatusWriterHealth("stopped" if self._stopped else "standing-by", 0, 0, 0, 0, (), self._stopped)
        return self._round.health()

    async def run(self) -> None:
        """Run until cancelled, recovering from servers that go away.

        An event that does not fold stops the writing: it is said in the log, and tried again after a while, because
        an operator may skip that position.
        """
        failures = 0
        while True:
            try:
                await self._stand()
            except TRANSIENT as error:
                failures += 1
                pause_s = min(self._settings.restart_first_s * 2 ** min(failures, 32), self._settings.restart_most_s)
                log.warning("statuswriter.interrupted", reason=str(error).strip(), retry_s=pause_s)
            except ProjectionError as error:
                self._stopped = str(error)
                pause_s = self._settings.stopped_retry_s
                HANDLER_ERRORS.labels("ledger").inc()
                log.error("statuswriter.stopped", reason=self._stopped, retry_s=pause_s)
            if self._round is not None and self._round.has_followed:
                failures = 0
            self._round = None
            ACTIVE.set(0)
            await asyncio.sleep(pause_s * (1 + self._jitter()) / 2)

    async def _stand(self) -> None:
        async with connect(self._database_url, application_name="gpuledger statuswriter") as connection:
            await lock(connection, LOCK)
            ACTIVE.set(1)
            self._round = _Round(self._ledger, self._client, self._settings, self._clock, self._jitter)
            try:
                await self._round.fold_to_head()
                self._stopped = None
                with inventory_metrics(self._round.state):
                    await together([self._keep_lock(connection), *self._round.work()])
            finally:
                ACTIVE.set(0)

    async def _keep_lock(self, connection: AsyncConnection) -> None:
        """Ask for nothing, again and again: the lock is gone with its connection."""
        while True:
            await connection.execute("SELECT 1")
            await asyncio.sleep(self._settings.lock_check_s)


class _Round:
    """From getting the lock to losing it."""

    def __init__(
        self, ledger: Ledger, client: KubeClient, settings: StatusWriterSettings, clock: Clock, jitter: Jitter
    ) -> None:
        now = asyncio.get_running_loop().time
        self._ledger = ledger
        self._client = client
        self._settings = settings
        self._clock = clock
        self._jitter = jitter
        self._now = now
        self._wanted = Wanted()
        self._fold = Fold(WantedProjection(), ledger.generation, state=self._wanted)
        self._was_enabled = False
        self._is_folded = False
        self.has_followed = False
        self._queue = Queue(now)
        self._view = View(self._wanted, node_feature_rule())
        self._announcer = Announcer(
            client, self._gate(settings.events_per_s, settings.events_burst), settings, clock, INSTANCE
        )
        self._writer = Writer(
            client, self._view, self._queue, self._gate(settings.writes_per_s, settings.writes_burst),
            self._announcer, settings, clock=clock, now=now, jitter=jitter,
        )  # fmt: skip

    def _gate(self, per_s: float, burst: int) -> Gate:
        return Gate(Bucket(per_s, burst, self._now), self._settings.backoff, self._jitter, self._now)

    def state(self) -> Wanted:
        """The fold, for metrics."""
        return self._wanted

    def health(self) -> StatusWriterHealth:
        """How it stands."""
        state = "folding" if not self._is_folded else "writing" if self._wanted.enabled else "disabled"
        unlisted = tuple(str(kind) for kind, known in self._view.known.items() if not known.is_listed)
        waiting, failing, left = self._queue.waiting, self._writer.failing, self._writer.left
        return StatusWriterHealth(state, self._fold.sequence, waiting, failing, left, unlisted, None)

    async def fold_to_head(self) -> None:
        """Fold all that there is; what is young in it is still news."""
        head = await self._ledger.head()
        skipped = await skipped_positions(self._ledger)
        self._fold = Fold(WantedProjection(), self._ledger.generation, state=self._wanted, skipped=skipped)
        news = []
        with seldom_collected():
            async for messages in self._ledger.history(until=head):
                self._fold.apply_all(messages)
                news += [one for one in self._wanted.take_news() if self._is_fresh(one.recorded_ns)]
        self._wanted.take_changed()
        self._was_enabled = self._wanted.enabled
        self._is_folded = True
        if self._was_enabled:
            for one in news:
                if is_fresh(one, self._clock(), self._settings.news_age_max_s):
                    self._writer.tell(one)

    def _is_fresh(self, recorded_ns: int) -> bool:
        return recorded_ns / 1e9 >= self._clock().timestamp() - self._settings.news_age_max_s

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run side by side."""
        writers = [self._writer.work() for _ in range(self._settings.writes_at_once_max)]
        return [self._follow_ledger(), self._announcer.run(), *map(self._follow, Kind), *writers]

    async def _follow_ledger(self) -> None:
        async with self._ledger.read(after=self._fold.sequence) as reader:
            self.has_followed = True
            while True:
                self._take(await reader.next_batch(self._settings.messages_per_batch))

    def _take(self, messages: list[Message]) -> None:
        self._fold.apply_all(messages)
        changed, news = self._wanted.take_changed(), self._wanted.take_news()
        is_enabled, was_enabled = self._wanted.enabled, self._was_enabled
        self._was_enabled = is_enabled
        if not is_enabled:
            if was_enabled:
                self._disable()
            return
        for key in changed if was_enabled else self._view.keys():
            self._writer.look(key, messages[0].recorded_ns)
        for one in news:
            if is_fresh(one, self._clock(), self._settings.news_age_max_s):
                self._writer.tell(one)

    def _disable(self) -> None:
        self._writer.forget()
        HANDLER_ERRORS.clear()
        log.info("statuswriter.disabled")

    async def _follow(self, kind: Kind) -> None:
        """Keep what is known of a kind true. After an outage all is listed: who answers may be another server."""
        failures = 0
        while True:
            begun_s = self._now()
            try:
                async with asyncio.timeout(None) as until:
                    await self._reflect(kind, until)
            except TimeoutError:
                continue
            failures = 1 if self._now() - begun_s > self._settings.backoff.healthy_after_s else failures + 1
            await asyncio.sleep(self._settings.backoff.pause_s(failures, self._jitter()))

    def _relist_s(self) -> float:
        return max(self._settings.relist_period_s, self._wanted.settings_in_force().resync_period_s)

    async def _reflect(self, kind: Kind, until: asyncio.Timeout) -> None:
        """Follow until the server is away, or the list is old."""
        reflector = Reflector(
            self._client, RESOURCES[kind], partial(read, kind),
            selection=SELECTIONS.get(kind, ALL), backoff=self._settings.backoff, jitter=self._jitter,
        )  # fmt: skip
        async with aclosing(reflector.run()) as run:
            async for one in run:
                match one:
                    case Listed():
                        self._listed(kind, one)
                        until.reschedule(self._now() + self._relist_s())
                    case Changes():
                        self._changed(kind, one)
                    case Interrupted(error):
                        self._view.known[kind].interrupted()
                        HANDLER_ERRORS.labels(f"watch {RESOURCES[kind].plural}").inc()
                        log.info("watch.interrupted", kind=str(kind), reason=str(error), retry_s=one.pause_s)
                        if isinstance(error, UnavailableError):
                            return

    def _listed(self, kind: Kind, listed: Listed[Seen]) -> None:
        self._view.known[kind].listed(listed.objects, listed.resource_version)
        if self._wanted.enabled:
            self._writer.look_through(self._view.keys(kind))

    def _changed(self, kind: Kind, changes: Changes[Seen]) -> None:
        known = self._view.known[kind]
        for change in changes.changes:
            found = known.changed(change)
            if self._wanted.enabled:
                self._weigh(kind, found)

    def _weigh(self, kind: Kind, change: Change) -> None:
        """Whether a change was ours to expect, or somebody else's."""
        key = Key(kind, change.name)
        before, after = change.before, change.after
        if before is None or before is after:
            self._writer.look(key)
        elif is_changed_by_others(kind, self._view.desired(key), before, after):
            self._writer.disturbed(key, after.changed_by if after else "somebody who deleted it")
        else:
            self._writer.look(key)

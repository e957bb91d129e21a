"""Runs several projections side by side, and reports their health for `/healthz`.

A projection that stops does not end the others. It is not retried again and again: it resumes once an operator has
skipped a position or rebuilt its rows. Rows of an older version serve until those of this build are built; to rows of a
newer version this build stands aside. Nothing here decides what a projection does.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

import psycopg
import structlog

from gpuledger.db.engine import AsyncConnection
from gpuledger.db.errors import DatabaseError
from gpuledger.db.lasting import LastingConnection
from gpuledger.db.locks import LockHolder, lock_holders
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN, Offset, is_at_or_after, lag, next_after
from gpuledger.events.publishing import Rule
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerError, LogChangedError
from gpuledger.projection.checkpoint import Checkpoint, live_checkpoints
from gpuledger.projection.continuity import confirm_checkpoint
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import ProjectionError, VersionError
from gpuledger.projection.feed import Feed
from gpuledger.projection.fold_snapshots.reader import FoldSnapshots
from gpuledger.projection.outbox import outbox_ages
from gpuledger.projection.replay import skipped_positions
from gpuledger.projection.runner import Runner, RunnerSettings, writer_lock
from gpuledger.projection.shared_numbers import SharedNumbers
from gpuledger.projection.store import ProjectionStore
from gpuledger.projection.upgrading import Progress, Rows, Upgrades, rows_of
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.tasks import Work
from gpuledger.runtime.telemetry import LeaderMetrics, ProjectionMetrics, servers_answered

log = structlog.get_logger("gpuledger.projection")

CHECK_INTERVAL_S = 2.0
"""How often positions are compared with the head of the log, and a stopped projection checks for a remedy."""

CHECK_AGE_MAX_S = 15.0
"""How old the last successful check may be before the servers count as out of reach."""

STOPS = (ProjectionError, LedgerError, DatabaseError, EventError, psycopg.Error)
"""Errors that end a runner, beyond those it recovers from."""


class ProjectionHealth(NamedTuple):
    """`state` is running, waiting (for the writer's lock, or for a server), building, superseded or stopped.

    The last two have a `reason`. While it is building, rows of an older version serve, and `done` of `total` positions
    are in those that will take their place; superseded, it leaves the rows to a newer build.
    """

    state: str
    position: Offset | None
    lag_events: int | None
    reason: str | None
    done: int | None = None
    total: int | None = None


@dataclass(slots=True)
class _Standing:
    """`rows` is None until they were looked at, and `runner` until it begins."""

    runner: Runner | None = None
    position: Offset | None = None
    rows: Rows | None = None
    stopped: str | None = None
    superseded: str | None = None
    building: Progress | None = None

    @property
    def is_building(self) -> bool:
        """Whether rows of an older version serve, also before their build has begun."""
        return self.building is not None or self.rows is Rows.OLDER


@dataclass(slots=True)
class Supervision:
    """The projections of one process. `other_locks` are those of services beside them, whose leaders are shown too.

    `elsewhere` names those that run in other processes: they are compared with the log and not run here. `snapshots`
    are those at which a build of new rows may begin.
    """

    projections: Sequence[Projection]
    ledger: Ledger
    database_url: str
    clock: Clock = system_clock
    check_interval_s: float = CHECK_INTERVAL_S
    other_locks: Sequence[str] = ()
    elsewhere: Collection[str] = ()
    snapshots: FoldSnapshots | None = None
    head: Offset | None = None
    checked_at: datetime | None = None
    _standings: dict[str, _Standing] = field(default_factory=dict)
    leaders: dict[str, LockHolder | None] = field(default_factory=dict)
    _firsts: dict[Offset, Message] = field(default_factory=dict)
    _leader_metrics: LeaderMetrics = field(default_factory=LeaderMetrics)
    _upgrades: Upgrades = field(init=False)
    _feed: Feed = field(init=False)
    _numbers: SharedNumbers = field(init=False)
    _connection: LastingConnection = field(init=False)

    def __post_init__(self) -> None:
        """Report every projection from the start."""
        self._standings = {projection.name: _Standing() for projection in self.projections}
        self._upgrades = Upgrades(self.ledger, self.database_url, snapshots=self.snapshots)
        self._feed = Feed(self.ledger, folds=len(self._run_here))
        self._numbers = SharedNumbers(self.ledger, self.database_url, self.projections)
        self._connection = LastingConnection(self.database_url, application_name="gpuledger health")

    def work(self) -> list[Work]:
        """The coroutines to run side by side, until cancelled."""
        return [self._check(), self._numbers.keep_written(), *map(self._keep_running, self._run_here)]

    @property
    def _run_here(self) -> list[Projection]:
        return [one for one in self.projections if one.name not in self.elsewhere]

    @property
    def _standings_here(self) -> dict[str, _Standing]:
        return {one.name: self._standings[one.name] for one in self._run_here}

    @property
    def reachable(self) -> bool:
        """Whether both servers answered a short while ago."""
        age = None if self.checked_at is None else self.clock() - self.checked_at
        return age is not None and age.total_seconds() <= CHECK_AGE_MAX_S

    @property
    def healthy(self) -> bool:
        """Whether the servers answer, and no projection has stopped or serves with rows of an older version."""
        return self.reachable and not any(one.stopped or one.is_building for one in self._standings_here.values())

    def health(self) -> dict[str, ProjectionHealth]:
        """The health of each projection that runs here."""
        return {name: self._health_of(standing) for name, standing in self._standings_here.items()}

    def _health_of(self, standing: _Standing) -> ProjectionHealth:
        position, lag_events = standing.position, None
        if self.head is not None and position is not None and is_at_or_after(self.head, position):
            lag_events = lag(position, self.head)
        if standing.stopped:
            return ProjectionHealth("stopped", position, lag_events, standing.stopped)
        if standing.superseded:
            return ProjectionHealth("superseded", position, lag_events, standing.superseded)
        if standing.is_building:
            return ProjectionHealth("building", position, lag_events, None, *(standing.building or Progress()))
        is_writing = standing.runner is not None and standing.runner.is_writing
        return ProjectionHealth("running" if is_writing else "waiting", position, lag_events, None)

    @property
    def _may_enforce(self) -> bool:
        """Whether no build is needed any more that would stop at a rule that this one enforces."""
        return all(standing.rows in (Rows.OURS, Rows.NEWER) for standing in self._standings.values())

    async def _keep_running(self, projection: Projection) -> None:
        runner = Runner(
            projection,
            self.ledger,
            self.database_url,
            settings=RunnerSettings(rules=tuple(Rule)),
            clock=self.clock,
            may_enforce=lambda: self._may_enforce,
            feed=self._feed,
            numbers=self._numbers,
        )
        standing = self._standings[projection.name]
        standing.runner = runner
        while True:
            runner.metrics.stopped(is_stopped=False)
            runner.metrics.log_changed(None)
            try:
                await self._run_or_make_way(projection, runner)
                continue
            except STOPS as error:
                standing.stopped = str(error)
                runner.metrics.failed(error)
                runner.metrics.stopped(is_stopped=True)
                log.error("projection.stopped", projection=projection.name, reason=standing.stopped)
                if isinstance(error, LogChangedError):
                    runner.metrics.log_changed(error.change)
                    await self._wait_for_log(projection)
                else:
                    await self._wait_for_remedy(projection)
            standing.stopped = None
            log.info("projection.resumed", projection=projection.name)

    async def _run_or_make_way(self, projection: Projection, runner: Runner) -> None:
        """Run while the rows are of this build's version; build them if they are older, stand aside if they are newer.

        Returns when that changed; what a build raises goes to the caller.
        """
        standing = self._standings[projection.name]
        try:
            await runner.run()
        except VersionError as error:
            if error.is_newer:
                standing.superseded = str(error)
                await self._stand_aside(projection, runner)
                standing.superseded = None
            else:
                try:
                    await self._upgrades.build(projection, partial(self._show_build, projection.name))
                finally:
                    self._show_build(projection.name, None)

    def _show_build(self, name: str, progress: Progress | None) -> None:
        self._standings[name].building = progress
        ProjectionMetrics(name).building(None if progress is None else (progress.done or 0, progress.total or 0))

    async def _stand_aside(self, projection: Projection, runner: Runner) -> None:
        """Return when the rows are not of a newer version any more."""
        log.info("projection.superseded", projection=projection.name, version=projection.version)
        runner.metrics.superseded(is_superseded=True)
        try:
            while await self._is_superseded(projection):  # noqa: ASYNC110 - nobody notifies
                await asyncio.sleep(self.check_interval_s)
        finally:
            runner.metrics.superseded(is_superseded=False)
        log.info("projection.resumed", projection=projection.name)

    async def _is_superseded(self, projection: Projection) -> bool:
        try:
            checkpoint = await ProjectionStore(await self._connection.get(), projection).checkpoint()
        except STOPS:
            return True
        return rows_of(checkpoint and checkpoint.version, projection) is Rows.NEWER

    async def _wait_for_remedy(self, projection: Projection) -> None:
        """Return when an operator skipped a position, replaced the rows, or has NATS take larger events.

        If the servers did not answer at first, nobody knows what changed since, and it is worth a try.
        """
        before = await self._remedies(projection)
        while True:
            await asyncio.sleep(self.check_interval_s)
            found = await self._remedies(projection)
            if found is not None and found != before:
                return

    async def _remedies(self, projection: Projection) -> tuple[object, ...] | None:
        bytes_max = self.ledger.message_bytes_max  # before anything is awaited, so that it is that of the failure
        try:
            skipped = await skipped_positions(self.ledger)
            checkpoint = await ProjectionStore(await self._connection.get(), projection).checkpoint()
        except STOPS:
            return None
        rows = checkpoint and (checkpoint.incarnation, checkpoint.version, checkpoint.generation)
        return (len(skipped), rows, bytes_max)

    async def _wait_for_log(self, projection: Projection) -> None:
        """Return when rows and log belong together again: the log was restored, or the rows rebuilt."""
        while not await self._follows_log(projection):  # noqa: ASYNC110 - nobody reports a restore
            await asyncio.sleep(self.check_interval_s)

    async def _follows_log(self, projection: Projection) -> bool:
        try:
            checkpoint = await ProjectionStore(await self._connection.get(), projection).checkpoint()
            if checkpoint is not None:
                await confirm_checkpoint(projection, self.ledger, checkpoint)
        except STOPS:
            return False
        return True

    async def _check(self) -> None:
        """Compare positions with the head of the log, for as long as the servers answer."""
        try:
            while True:
                try:
                    await self._compare()
                    self.checked_at = self.clock()
                    servers_answered(self.checked_at)
                except STOPS as error:
                    log.warning("lag.unknown", reason=str(error).strip())
                    if not self.reachable:
                        self._clear_metrics()
                await asyncio.sleep(self.check_interval_s)
        finally:
            await self._connection.close()
            await self._feed.aclose()

    def _clear_metrics(self) -> None:
        """Serve nothing that was measured before: a replica that is cut off must not speak for those that are not."""
        self._leader_metrics.clear()
        for projection in self.projections:
            ProjectionMetrics(projection.name).unmeasured()

    async def _compare(self) -> None:
        self.head = await self.ledger.head()
        positions: dict[str, Offset] = {}
        connection = await self._connection.get()
        await self._find_leaders(connection)
        checkpoints = await live_checkpoints(connection, self.projections)
        for projection in self.projections:
            checkpoint = checkpoints.get(projection.name)
            standing = self._standings[projection.name]
            standing.rows = rows_of(checkpoint and checkpoint.version, projection)
            positions[projection.name] = self._position(checkpoint)
        for name, position in positions.items():
            self._standings[name].position = position
            first = await self._first_unfolded(position, self.head)
            ProjectionMetrics(name).lag(lag(position, self.head), first, self.clock())
        deciders = [projection.name for projection in self.projections if projection.decides]
        for name, waiting in (await outbox_ages(connection, deciders)).items():
            ProjectionMetrics(name).outbox(*waiting)
        self._firsts = {at: first for at, first in self._firsts.items() if at in positions.values()}

    async def _find_leaders(self, connection: AsyncConnection) -> None:
        locks = {projection.name: writer_lock(projection.name) for projection in self.projections}
        locks |= {name: name for name in self.other_locks}
        holders = await lock_holders(connection, locks.values())
        self.leaders = {name: holders[lock] for name, lock in locks.items()}
        for name, holder in self.leaders.items():
            self._leader_metrics.found(name, holder and holder.process, holder and holder.since)

    def _position(self, checkpoint: Checkpoint | None) -> Offset:
        if checkpoint is None or not self.ledger.generations.has(checkpoint.at):
            return ORIGIN
        return checkpoint.position

    async def _first_unfolded(self, position: Offset, head: Offset) -> Message | None:
        """The first message behind a position; read once while a projection stays there."""
        if is_at_or_after(position, head):
            return None
        if position not in self._firsts:
            async for messages in self.ledger.history(after=position, until=next_after(position)):
                self._firsts[position] = messages[0]
        return self._firsts.get(position)

"""Runs several projections side by side: one that stops is reported, the others go on, and it resumes once it can.

A stopped projection is not tried again and again: it waits for an operator's word, which is a position skipped or its
rows rebuilt. What is known of each is kept here for `/healthz`; nothing here decides what a projection does.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
import structlog
from prometheus_client import REGISTRY

from gpuledger.db.engine import connect
from gpuledger.db.errors import DatabaseError
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import LedgerError
from gpuledger.projection.definition import Projection
from gpuledger.projection.errors import ProjectionError
from gpuledger.projection.runner import Runner
from gpuledger.projection.skips import skipped_positions
from gpuledger.projection.store import Store
from gpuledger.runtime.clock import Clock, system_clock
from gpuledger.runtime.telemetry import ProjectionMetrics

log = structlog.get_logger("gpuledger.projection")

LOOK_INTERVAL_S = 1.0
"""How often positions are compared with the head of the log, and a stopped projection's remedy is looked for."""

LOOK_AGE_MAX_S = 15.0
"""How old the last look at the servers may be before they count as out of reach."""

STOPS = (ProjectionError, LedgerError, DatabaseError, psycopg.Error)
"""What ends a runner, beyond what it recovers from by itself."""


class ProjectionHealth(NamedTuple):
    """`state` is running, waiting (for the writer's lock, or for a server) or stopped, which has a `reason`."""

    state: str
    position: int | None
    lag_events: int | None
    reason: str | None


@dataclass(slots=True)
class _Known:
    position: int | None = None
    stopped: str | None = None


@dataclass(slots=True)
class Supervision:
    """The projections of one process."""

    projections: Sequence[Projection]
    ledger: Ledger
    database_url: str
    clock: Clock = system_clock
    look_interval_s: float = LOOK_INTERVAL_S
    head: int | None = None
    looked_at: datetime | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _firsts: dict[int, Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Know every projection from the start."""
        self._known = {projection.name: _Known() for projection in self.projections}

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run side by side, until cancelled."""
        return [self._look(), *map(self._keep_running, self.projections)]

    @property
    def reachable(self) -> bool:
        """Whether both servers answered a short while ago."""
        age = None if self.looked_at is None else self.clock() - self.looked_at
        return age is not None and age.total_seconds() <= LOOK_AGE_MAX_S

    @property
    def healthy(self) -> bool:
        """Whether the servers answer and no projection has stopped."""
        return self.reachable and not any(known.stopped for known in self._known.values())

    def health(self) -> dict[str, ProjectionHealth]:
        """What is known of each projection."""
        return {name: self._health_of(name, known) for name, known in self._known.items()}

    def _health_of(self, name: str, known: _Known) -> ProjectionHealth:
        writes = REGISTRY.get_sample_value("gpuledger_projection_writer", {"projection": name})
        state = "stopped" if known.stopped else "running" if writes else "waiting"
        lag = None if self.head is None or known.position is None else max(0, self.head - known.position)
        return ProjectionHealth(state, known.position, lag, known.stopped)

    async def _keep_running(self, projection: Projection) -> None:
        runner = Runner(projection, self.ledger, self.database_url, clock=self.clock)
        known = self._known[projection.name]
        while True:
            try:
                await runner.run()
            except STOPS as error:
                known.stopped = str(error)
                runner.metrics.failed(error)
                log.error("projection.stopped", projection=projection.name, reason=known.stopped)
            await self._remedied(projection)
            known.stopped = None
            log.info("projection.resumed", projection=projection.name)

    async def _remedied(self, projection: Projection) -> None:
        """Return when an operator skipped a position, or the rows are others than those it stopped at."""
        before = None
        while True:
            found = await self._remedies(projection)
            if before is not None and found is not None and found != before:
                return
            before = found or before
            await asyncio.sleep(self.look_interval_s)

    async def _remedies(self, projection: Projection) -> tuple[object, ...] | None:
        try:
            skipped = await skipped_positions(self.ledger)
            async with connect(self.database_url, application_name="gpuledger remedy") as connection:
                checkpoint = await Store(connection, projection).checkpoint()
        except STOPS:
            return None
        return (len(skipped), checkpoint and (checkpoint.incarnation, checkpoint.version, checkpoint.generation))

    async def _look(self) -> None:
        """Compare positions with the head of the log, for as long as the servers answer."""
        while True:
            try:
                await self._compare()
                self.looked_at = self.clock()
            except STOPS as error:
                log.warning("lag.unknown", reason=str(error).strip())
            await asyncio.sleep(self.look_interval_s)

    async def _compare(self) -> None:
        self.head = await self.ledger.head()
        async with connect(self.database_url, application_name="gpuledger lag") as connection:
            for projection in self.projections:
                self._known[projection.name].position = await self._position(Store(connection, projection))
        for name, known in self._known.items():
            position = known.position or 0
            first = await self._behind(position, self.head)
            ProjectionMetrics(name).behind(max(0, self.head - position), first, self.clock())
        self._firsts = {at: first for at, first in self._firsts.items() if at in self._positions()}

    async def _position(self, store: Store) -> int:
        checkpoint = await store.checkpoint()
        usable = checkpoint is not None and checkpoint.generation == self.ledger.generation
        return checkpoint.position if checkpoint is not None and usable else 0

    def _positions(self) -> set[int | None]:
        return {known.position for known in self._known.values()}

    async def _behind(self, position: int, head: int) -> Message | None:
        """The first message behind a position; read once while somebody stands there."""
        if position >= head:
            return None
        if position not in self._firsts:
            async for messages in self.ledger.history(after=position, until=position + 1):
                self._firsts[position] = messages[0]
        return self._firsts.get(position)

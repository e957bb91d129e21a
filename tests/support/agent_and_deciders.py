"""A node's agent in process, and what the real deciders of inventory and preparation make of its facts."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from gpuledger.agent.board import Board
from gpuledger.agent.discovery import CardDiscovery
from gpuledger.agent.exporter import SCRAPE_PERIOD_S, ExporterMonitor
from gpuledger.agent.hardware.api import Survey, Xid
from gpuledger.agent.health.card import Rules
from gpuledger.agent.health.part import HealthMonitor
from gpuledger.agent.outbox.clock import event_time
from gpuledger.agent.part import AgentFact
from gpuledger.deciders.bootstrap.projection import BootstrapProjection
from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.node import NodeGone, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.agent_parts import NODE, PLACE, SURVEY, Disk, ScriptedCalls, Time, settle
from support.bootstrap import all_ready
from support.events import GENERATION, message
from support.exporter import exporter_text

NFD = "v0.17.3"


class Services:
    """The log, and the services that decide about nodes and their cards by it."""

    def __init__(self, time: Time) -> None:
        self.inventory = Fold(InventoryProjection(), GENERATION, numbering=Numbering("inventory", 1))
        self.bootstrap = Fold(BootstrapProjection(), GENERATION, numbering=Numbering("bootstrap", 1))
        self.log: list[Message] = []
        self.events: list[Decoded] = []
        self._time = time
        self._numbers: dict[tuple[str, str], int] = {}

    def record(self, source: str, epoch: str, subject: str, data: Payload, time: datetime) -> None:
        """Record an event, and everything that is decided then."""
        number = self._numbers[source, epoch] = self._numbers.get((source, epoch), 0) + 1
        self._record(Event(f"{source}#{epoch}#{number}", source, data.TYPE, subject, time, data, epoch, number))

    def wait(self) -> None:
        """Ask what is due by now."""
        self.bootstrap.due(self._time.clock())
        self._record(*self.bootstrap.take_decided())

    def _record(self, *events: Decoded) -> None:
        waiting = deque(events)
        while waiting:
            one = waiting.popleft()
            self.events.append(one)
            self.log.append(message(one, len(self.log) + 1))
            for fold in (self.inventory, self.bootstrap):
                fold.apply(self.log[-1])
                waiting.extend(fold.take_decided())

    def devices(self) -> list[GpuDevice]:
        """The GPUDevices, by name."""
        return sorted(self.inventory.state.device.rows.values())  # type: ignore[attr-defined]

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition of the one node's preparation."""
        (row,) = (one for one in self.bootstrap.state.preparation.rows.values() if one.type == kind)  # type: ignore[attr-defined]
        return row.status, row.reason

    def states(self) -> dict[str, tuple[str, str]]:
        """State and reason of each GPUDevice."""
        rows = self.bootstrap.state.state.rows  # type: ignore[attr-defined]
        return {one.name: rows[one.name][1:3] if one.name in rows else ("Discovered", "") for one in self.devices()}


class Watched:
    """A node: its hardware, its agent's parts, which can be started again, and what its Node object says.

    `wall` is by how many seconds its clock is wrong; `metrics` says whether its exporter works.
    """

    def __init__(self, services: Services, time: Time, node: str = NODE, survey: Survey = SURVEY) -> None:
        self.services, self.time, self.node = services, time, node
        self.calls = ScriptedCalls(survey)
        self.disk = Disk()
        self.board = Board()
        self.rules = Rules(node)
        self.wall = 0.0
        self.metrics = True
        self.health: HealthMonitor | None = None
        self._epochs = 0
        self._last: datetime | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.recorded: list[AgentFact] = []

    def clock(self) -> datetime:
        return self.time.clock() + timedelta(seconds=self.wall)

    async def record(self, facts: Sequence[AgentFact]) -> None:
        await asyncio.sleep(0)
        for fact in facts:
            self._last = event_time(fact.time, self._last, self.clock())
            self.recorded.append(fact._replace(time=self._last))
            self.services.record(f"/nodes/{self.node}/agent", f"e{self._epochs}", fact.subject, fact.data, self._last)

    async def start(self) -> None:
        self._epochs += 1
        self.board = Board()
        given: Any = {"clock": self.clock, "monotonic": self.time.monotonic, "sleep": self.time.sleep}
        exporter = ExporterMonitor(self.node, self._scrape, has_cards=lambda: self.board.state.has_cards, **given)
        self.health = HealthMonitor(
            self.calls, self.board, self.disk, self.rules, on_recovered=exporter.restart_streak, **given
        )
        parts = (CardDiscovery(self.node, self.calls, self.board, self.disk, **given), self.health, exporter)
        self._tasks = [asyncio.create_task(part.run(self.record)) for part in parts]
        await settle()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def restart(self, *, disk: Disk | None = None) -> None:
        await self.stop()
        self.disk = disk or self.disk
        await self.start()

    async def _scrape(self) -> str:
        return exporter_text(self.clock()) if self.metrics else ""

    async def strike(self, number: int, address: str = PLACE) -> None:
        self.calls.xids.put_nowait(Xid(address, number))
        await settle()

    def found(self, labels: dict[str, str] | None = None, nfd_version: str | None = NFD) -> None:
        """The Node object, and the pods of all components, are there."""
        now = self.time.clock()
        observed = NodeObserved(uid="u", labels=labels or {}, nfd_version=nfd_version)
        self.services.record("/watchers/nodes", "w", self.node, observed, now)
        self.services.record("/watchers/components", "w", self.node, all_ready(), now)

    def gone(self) -> None:
        self.services.record("/watchers/nodes", "w", self.node, NodeGone(uid="u"), self.time.clock())

    async def advance(self, seconds: float) -> None:
        await self.time.advance(seconds)
        self.services.wait()

    async def pass_looks(self, looks: int = 12) -> None:
        await self.advance(looks * SCRAPE_PERIOD_S)


@asynccontextmanager
async def watched(*, survey: Survey = SURVEY, node_first: bool = True) -> AsyncIterator[Watched]:
    """A node whose cards are prepared, unless its Node object is still to come."""
    time = Time()
    services = Services(time)
    one = Watched(services, time, survey=survey)
    if node_first:
        one.found()
    await one.start()
    try:
        await one.pass_looks()
        yield one
    finally:
        await one.stop()

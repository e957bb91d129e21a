"""A node with the agent's health gateway for tests: its files, its disk, and a clock that stands still."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

from gpuledger.agent.board import Board
from gpuledger.agent.gateway.part import HealthGateway
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.agent.outbox.bounds import DEFAULT_SIZES
from gpuledger.agent.outbox.outbox import CHECK_PERIOD_S, Outbox, open_outbox
from gpuledger.agent.settings import HealthSettings
from gpuledger.events.health import NodeHealthReported
from gpuledger.runtime.tasks import end
from support.health_monitor import Monitor, a_monitor
from support.kubelet_parts import hasty
from support.outbox import NODE, Disk, Log, Time, Waits
from support.waiting import eventually

UID = "5f3a3c0e-6b0a-4d5e-9f6a-0a1b2c3d4e5f"
CARD = CardFacts("0000:17:00.0", "10de", "2330", uuid="GPU-17")


class Node:
    """A node with a gateway, whose clock stands still; the gateway runs while `running` is open."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sizes = DEFAULT_SIZES
        self.socket = root / "health.sock"
        self.namespaces = frozenset({"gpu-system"})
        self.time, self.log, self.disk, self.board = Time(), Log(), Disk(root / "state"), Board()
        self.waits = Waits(self.time, CHECK_PERIOD_S)
        self.counts = ReportCounts()
        self.board.put(survey=Survey((CARD,)))
        self.is_of_pod(None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[HealthGateway]:
        async with self._outbox() as outbox:
            settings = HealthSettings(
                self.socket, self.namespaces, self.root / "pods", self.root / "containers", frozenset({"team-a"})
            )
            clocks: dict[str, Any] = {"clock": self.time.clock, "monotonic": self.time.monotonic, "sleep": hasty}
            part = HealthGateway(NODE, self.board, outbox, settings, self.counts, **clocks, proc=self.root / "proc")
            serving = asyncio.create_task(part.run(outbox.record))
            publishing = asyncio.create_task(outbox.run(self.log.connect))
            try:
                await eventually(lambda: _true(part.alive_at is not None))
                yield part
            finally:
                await end([serving])
                if not self.log.away:
                    await outbox.drained()
                await end([publishing])

    @asynccontextmanager
    async def monitored(self) -> AsyncIterator[Monitor]:
        """A monitor of a gateway that runs."""
        async with self.running(), a_monitor(self.socket) as monitor:
            yield monitor

    def _outbox(self) -> AbstractAsyncContextManager[Outbox]:
        return open_outbox(
            self.disk.folder,
            NODE,
            version="1.0",
            hardware="simulated",
            sizes=self.sizes,
            clock=self.time.clock,
            monotonic=self.time.monotonic,
            sleep=self.waits,
            open_spool=self.disk.open,
        )

    def is_of_pod(self, namespace: str | None) -> None:
        """This process belongs to a pod of the namespace, or to none."""
        process = self.root / "proc" / str(os.getpid())
        process.mkdir(parents=True, exist_ok=True)
        (process / "stat").write_text(f"1 (a) S {' '.join(map(str, range(1, 40)))}")
        (process / "cgroup").write_text(f"0::/kubepods/pod{UID}/9\n" if namespace else "0::/\n")
        (self.root / "pods" / f"{namespace}_monitor-x_{UID}").mkdir(parents=True, exist_ok=True)

    def is_container(self, name: str, pod: str = "monitor-x", namespace: str = "team-a") -> None:
        """This process belongs to a container of a pod where checks are added; the kubelet names it."""
        self.is_of_pod(namespace)
        container = sha256(f"{pod}/{name}".encode()).hexdigest()
        uid = str(UUID(container[:32]))
        (self.root / "proc" / str(os.getpid()) / "cgroup").write_text(f"0::/kubepods/pod{uid}/{container}\n")
        (self.root / "pods" / f"{namespace}_{pod}_{uid}").mkdir(exist_ok=True)
        links = self.root / "containers"
        links.mkdir(exist_ok=True)
        (links / f"{pod}_{namespace}_{name}-{container}.log").touch()

    async def reported(self, count: int) -> list[NodeHealthReported]:
        """What the ledger has of reports, once it has so many events of them."""

        await eventually(lambda: _true(len(self._reports()) >= count))
        assert len(self._reports()) == count
        return self._reports()

    def _reports(self) -> list[NodeHealthReported]:
        return [event.data for event in self.log.events() if isinstance(event.data, NodeHealthReported)]

    def sums(self) -> dict[str, int]:
        """How many reports of each message the ledger has."""
        sums: dict[str, int] = {}
        for data in self._reports():
            sums[data.message] = sums.get(data.message, 0) + data.count
        return sums


async def _true(value: bool) -> bool:
    return value

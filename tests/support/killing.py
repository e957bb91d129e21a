"""Services of the edge that are killed at one of their steps: each request to the API server, and each publishing."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import KubeRequest, Object
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.jetstream import JetStreamLedger
from support.kept_running import Service
from support.ledger_double import LedgerDouble
from support.projections import stop
from support.statuswriting import CountingClient


class KilledError(Exception):
    """The process is killed."""


class Steps:
    """Counts the steps of a process, and kills it at one of them; what is under way is not done, or not answered."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.taken = 0
        self._kill_at = kill_at

    @property
    def has_killed(self) -> bool:
        """Whether the process came to the step that it is killed at; it takes none behind that."""
        return self._kill_at is not None and self.taken >= self._kill_at

    def take(self) -> None:
        self.taken += 1
        if self.has_killed:
            raise KilledError


class SteppingClient(CountingClient):
    """Each request is two steps: before it is sent, and before its answer is heard."""

    steps = Steps()

    async def send(self, request: KubeRequest) -> Object:
        self.steps.take()
        answer = await super().send(request)
        self.steps.take()
        return answer

    def evictions(self) -> list[str]:
        """The names of the pods whose eviction was requested, in that order."""
        return [one.split("/")[-2] for one in self.written if one.endswith("/eviction")]

    def deletions(self) -> list[str]:
        """The names of the pods whose deletion was requested, in that order."""
        return [one.split("/")[-1] for one in self.written if one.startswith("DELETE ") and "/pods/" in one]

    def patches(self, node: str) -> int:
        """How many writes of a Node were sent."""
        return self.written.count(f"PATCH {NODES.path()}/{node}")


class SteppingLedger(LedgerDouble):
    """Publishing is two steps: before it is recorded, and before the acknowledgement is heard."""

    def __init__(self, ledger: JetStreamLedger, steps: Steps) -> None:
        super().__init__(ledger)
        self._steps = steps

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        self._steps.take()
        receipts = await super().publish_many(messages, expected)
        self._steps.take()
        return receipts


async def was_killed(
    service: Service,
    settled: Coroutine[Any, Any, None],
    client: SteppingClient,
    steps: Steps,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Run a service until its steps kill it, or `settled` returns; says whether it was killed.

    `client` is what it writes with, and `meanwhile` what the cluster does beside it.
    """
    client.steps = steps
    task = asyncio.create_task(service.run())
    settling = asyncio.create_task(settled)
    beside = asyncio.create_task(happen(meanwhile))
    try:
        await asyncio.wait([task, settling], return_when=asyncio.FIRST_COMPLETED)
        if not steps.has_killed:
            return False
        await asyncio.wait([task])
        assert isinstance(task.exception(), KilledError), task
        return True
    finally:
        await stop(settling)
        await stop(beside)
        if not task.done():
            await stop(task)
        client.steps = Steps()


async def happen(what: Callable[[], Awaitable[None]] | None) -> None:
    """Let it happen, if it is anything."""
    if what is not None:
        await what()

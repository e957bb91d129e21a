"""How uses of the break-glass group get into the ledger: each once, in order, and none lost silently."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest
from prometheus_client import REGISTRY

from gpuledger.edge.admission.recorder import SOURCE, UseRecorder
from gpuledger.edge.admission.settings import AdmissionSettings
from gpuledger.events.device import DeviceBreakGlassUsed
from gpuledger.events.envelope import Decoded, decode
from gpuledger.events.node import NodeBreakGlassUsed
from gpuledger.events.publishing import SourceKind, source_kind
from gpuledger.ledger.api import Expected, Outgoing, Receipt
from gpuledger.ledger.errors import EventRefusedError, LedgerUnavailableError
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.tasks import end
from support.events import START
from support.waiting import eventually

USE = DeviceBreakGlassUsed(user="eva", operation="UPDATE", changed=("status.state",))
SOON = Backoff(first_s=0.001, max_s=0.001)


class Faltering(MemoryLedger):
    """A ledger that can be away, or refuse events."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.attempts = 0

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None = None) -> list[Receipt]:
        self.attempts += 1
        if self.error is not None:
            raise self.error
        return await super().publish_many(messages, expected)


class Now:
    """A clock that stands where it is put."""

    time = START

    def __call__(self) -> datetime:
        return self.time


class Recorded(UseRecorder):
    """A recorder on a ledger of its own."""

    def __init__(self, **settings: Any) -> None:
        self.ledger, self.clock, numbers = Faltering(), Now(), count(1)
        bounds = AdmissionSettings(backoff=SOON, **settings)
        super().__init__(self.ledger, bounds, self.clock, lambda: 0.0, lambda: f"id-{next(numbers)}")

    async def events(self) -> list[Decoded]:
        """What the ledger has."""
        return [decode(one.data) async for batch in self.ledger.history() for one in batch]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            await end([task])

    async def until(self, number: int) -> list[Decoded]:
        """The events, once there are so many."""

        async def are_there() -> bool:
            return len(await self.events()) >= number

        await eventually(are_there)
        return await self.events()


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"gpuledger_admission_break_glass_{name}", labels) or 0.0


async def test_a_use_becomes_an_event_of_admission() -> None:
    uses = Recorded()
    before = counted("total", resource="gpudevices", operation="UPDATE")
    async with uses.running():
        uses.add("u1", "gpudevices", "d1", USE)
        uses.add("u2", "gpunodestates", "n1", NodeBreakGlassUsed(user="eva", operation="DELETE"))
        first, second = await uses.until(2)
    assert (first.source, first.subject, first.data, first.time) == (SOURCE, "d1", USE, START)
    assert source_kind(SOURCE) is SourceKind.ADMISSION
    assert second.type == NodeBreakGlassUsed.TYPE
    assert [(one.epoch, one.number) for one in (first, second)] == [(first.epoch, 1), (first.epoch, 2)]
    assert counted("total", resource="gpudevices", operation="UPDATE") == before + 1
    assert counted("waiting") == 0


async def test_a_request_that_comes_again_is_one_use() -> None:
    uses = Recorded()
    async with uses.running():
        for _ in range(2):
            uses.add("u1", "gpudevices", "d1", USE)
        uses.add("u1", "gpudevices", "d2", USE)
        uses.add("u2", "gpudevices", "d1", USE)
        found = await uses.until(3)
    assert [one.subject for one in found] == ["d1", "d2", "d1"]
    other = Recorded()
    async with other.running():
        other.add("u1", "gpudevices", "d1", USE)
        (again,) = await other.until(1)
    assert again.id == found[0].id, "whichever replica is asked"


async def test_uses_wait_in_their_order_while_the_ledger_is_away() -> None:
    uses = Recorded()
    uses.ledger.error = LedgerUnavailableError("It is away.")
    async with uses.running():
        for index in range(3):
            uses.add(f"u{index}", "gpudevices", f"d{index}", USE)

        async def is_tried() -> bool:
            return uses.ledger.attempts > 2

        await eventually(is_tried)
        assert counted("waiting") == 3
        uses.ledger.error = None
        found = await uses.until(3)
    assert [(one.subject, one.number) for one in found] == [("d0", 1), ("d1", 2), ("d2", 3)]


@pytest.mark.parametrize(
    ("bounds", "reason"), [({"uses_waiting_max": 2}, "waiting-too-many"), ({"uses_per_minute_max": 2}, "rate")]
)
async def test_what_is_beyond_a_bound_is_counted_and_not_recorded(bounds: dict[str, int], reason: str) -> None:
    uses, before = Recorded(**bounds), counted("unrecorded_total", reason=reason)
    for index in range(3):
        uses.add(f"u{index}", "gpudevices", f"d{index}", USE)
    assert counted("unrecorded_total", reason=reason) == before + 1
    async with uses.running():
        await uses.until(2)
        uses.clock.time += timedelta(minutes=1)
        uses.add("u3", "gpudevices", "d3", USE)
        assert [one.number for one in await uses.until(3)] == [1, 2, 3], "no number is missing"


async def test_what_the_ledger_refuses_holds_nothing_up() -> None:
    uses, before = Recorded(), counted("unrecorded_total", reason="refused")
    uses.ledger.error = EventRefusedError("It is too large.")
    async with uses.running():
        uses.add("u1", "gpudevices", "d1", USE)

        async def is_counted() -> bool:
            return counted("unrecorded_total", reason="refused") == before + 1

        await eventually(is_counted)
        uses.ledger.error = None
        uses.add("u2", "gpudevices", "d2", USE)
        assert [one.subject for one in await uses.until(1)] == ["d2"]


async def test_an_object_without_a_name_is_counted() -> None:
    uses, before = Recorded(), counted("unrecorded_total", reason="unnamed")
    uses.add("u1", "gpudevices", "", USE)
    assert counted("unrecorded_total", reason="unnamed") == before + 1
    uses.add("u2", "gpudevices", "d2", USE)
    await uses.drain()
    assert [one.number for one in await uses.events()] == [1]


async def test_what_waits_at_the_end_is_recorded_or_counted() -> None:
    uses, before = Recorded(drain_timeout_s=0.01), counted("unrecorded_total", reason="shutdown")
    uses.add("u1", "gpudevices", "d1", USE)
    await uses.drain()
    assert [one.subject for one in await uses.events()] == ["d1"]
    uses.ledger.error = LedgerUnavailableError("It is away.")
    uses.add("u2", "gpudevices", "d2", USE)
    await uses.drain()
    assert len(await uses.events()) == 1
    assert counted("unrecorded_total", reason="shutdown") == before + 1
    assert counted("waiting") == 0

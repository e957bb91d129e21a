"""Reports are recorded whole, even if their sender gives up while the disk is slow."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from gpuledger.agent.gateway.recording import ReportRecorder
from gpuledger.agent.part import AgentFact
from gpuledger.events.health import NodeHealthReported
from gpuledger.healthreports.coalescing import ReportResult
from gpuledger.healthreports.translate import HealthReport
from support.agent_parts import NODE, NOON, Disk, Time, settle


class SlowDisk(Disk):
    """A disk that waits to be let go before it writes."""

    is_durable = True

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()

    def has_room(self, events: int, size: int) -> bool:
        return True

    async def record_with(self, facts: Sequence[AgentFact], name: str, value: bytes) -> None:
        await self.may_write.wait()
        await self.put(name, value)
        await self.record(facts)


async def test_a_sender_that_gives_up_leaves_nothing_half_done() -> None:
    disk, time = SlowDisk(), Time()
    recorder = ReportRecorder(NODE, disk, clock=time.clock, monotonic=time.monotonic)
    report = HealthReport(NodeHealthReported(monitor="m", check="c", healthy=False, fatal=True, first_at=NOON), NOON)
    sending = asyncio.create_task(recorder.take([report]))
    await settle()
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending
    again = asyncio.create_task(recorder.take([report]))
    await settle()
    assert not disk.recorded
    disk.may_write.set()
    assert await again == [ReportResult.REPEATED]
    assert [fact.data for fact in disk.recorded] == [report.data]

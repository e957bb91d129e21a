"""Which position of the log a time of recording stands for, whatever time of recording events claim."""

from datetime import datetime, timedelta

import pytest

from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import encode, nats_subject_of
from gpuledger.events.position import number_of
from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.projection.replay import sequence_at
from support.events import AGENT, START, event

FAILED = DeviceFailed(kind="XID 79")
LONG_AGO = START - timedelta(days=9_000)
RESTORED_AT = START + timedelta(days=30)
GARBAGE = b"{"


def second(number: float) -> datetime:
    return START + timedelta(seconds=number)


class Recording:
    """A log in memory, with a clock that is set for each event."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger(clock=lambda: self._now_ns)
        self._now_ns = 0

    async def add(self, stored_at: datetime, claimed_at: datetime | None = None, data: bytes | None = None) -> None:
        """Store the next event, which claims a time of recording."""
        self._now_ns = int(stored_at.timestamp()) * 1_000_000_000
        number = number_of(await self.ledger.head()) + 1
        one = event(FAILED, "GPU-1", number=number, source=AGENT)._replace(recorded_at=claimed_at)
        await self.ledger.publish(Outgoing(nats_subject_of(one), one.id, encode(one) if data is None else data))

    async def at(self, time: datetime) -> int:
        """The number of the position that a time stands for."""
        return number_of(await sequence_at(self.ledger, time))


@pytest.mark.parametrize("claimed_at", [LONG_AGO, START + timedelta(days=9_000)])
async def test_a_time_of_recording_that_an_event_claims_moves_no_position(claimed_at: datetime) -> None:
    log = Recording()
    for number in range(1, 101):
        await log.add(second(number), claimed_at if number % 2 == 0 else None)
    assert [await log.at(second(time)) for time in (0, 1, 9.5, 10, 50, 100, 1000)] == [0, 1, 9, 10, 50, 100, 100]


async def test_restored_events_count_from_when_they_were_first_recorded() -> None:
    """Those that claimed an earlier time before they were restored count with the event before them."""
    log = Recording()
    for number in range(1, 11):
        await log.add(RESTORED_AT, LONG_AGO if number in (4, 5) else second(number), GARBAGE if number == 7 else None)
    for number in range(11, 21):
        await log.add(RESTORED_AT + timedelta(seconds=number), None if number % 2 else LONG_AGO)
    times = [second(number) for number in (0, 3, 5, 6, 9, 10, 1000)]
    assert [await log.at(time) for time in times] == [0, 5, 5, 6, 9, 10, 10]
    later = [RESTORED_AT + timedelta(seconds=number) for number in (0, 10, 11, 13, 15, 99)]
    assert [await log.at(time) for time in later] == [10, 10, 11, 13, 15, 20]

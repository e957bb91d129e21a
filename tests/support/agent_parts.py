"""The surroundings of a part in a test: scripted hardware, time that stands still, and a disk."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gpuledger.agent.hardware.api import CardFacts, Readings, Survey, Unregistered, Xid
from gpuledger.agent.hardware.errors import CardLostError, HardwareError
from gpuledger.agent.part import AgentFact
from gpuledger.domain.mig.geometry import Instance
from gpuledger.runtime.clock import Instant

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SETTLED_AFTER = 50
NODE = "worker-01"
PLACE = "0000:17:00.0"
UUID = "GPU-17"
CARD = CardFacts(PLACE, "10de", "2330", "0302", UUID, "1650", "NVIDIA H100", 81_559, (9, 0), 0, mig_enabled=False)
SURVEY = Survey((CARD,), "575.57.08", "12.9")


def moment(seconds: float) -> Instant:
    return Instant(seconds, NOON + timedelta(seconds=seconds))


async def settle() -> None:
    """Let every task run until it waits; nothing here waits for anything real."""
    for _ in range(SETTLED_AFTER):
        await asyncio.sleep(0)


class Time:
    """Time that a test moves on."""

    def __init__(self) -> None:
        self.s = 1_000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.s

    def clock(self) -> datetime:
        return moment(self.s).at

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.s + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        await settle()
        end = self.s + seconds
        while due := [one for one in self._sleepers if one[0] <= end]:
            first = min(due, key=lambda one: one[0])
            self._sleepers.remove(first)
            self.s = first[0]
            if not first[1].done():
                first[1].set_result(None)
            await settle()
        self.s = end


@dataclass
class Disk:
    """What is kept, and what was told, in order."""

    stored: dict[str, bytes] = field(default_factory=dict)
    recorded: list[AgentFact] = field(default_factory=list)
    writes: int = 0

    def get(self, name: str) -> bytes | None:
        return self.stored.get(name)

    async def put(self, name: str, value: bytes) -> None:
        self.stored[name] = value
        self.writes += 1

    async def record(self, facts: Sequence[AgentFact]) -> None:
        await asyncio.sleep(0)
        self.recorded.extend(facts)


class ScriptedCalls:
    """Hardware that reports what a test put here; an error that stands here is raised."""

    kind = "scripted"

    def __init__(self, survey: Survey = SURVEY) -> None:
        self.survey_result: Survey | HardwareError = survey
        self.read: dict[str, Readings | HardwareError] = {}
        self.xids: asyncio.Queue[Xid | HardwareError] = asyncio.Queue()
        self.refused: dict[str, Unregistered] = {}
        self.surveys = 0

    async def survey(self) -> Survey:
        self.surveys += 1
        if isinstance(self.survey_result, HardwareError):
            raise self.survey_result
        return self.survey_result

    async def readings(self, address: str) -> Readings:
        value = self.read.get(address, Readings())
        if isinstance(value, HardwareError):
            raise value
        return value

    async def next_xid(self) -> Xid:
        value = await self.xids.get()
        if isinstance(value, HardwareError):
            raise value
        return value

    def unregistered(self) -> dict[str, Unregistered]:
        return dict(self.refused)

    async def users(self, address: str) -> frozenset[str]:
        raise CardLostError(address)

    async def set_mig(self, address: str, *, enabled: bool) -> bool:
        raise CardLostError(address)

    async def create_instance(self, address: str, profile: str, start: int) -> Instance:
        raise CardLostError(address)

    async def destroy_instance(self, address: str, uuid: str) -> None:
        raise CardLostError(address)

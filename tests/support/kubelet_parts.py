"""What the kubelet side of an agent meets in tests: units and cards, a folder with room for sockets, and haste."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from gpuledger.agent.board import Board, DeviceUnit, ResourceOffer
from gpuledger.agent.hardware.api import CardFacts, Survey
from gpuledger.agent.part import AgentFact, Part
from gpuledger.agent.plugin.resource import WITHDRAW_GRACE_S
from gpuledger.events.allocation import AllocationObserved
from gpuledger.runtime.clock import Sleep
from gpuledger.runtime.tasks import end
from support.kubelet import FakeKubelet
from support.waiting import eventually

HASTE: Final = 50.0
"""The agent's pauses are so much shorter in tests."""


async def hasty(seconds: float) -> None:
    """Wait, but not for long."""
    await asyncio.sleep(seconds / HASTE)


def hasty_once(noticed: asyncio.Event) -> Sleep:
    """Haste for a plugin that withdraws units only after the test noticed that the list is empty."""

    async def sleep(seconds: float) -> None:
        if seconds == WITHDRAW_GRACE_S:
            await noticed.wait()
        await hasty(seconds)

    return sleep


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets; pytest's own paths are too long."""
    with tempfile.TemporaryDirectory(prefix="gk-") as folder:
        yield Path(folder)


def address(index: int) -> str:
    """The PCI address of the n-th card."""
    return f"0000:{index:02x}:00.0"


def card(index: int, **more: Any) -> CardFacts:
    """The n-th card."""
    return CardFacts(address(index), "10de", "2330", uuid=f"GPU-{index}", **more)


def whole_cards(*indexes: int) -> tuple[DeviceUnit, ...]:
    """Units that are whole cards."""
    return tuple(DeviceUnit(f"GPU-{index}", f"GPU-{index}", address(index)) for index in indexes)


def slices(index: int, count: int) -> tuple[DeviceUnit, ...]:
    """Units that share a card."""
    return tuple(DeviceUnit(f"GPU-{index}::{n}", f"GPU-{index}", address(index)) for n in range(count))


def board_of(*offers: ResourceOffer, cards: Sequence[CardFacts] = ()) -> Board:
    """A board as it stands when discovery, health and set-up have looked."""
    board = Board()
    board.put(survey=Survey(tuple(cards) or tuple(card(index) for index in range(16))), unfit={}, offers=offers)
    return board


class Remembers:
    """Keeps small values, in memory; `puts` are the names in their order."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.puts: list[str] = []

    def get(self, name: str) -> bytes | None:
        """The value that was put last."""
        return self.values.get(name)

    async def put(self, name: str, value: bytes) -> None:
        """Replace a value."""
        self.puts.append(name)
        self.values[name] = value


class Listens:
    """Takes what is told; `standing` is what an observer of the ledger makes of it."""

    def __init__(self) -> None:
        self.facts: list[AgentFact] = []
        self.current: dict[str, AllocationObserved] = {}

    async def __call__(self, facts: Sequence[AgentFact]) -> None:
        """Take facts."""
        self.facts.extend(facts)
        for fact in facts:
            if isinstance(fact.data, AllocationObserved):
                self.current[fact.subject] = fact.data
            else:
                self.current.pop(fact.subject, None)


@asynccontextmanager
async def running(part: Part, record: Listens | None = None) -> AsyncIterator[None]:
    """A part at work for the length of the block."""
    task = asyncio.create_task(part.run(record or Listens()))
    try:
        yield
    finally:
        if task.done():
            task.result()
        await end([task])


async def knows(kubelet: FakeKubelet, resource: str, *healthy: str, unhealthy: tuple[str, ...] = ()) -> None:
    """Wait until the kubelet knows the resource with exactly these devices."""
    expected = dict.fromkeys(healthy, "Healthy") | dict.fromkeys(unhealthy, "Unhealthy")

    async def so() -> bool:
        return resource in kubelet.resources and kubelet.health(resource) == expected

    await eventually(so)

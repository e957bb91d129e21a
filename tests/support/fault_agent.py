"""The outbox of an agent in a process of its own, to be killed.

A line to it is `record FIRST COUNT`, after which it records facts with these numbers and answers `kept N` for each on
disk and `held N` for each in memory alone, or `drain`, after which it answers `drained` once nothing waits.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpuledger.agent.outbox import outbox as module
from gpuledger.agent.outbox.outbox import Outbox, open_outbox
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.runtime.backoff import Backoff
from gpuledger.runtime.clock import system_clock
from gpuledger.runtime.tasks import run_until_one_ends
from support.fault_processes import Starter, StoryProcess
from support.outbox import NODE, fact

RETRY = Backoff(first_s=0.05, max_s=0.2)
CHECK_PERIOD_S = 0.1
FACT_BYTES = 300
SOURCE = f"/nodes/{NODE}/agent"


class Agent(StoryProcess):
    """The process, and what it has said."""

    def __init__(self, folder: Path, url: str, log: Path) -> None:
        super().__init__(keep, (str(folder), url), log)
        self.folder = folder
        self.kept: set[int] = set()
        self.recorded = 0
        self.lost_memory = False
        self._answered = 0
        self._held: set[int] = set()
        self._drained = False

    async def kill(self) -> None:
        await super().kill()
        # What was held in memory, or asked for a moment ago, is gone with the process.
        self.lost_memory |= bool(self._held)
        self._answered = self.recorded

    def record(self, count: int) -> None:
        """Have it record so many more facts."""
        self.say(f"record {self.recorded} {count}")
        self.recorded += count

    async def has_answered(self) -> bool:
        """Whether it has said of every fact where it is."""
        return self._answered >= self.recorded

    def drain(self) -> None:
        """Have it say when nothing waits."""
        self._drained = False
        self.say("drain")

    async def is_drained(self) -> bool:
        """Whether it has said so."""
        return self._drained

    def hear(self, line: bytes) -> None:
        match line.decode().split():
            case ["kept", number]:
                self.kept.add(int(number))
                self._held.clear()  # with one fact the disk has taken all before it
                self._answered = int(number) + 1
            case ["held", number]:
                self._held.add(int(number))
                self._answered = int(number) + 1
            case _:
                self._held.clear()
                self._drained = True


async def _obey(starter: Starter, outbox: Outbox) -> None:
    async for words in starter.lines():
        match words:
            case ["record", first, count]:
                for number in range(int(first), int(first) + int(count)):
                    await outbox.record([fact(number, at=system_clock(), size=FACT_BYTES)])
                    starter.answer(f"{'kept' if outbox.status.durable else 'held'} {number}")
            case _:
                while outbox.status.waiting:  # noqa: ASYNC110 - it ends when all is there, and not before
                    await asyncio.sleep(0.01)
                starter.answer("drained")


async def keep(starter: Starter, folder: str, url: str) -> None:
    """Run the outbox until killed."""
    vars(module).update(RETRY=RETRY, CHECK_PERIOD_S=CHECK_PERIOD_S)

    @asynccontextmanager
    async def connect() -> AsyncIterator[JetStreamLedger]:
        async with connect_ledger(url, name="agent", connect_timeout_s=1.0, publish_timeout_s=1.0) as ledger:
            yield ledger

    async with open_outbox(Path(folder), NODE, version="1.0", hardware="simulated") as outbox:
        await run_until_one_ends(outbox.run(connect), _obey(starter, outbox))

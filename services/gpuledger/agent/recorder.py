"""Brings what the observers found into the ledger, in order, numbered, and however long the ledger is away.

A fact gets its number only when it is sent: what stops mattering before then leaves no gap in the numbering. What was
sent and not acknowledged is sent again as it was, and counts once.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog

from gpuledger.agent.observing import WAITING_MAX, Fact, Observer, Sleep
from gpuledger.events.envelope import Event, encode, nats_subject_of
from gpuledger.events.ids import derived_id
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError

RETRY_FIRST_S: Final = 0.2
RETRY_MAX_S: Final = 10.0

log = structlog.get_logger("gpuledger.agent")

Connect = Callable[[], AbstractAsyncContextManager[Ledger]]
"""Connects to the ledger; raises LedgerUnavailableError while it is away."""


def source_of(node: str) -> str:
    """The source that a node's agent is."""
    return f"/nodes/{node}/agent"


class Recorder:
    """Records as one epoch of the node's agent, from number 1 on."""

    def __init__(self, node: str, epoch: str, *, sleep: Sleep) -> None:
        self._source = source_of(node)
        self._epoch = epoch
        self._sleep = sleep
        self._waiting: dict[str, list[Fact]] = {}
        self._sending: list[Outgoing] = []
        self._number = 0
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.trouble: str | None = None
        """Why the ledger cannot be written to; None where it can, as far as is known."""

    @property
    def recorded(self) -> int:
        """How many facts the ledger has acknowledged."""
        return self._number - len(self._sending)

    @property
    def waiting(self) -> int:
        """How many facts it has not."""
        return len(self._sending) + sum(map(len, self._waiting.values()))

    def add(self, observer: Observer, facts: Sequence[Fact]) -> None:
        """Take what an observer found; of what waits only what still matters is kept."""
        if not facts:
            return
        kept = observer.mattering([*self._waiting.get(observer.name, ()), *facts])
        assert len(kept) <= WAITING_MAX, "an observer bounds what waits"
        self._waiting[observer.name] = list(kept)
        self._idle.clear()
        self._wanted.set()

    async def run(self, connect: Connect) -> None:
        """Record for ever.

        Raises:
            LedgerError: the ledger is there and cannot take it.
        """
        failures = 0
        while True:
            recorded = self.recorded
            try:
                async with connect() as ledger:
                    await self._record(ledger)
            except (LedgerUnavailableError, PublishError) as error:
                self.trouble = str(error)
            failures = failures + 1 if self.recorded == recorded else 1
            pause_s = min(RETRY_FIRST_S * 2.0 ** min(failures - 1, 32), RETRY_MAX_S)
            log.warning("waiting for the ledger", reason=self.trouble, waiting=self.waiting, pause_s=pause_s)
            await self._sleep(pause_s)

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        await self._idle.wait()

    async def _record(self, ledger: Ledger) -> None:
        self.trouble = None
        while True:
            self._sending = self._sending or self._numbered()
            if self._sending:
                await ledger.publish_many(self._sending)
                self._sending, self.trouble = [], None
                continue
            self._idle.set()
            self._wanted.clear()
            await self._wanted.wait()

    def _numbered(self) -> list[Outgoing]:
        facts = sorted((fact for facts in self._waiting.values() for fact in facts), key=lambda fact: fact.time)
        self._waiting = {}
        return [self._outgoing(fact) for fact in facts]

    def _outgoing(self, fact: Fact) -> Outgoing:
        self._number += 1
        data = fact.data
        event_id = derived_id(f"{self._source}#{self._epoch}#{self._number}", data.TYPE, fact.subject)
        event = Event(event_id, self._source, data.TYPE, fact.subject, fact.time, data, self._epoch, self._number)
        return Outgoing(nats_subject_of(event), event.id, encode(event))

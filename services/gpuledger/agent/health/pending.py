"""The facts that wait to be recorded, in order and bounded: the disk may be slower than a card that fails.

No fact is lost. When many wait, further errors are added to waiting ones of the same kind and card: a card has few
kinds of errors, and at most one verdict or failure per poll.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from gpuledger.agent.part import AgentFact
from gpuledger.events.device import DeviceErrorsObserved

PENDING_MAX: Final = 1_000
"""From so many waiting facts on, errors are added up."""


class PendingFacts:
    """A queue of facts with one consumer."""

    def __init__(self) -> None:
        self._facts: list[AgentFact] = []
        self._changed = asyncio.Event()
        self._is_closed = False

    def add(self, facts: Iterable[AgentFact]) -> None:
        """Append facts, or add up errors where many wait already."""
        for fact in facts:
            same = self._same(fact) if len(self._facts) >= PENDING_MAX else None
            if same is None:
                self._facts.append(fact)
            else:
                self._facts[same] = _sum(self._facts[same], fact)
        self._changed.set()

    def close(self) -> None:
        """Accept no more facts; `next` returns an empty list when the rest is taken."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> list[AgentFact]:
        """All waiting facts, as soon as there are any; empty once the queue is closed and drained."""
        while not self._facts and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        facts, self._facts = self._facts, []
        return facts

    def _same(self, fact: AgentFact) -> int | None:
        """The index of waiting errors of the same kind and card."""
        key = _key(fact)
        return next((index for index, one in enumerate(self._facts) if key is not None and _key(one) == key), None)


def _key(fact: AgentFact) -> tuple[str, str, str] | None:
    data = fact.data
    return (fact.subject, data.kind, data.cause) if isinstance(data, DeviceErrorsObserved) else None


def _sum(before: AgentFact, after: AgentFact) -> AgentFact:
    one, other = before.data, after.data
    assert isinstance(one, DeviceErrorsObserved), "only errors have a key"
    assert isinstance(other, DeviceErrorsObserved), "only errors have a key"
    total = {"count": one.count + other.count, "first_at": min(one.first_at, other.first_at)}
    return AgentFact(after.subject, other.model_copy(update=total), max(before.time, after.time))

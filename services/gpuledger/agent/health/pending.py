"""The facts that wait to be told, in their order, and bounded: the disk may be slower than a card that fails.

Nothing is dropped. When many wait, further errors are added to those of the same kind and card that wait already; there
are few kinds of them a card, and of verdicts and failures at most as many as looks.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from gpuledger.agent.part import Fact
from gpuledger.events.device import DeviceErrorsObserved

UNTOLD_MAX: Final = 1_000
"""Facts that wait; from then on errors are added up."""


class Untold:
    """The facts that wait to be told."""

    def __init__(self) -> None:
        self._facts: list[Fact] = []
        self._changed = asyncio.Event()
        self._is_over = False

    def add(self, facts: Iterable[Fact]) -> None:
        """Facts to be told."""
        for fact in facts:
            like = self._like(fact) if len(self._facts) >= UNTOLD_MAX else None
            if like is None:
                self._facts.append(fact)
            else:
                self._facts[like] = _together(self._facts[like], fact)
        self._changed.set()

    def no_more(self) -> None:
        """Nothing will be added any more."""
        self._is_over = True
        self._changed.set()

    async def next(self) -> list[Fact]:
        """Those that wait, as soon as there are some; none: there will be none any more."""
        while not self._facts and not self._is_over:
            self._changed.clear()
            await self._changed.wait()
        facts, self._facts = self._facts, []
        return facts

    def _like(self, fact: Fact) -> int | None:
        """Where errors of the same kind and card wait."""
        found = (index for index, waiting in enumerate(self._facts) if _key(waiting) == _key(fact))
        return next(found, None) if isinstance(fact.data, DeviceErrorsObserved) else None


def _key(fact: Fact) -> tuple[str, str, str] | None:
    data = fact.data
    return (fact.subject, data.kind, data.cause) if isinstance(data, DeviceErrorsObserved) else None


def _together(before: Fact, after: Fact) -> Fact:
    one, other = before.data, after.data
    assert isinstance(one, DeviceErrorsObserved), "only errors are alike"
    assert isinstance(other, DeviceErrorsObserved), "only errors are alike"
    whole = {"count": one.count + other.count, "first_at": min(one.first_at, other.first_at)}
    return Fact(after.subject, other.model_copy(update=whole), max(before.time, after.time))

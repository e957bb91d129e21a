"""What an agent is made of: observers, each of which looks at one thing on the node and says what it found.

An observer waits for nothing but its own look, which it bounds itself. What the agent sees comes to the ledger by the
recorder; observers know nothing of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from gpuledger.events.payload import Payload

WAITING_MAX = 64
"""Facts of one observer that wait for the ledger."""

Sleep = Callable[[float], Awaitable[Any]]
"""Waits for some seconds."""


class Fact(NamedTuple):
    """Something that an observer found: what about, what, and when it was so."""

    subject: str
    data: Payload
    time: datetime


class Observer(Protocol):
    """Looks at one thing, again and again."""

    @property
    def name(self) -> str:
        """What it is called in the log and in health."""
        ...

    @property
    def period_s(self) -> float:
        """How long to wait between two looks."""
        ...

    async def look(self) -> Sequence[Fact]:
        """What is to be told now; what cannot be seen is a fact too, and raises nothing."""
        ...

    def mattering(self, waiting: Sequence[Fact]) -> Sequence[Fact]:
        """Of facts that could not be recorded yet, in their order, those that still matter: `WAITING_MAX` at most."""
        ...

"""What an agent is made of: parts, each of which runs by itself, and tells what it finds.

What is told comes to the ledger by the outbox; parts know nothing of it. Where a part needs what another found, they
meet on the board (`gpuledger.agent.board`).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from gpuledger.events.payload import Payload


class Fact(NamedTuple):
    """Something that was found: what about (the event's subject), what, and when it was so."""

    subject: str
    data: Payload
    time: datetime


class Tell(Protocol):
    """Takes facts for the ledger, in their order."""

    async def __call__(self, facts: Sequence[Fact]) -> None:
        """Keep the facts; they are on disk, and will come to the ledger, when this returns."""
        ...


class Part(Protocol):
    """A part of the agent."""

    @property
    def name(self) -> str:
        """What it is called in the log and in health."""
        ...

    @property
    def stuck_after_s(self) -> float:
        """A part whose `alive_at` is longer ago than this is stuck."""
        ...

    @property
    def alive_at(self) -> float | None:
        """When it last did its work, in seconds of the event loop's clock; None before the first time."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it cannot do its work at the moment, for people to read; None where it can, as far as is known."""
        ...

    async def run(self, tell: Tell) -> None:
        """Work until cancelled. What cannot be seen is a fact or a line in the log, and raises nothing."""
        ...


class Keep(Protocol):
    """Small values by name. Where the disk takes nothing, they last as long as the process."""

    def get(self, name: str) -> bytes | None:
        """The value that was put last, or None."""
        ...

    async def put(self, name: str, value: bytes) -> None:
        """Replace a value; it is on disk when this returns, unless the disk takes nothing, which is told elsewhere."""
        ...


class Moment(NamedTuple):
    """`s` are seconds of a clock that nobody sets, for windows; `at` is the time that is told."""

    s: float
    at: datetime

"""What the agent is made of: parts that run side by side, record facts, and keep a little state over restarts.

For whoever writes a part. A part hands its facts to a recorder and reads what other parts found on the board
(`gpuledger.agent.board`); it must know neither the outbox behind the recorder nor another part.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

import structlog

from gpuledger.events.payload import Payload

log = structlog.get_logger("gpuledger.agent")


class AgentFact(NamedTuple):
    """A fact that a part records: the event's subject, its payload, and when it was true."""

    subject: str
    data: Payload
    time: datetime


class Recorder(Protocol):
    """Takes facts for the ledger, in order."""

    async def __call__(self, facts: Sequence[AgentFact]) -> None:
        """Persist the facts: when this returns they are on disk, and the outbox will publish them."""
        ...


class StateStore(Protocol):
    """Small values by name, which survive a restart unless the disk takes no writes."""

    def get(self, name: str) -> bytes | None:
        """The newest value, or None."""
        ...

    async def put(self, name: str, value: bytes) -> None:
        """Replace a value; it is on disk when this returns, unless the disk takes no writes."""
        ...


class DurableStore(StateStore, Protocol):
    """A state store that records facts together with a value, for a part that acknowledges only what cannot be lost."""

    @property
    def is_durable(self) -> bool:
        """Whether all that was recorded and put is on disk, or in the ledger."""
        ...

    def has_room(self, events: int, size: int) -> bool:
        """Whether so many events and bytes more may wait for the ledger and leave room for others."""
        ...

    async def record_with(self, facts: Sequence[AgentFact], name: str, value: bytes) -> None:
        """Persist facts and replace a value, both or neither; on disk when this returns, if `is_durable` says so."""
        ...


class Part(Protocol):
    """A part of the agent, which the supervisor runs in a task of its own."""

    @property
    def name(self) -> str:
        """Its name in the log and in /healthz."""
        ...

    @property
    def stuck_after_s(self) -> float:
        """The part counts as stuck when its `alive_at` is older than this."""
        ...

    @property
    def alive_at(self) -> float | None:
        """When it last completed a round of work, by the event loop's clock; None before the first."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it cannot work at present, as text for people; None while it can."""
        ...

    async def run(self, record: Recorder) -> None:
        """Work until cancelled. Expected failures become facts, log lines or `trouble`; only defects raise."""
        ...


class BasePart:
    """The status that most parts report of themselves; see `Part`."""

    name: str
    alive_at: float | None = None
    trouble: str | None = None

    def set_trouble(self, trouble: str | None) -> None:
        """Set `trouble`, and log it when it changes."""
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble is None:
            log.info("a part works again", part=self.name)
        else:
            log.warning("a part cannot work", part=self.name, reason=trouble)

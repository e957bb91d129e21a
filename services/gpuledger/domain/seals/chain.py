"""The chain of digests over a partition of the log, and where its last seal stands. Pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.table import Table, TableSpec
from gpuledger.events.digests import NOTHING, chained
from gpuledger.events.envelope import Event
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import ORIGIN, PARTITION, Offset, is_after, lag


class Chain(NamedTuple):
    """The link at `position`, and end and digest of the newest seal (the origin and None before the first)."""

    partition: int
    position: Offset
    digest: str
    sealed_to: Offset
    sealed_digest: str | None

    @property
    def unsealed(self) -> int:
        """How many messages no seal covers yet."""
        return lag(self.sealed_to, self.position)

    def after(self, position: Offset, subject: str, data: bytes) -> "Chain":
        """The chain with one message more."""
        partition, _, digest, sealed_to, sealed_digest = self
        return Chain._make((partition, position, chained(digest, subject, data), sealed_to, sealed_digest))


def beginning(predecessor_digest: str) -> Chain:
    """The chain before the first message of a generation, linked to the last message of the one before, if any."""
    return Chain(PARTITION, ORIGIN, predecessor_digest or NOTHING, ORIGIN, None)


class Seals:
    """The state of the `seals` service."""

    def __init__(self) -> None:
        self.chains: Table[Chain] = Table(CHAINS)
        self._beginning = beginning("")

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table, by name."""
        return {CHAINS.name: self.chains}

    def begin(self, predecessor_digest: str) -> None:
        """Start the chain of a generation; the first message gives it a row."""
        self._beginning = beginning(predecessor_digest)

    def link(self, position: Offset, subject: str, data: bytes) -> Chain:
        """Add a message to the chain."""
        chain = (self.chains.rows.get(PARTITION) or self._beginning).after(position, subject, data)
        self.chains.put(chain)
        return chain


def seals_another_log(event: Event[object]) -> bool:
    """Whether a seal was restored with the log that it sealed; what stands here has other bytes."""
    return event.recorded_at is not None


def on_sealed(state: Seals, fact: Fact, data: LedgerSealed) -> None:
    """A seal of this log covers the chain up to its last position; one that is recorded again covers no more."""
    chain = state.chains.rows[PARTITION]
    if not seals_another_log(fact.event) and is_after(data.last, chain.sealed_to):
        state.chains.put(chain._replace(sealed_to=data.last, sealed_digest=data.digest))


CHAINS: Final = TableSpec("seal_chain", Chain, ("partition",))
SPECS: Final = (CHAINS,)
HANDLERS: Final[Handlers] = {LedgerSealed: on_sealed}

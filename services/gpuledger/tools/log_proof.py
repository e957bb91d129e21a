"""Proves that the log is what it was when it was sealed: reads it from its start and compares every seal."""

from typing import Final, NamedTuple

from gpuledger.domain.seals.chain import Chain, beginning
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Offset, Position, events_up_to, is_at_or_after, is_origin, is_same, next_after
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import GenerationError, LogChangedError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.replay import OnProgress
from gpuledger.tools.queries.backend import Backend

LINKS_MAX: Final = 1_000_000
"""How many messages a seal may lie behind its end; the proof keeps a link for each."""

_SEALS: Final = "ledger.svc.seals.ledger."


class LogProof(NamedTuple):
    """How far seals cover the log, how many, the newest one's digest, what no seal covers yet, and the first break."""

    sealed_to: Position
    seals: int
    newest: str | None
    unsealed: int
    first_break: str | None


class _Proof:
    """The chain as it is read, and the seals that were compared with it."""

    def __init__(self, ledger: Ledger) -> None:
        predecessor = ledger.identity.predecessor
        self.chain: Chain = beginning(predecessor.digest if predecessor else "")
        self.seals = 0
        self.first_break: str | None = None
        self._generation = ledger.generation
        self._links: dict[Offset, str] = {}

    def read(self, message: Message) -> None:
        """Compare a seal, and add the message to the chain."""
        if message.subject.startswith(_SEALS):
            self._compare(message)
        self.chain = self.chain.after(message.sequence, message.subject, message.data)
        self._links[message.sequence] = self.chain.digest
        if len(self._links) > LINKS_MAX:
            del self._links[next(iter(self._links))]

    def _compare(self, message: Message) -> None:
        try:
            event = decode(message.data)
        except EventError as error:
            self._break(f"the seal at {message.sequence} cannot be read: {error}")
            return
        data, chain = event.data, self.chain
        if not isinstance(data, LedgerSealed) or event.subject != str(self._generation):
            return
        if is_same(data.last, chain.sealed_to) and data.digest == chain.sealed_digest:
            return  # recorded twice
        if not is_same(data.first, next_after(chain.sealed_to)) or data.previous != chain.sealed_digest:
            self._break(f"the seal at {message.sequence} follows another seal than the one before it")
        elif self._links.get(data.last) != data.digest:
            self._break(f"the messages {data.first} to {data.last} are not those that were sealed")
        self.seals += 1
        self.chain = chain._replace(sealed_to=data.last, sealed_digest=data.digest)
        for position in [one for one in self._links if is_at_or_after(data.last, one)]:
            del self._links[position]

    def _break(self, reason: str) -> None:
        self.first_break = self.first_break or reason


async def prove_log(backend: Backend, on_progress: OnProgress | None = None) -> LogProof:
    """Compare the log with its seals, and its beginning with the end of the generation before, where that is kept.

    Raises:
        LedgerUnavailableError: it cannot be read.
    """
    ledger = backend.ledger
    proof, head = _Proof(ledger), await ledger.head()
    proof.first_break = await _predecessor_break(backend)
    try:
        async for messages in ledger.history(until=head):
            for message in messages:
                proof.read(message)
            if on_progress:
                on_progress(events_up_to(messages[-1].sequence), events_up_to(head))
    except LogChangedError as error:
        proof.first_break = proof.first_break or str(error)
    sealed_to = Position(ledger.generation, proof.chain.sealed_to)
    return LogProof(sealed_to, proof.seals, proof.chain.sealed_digest, proof.chain.unsealed, proof.first_break)


async def _predecessor_break(backend: Backend) -> str | None:
    generation, predecessor = backend.ledger.generation - 1, backend.ledger.identity.predecessor
    if predecessor is None or is_origin(predecessor.head):
        return None
    opening = connect_ledger(
        backend.nats_url, name="gpuledger verify", generation=generation, identity=backend.nats_identity
    )
    try:
        async with opening as before:
            found = await before.anchor_at(predecessor.head)
    except GenerationError:
        return None  # kept elsewhere
    except LogChangedError as error:
        return str(error)
    if found is None or found.digest != predecessor.digest:
        return f"generation {generation} does not end with the event that generation {generation + 1} names"
    return None

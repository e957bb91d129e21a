"""Proves that the log is what it was when it was sealed: reads it from its start and compares every seal."""

from typing import Final, NamedTuple

from gpuledger.domain.seals.chain import beginning, seals_another_log
from gpuledger.domain.seals.proof import RecordedSeal, compare
from gpuledger.events.digests import chained
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import Offset, Position, events_up_to, is_origin, lag
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.errors import GenerationError, LogChangedError
from gpuledger.ledger.jetstream import connect_ledger
from gpuledger.projection.replay import OnProgress
from gpuledger.tools.queries.backend import Backend

_SEALS: Final = "ledger.svc.seals.ledger.>"


class LogProof(NamedTuple):
    """How far seals cover the log, how many, the newest one's digest, what no seal covers yet, and the first break."""

    sealed_to: Position
    seals: int
    newest: str | None
    unsealed: int
    first_break: str | None


class _Proof:
    """The seals of the log, and the chain's links at the ends of what they cover; it keeps no others."""

    def __init__(self, ledger: Ledger, head: Offset) -> None:
        self.seals: list[RecordedSeal] = []
        self.links: dict[Offset, str] = {}
        self.first_break: str | None = None
        self._ledger = ledger
        self._head = head

    async def read(self, on_progress: OnProgress | None) -> None:
        """Read the seals, and then the log."""
        try:
            await self._read_seals()
            await self._read_links(on_progress)
        except LogChangedError as error:
            self.note(str(error))

    def note(self, problem: str | None) -> None:
        """Keep the first problem."""
        self.first_break = self.first_break or problem

    async def _read_seals(self) -> None:
        async for messages in self._ledger.history(until=self._head, subject_filter=_SEALS):
            for message in messages:
                try:
                    event = decode(message.data)
                except EventError as error:
                    self.note(f"the seal at {message.sequence} cannot be read: {error}")
                    continue
                if isinstance(event.data, LedgerSealed) and not seals_another_log(event):
                    self.seals.append(RecordedSeal(message.sequence, event.data))

    async def _read_links(self, on_progress: OnProgress | None) -> None:
        predecessor = self._ledger.identity.predecessor
        link = beginning(predecessor.digest if predecessor else "").digest
        ends = {seal.data.last for seal in self.seals}
        async for messages in self._ledger.history(until=self._head):
            for message in messages:
                link = chained(link, message.subject, message.data)
                if message.sequence in ends:
                    self.links[message.sequence] = link
            if on_progress:
                on_progress(events_up_to(messages[-1].sequence), events_up_to(self._head))


async def prove_log(backend: Backend, on_progress: OnProgress | None = None) -> LogProof:
    """Compare the log with its seals, and its beginning with the end of the generation before, where that is kept.

    Raises:
        LedgerUnavailableError: it cannot be read.
    """
    ledger = backend.ledger
    head = await ledger.head()
    proof = _Proof(ledger, head)
    proof.note(await _predecessor_break(backend))
    await proof.read(on_progress)
    compared = compare(proof.seals, proof.links)
    proof.note(compared.first_break)
    sealed_to, unsealed = Position(ledger.generation, compared.sealed_to), lag(compared.sealed_to, head)
    return LogProof(sealed_to, compared.seals, compared.newest, unsealed, proof.first_break)


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

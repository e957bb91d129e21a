"""Proves that the log is what it was when it was sealed: reads it from its start and compares every seal."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple

from gpuledger.domain.seals.chain import seals_another_log
from gpuledger.domain.seals.proof import RecordedSeal, compare, unproven_before
from gpuledger.events.digests import chained
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.ledger import LedgerSealed
from gpuledger.events.position import (
    ORIGIN,
    Offset,
    Position,
    back,
    events_up_to,
    is_at_or_after,
    is_origin,
    lag,
    latest,
)
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import GenerationError, LogChangedError, NoLedgerError
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.reporting import Advance

SEAL_SUBJECTS: Final = "ledger.svc.seals.ledger.>"

_OF_BEFORE_IDS: Final = "It is of before ledgers had ids and seals, so nothing can prove it; keep it as it is."


class GenerationProof(NamedTuple):
    """How far seals cover a generation, how many, the newest one's digest, what is unsealed, and the first break.

    `link` is the link of the chain of digests at its end. The end of a closed generation is sealed in the next one.
    """

    sealed_to: Position
    seals: int
    newest: str | None
    unsealed: int
    first_break: str | None
    link: str = ""


class LogProof(NamedTuple):
    """The proofs of all generations that are here, the current one last, and why there is none of the others."""

    generations: list[GenerationProof]
    unproven: dict[int, str]

    @property
    def current(self) -> GenerationProof:
        """The proof of the generation that is written to."""
        return self.generations[-1]

    @property
    def broken(self) -> GenerationProof | None:
        """The first that is not what it was."""
        return next((one for one in self.generations if one.first_break is not None), None)


class _Proof:
    """The seals of the log, and the chain's links at the ends of what they cover; it keeps no others."""

    def __init__(self, ledger: Ledger, head: Offset) -> None:
        self.seals: list[RecordedSeal] = []
        self.links: dict[Offset, str] = {}
        self.first_break: str | None = None
        self.link = ledger.identity.link
        """The link at the end of what was read."""

        self._ledger = ledger
        self._head = head

    async def read(self, advance: Advance) -> None:
        """Read the seals, and then the log."""
        try:
            await self._read_seals()
            await self._read_links(advance)
        except LogChangedError as error:
            self.note(str(error))

    def note(self, problem: str | None) -> None:
        """Keep the first problem."""
        self.first_break = self.first_break or problem

    async def _read_seals(self) -> None:
        behind = self._ledger.identity.behind
        async for messages in self._ledger.history(behind, self._head, SEAL_SUBJECTS):
            self.seals += (_as_proven_here(seal, behind) for seal in seals_among(messages, self.note))

    async def _read_links(self, advance: Advance) -> None:
        link, behind = self._ledger.identity.link, self._ledger.identity.behind
        ends = {seal.data.last for seal in self.seals}
        async for messages in self._ledger.history(behind, self._head):
            for message in messages:
                link = chained(link, message.subject, message.data)
                if message.sequence in ends:
                    self.links[message.sequence] = link
            advance.to(events_up_to(messages[-1].sequence, behind))
        self.link = link


def _as_proven_here(seal: RecordedSeal, behind: Offset) -> RecordedSeal:
    """A seal of what a closed generation holds is one that was restored: the next generation begins with its repeat."""
    return seal._replace(is_restored=True) if is_at_or_after(behind, seal.data.last) else seal


async def prove_log(backend: Backend) -> LogProof:
    """Compare every generation with its seals, and its beginning with the end of the one before, where that is here.

    Raises:
        LedgerUnavailableError: one cannot be read.
    """
    generations: list[GenerationProof] = []
    unproven: dict[int, str] = {}
    for number in range(1, backend.ledger.generation):
        try:
            async with _opened(backend, number) as archived:
                generations.append(await _prove(backend, archived))
        except GenerationError as error:
            unproven[number] = _archived_at(backend.ledger.identity, number) or str(error)
        except NoLedgerError:
            unproven[number] = _OF_BEFORE_IDS
        except LogChangedError as error:
            generations.append(GenerationProof(Position(number, ORIGIN), 0, None, 0, str(error)))
    proven = [*generations, await _prove(backend, backend.ledger)]
    return LogProof(_linked(proven, backend.ledger.identity), unproven)


def _linked(proven: list[GenerationProof], identity: LedgerIdentity) -> list[GenerationProof]:
    """The proofs, of which the last breaks where the chain does not go on from the generation before."""
    *earlier, current = proven
    if not earlier or identity.continued is None or current.first_break is not None:
        return proven
    before = earlier[-1]
    if before.sealed_to.generation + 1 != identity.generation or before.link == identity.continued.link:
        return proven
    text = f"it does not go on where generation {identity.generation - 1} ends"
    return [*earlier, current._replace(first_break=text)]


def _archived_at(identity: LedgerIdentity, generation: int) -> str | None:
    closed = () if identity.continued is None else identity.continued.closed
    location = next((one.archive for one in closed if one.generation == generation), None)
    return location and f"It was closed. `gpuledger log archive verify {location}` proves its archive."


def _opened(backend: Backend, generation: int) -> AbstractAsyncContextManager[JetStreamLedger]:
    return connect_ledger(
        backend.nats_url, name="gpuledger verify", generation=generation, identity=backend.nats_identity
    )


async def _prove(backend: Backend, ledger: Ledger) -> GenerationProof:
    head = await ledger.head()
    proof = _Proof(ledger, head)
    proof.note(await _predecessor_break(backend, ledger))
    description = f"Verifying generation {ledger.generation} of the log"
    with backend.reporter.progress(
        description, total=events_up_to(head, ledger.identity.behind), unit="events"
    ) as advance:
        await proof.read(advance)
    behind = ledger.identity.behind
    follow_closed = [one for one in proof.seals if is_at_or_after(behind, back(one.data.first, 1))]
    compared = compare([*proof.seals, *unproven_before(follow_closed, proof.links)], proof.links)
    proof.note(compared.first_break)
    sealed_to = Position(ledger.generation, compared.sealed_to)
    unsealed = lag(latest([compared.sealed_to, behind]), head)
    return GenerationProof(sealed_to, compared.seals, compared.newest, unsealed, proof.first_break, proof.link)


async def _predecessor_break(backend: Backend, ledger: Ledger) -> str | None:
    generation, predecessor = ledger.generation - 1, ledger.identity.predecessor
    if predecessor is None or is_origin(predecessor.head):
        return None
    try:
        async with _opened(backend, generation) as before:
            found = await before.anchor_at(predecessor.head)
    except GenerationError:
        return None  # kept elsewhere
    except LogChangedError as error:
        return str(error)
    if found is None or found.digest != predecessor.digest:
        return f"generation {generation} does not end with the event that generation {generation + 1} names"
    return None


def seals_among(messages: Iterable[Message], note: Callable[[str], None]) -> Iterator[RecordedSeal]:
    """The seals among messages about seals; `note` hears of those that cannot be read."""
    for message in messages:
        try:
            event = decode(message.data)
        except EventError as error:
            note(f"the seal at {message.sequence} cannot be read: {error}")
            continue
        if isinstance(event.data, LedgerSealed):
            yield RecordedSeal(message.sequence, event.data, seals_another_log(event))

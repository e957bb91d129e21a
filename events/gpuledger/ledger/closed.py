"""The closed generations of a log that goes on: read from their streams while these are there, else as archived.

Nothing here changes any more, so nothing is confirmed again and again: who needs to know that an archive is what the
log was verifies it. Archives are read by whoever brings an `Archives`; the log itself does not know their format.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from nats.js.errors import NotFoundError

from gpuledger.events.position import (
    ORIGIN,
    Generations,
    Offset,
    Position,
    back,
    earliest,
    is_after,
    is_at_or_after,
    is_origin,
    latest,
    number_of,
)
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import Message
from gpuledger.ledger.connect import Connection
from gpuledger.ledger.errors import GenerationError, LogCutError, LogLostError
from gpuledger.ledger.generation_log import GenerationLog
from gpuledger.ledger.identity import Anchor, LedgerIdentity, anchor_of
from gpuledger.ledger.stream import Generation, generation_of, has_begun, ledger_streams, stream_info, stream_name

SILENCE_MAX_S: Final = 60.0
"""How long the stream of a closed generation may send nothing of what it holds."""


class ClosedGeneration(NamedTuple):
    """A closed generation of a ledger: the place behind which it begins, its last place, and where it is archived."""

    ledger_id: str
    generation: int
    behind: Offset
    end: Offset
    archive: str


class Archives(Protocol):
    """Reads closed generations whose streams are gone."""

    def messages(
        self, closed: ClosedGeneration, after: Offset, until: Offset, subject_filter: str
    ) -> AsyncIterator[list[Message]]:
        """The messages behind `after` up to `until` that the filter matches, in batches.

        Raises:
            GenerationError: the archive is not there, or not whole.
            LedgerUnavailableError: the object store does not answer.
        """
        ...

    async def messages_at(self, closed: ClosedGeneration, sequences: Sequence[Offset]) -> list[Message | None]:
        """The messages at places in a generation, in their order; None for each that retention has deleted.

        The places follow each other in the log. Raises as `messages` does.
        """
        ...


OpenLog = Callable[[Generation], GenerationLog]
"""Opens the log of a closed generation, whose streams are there."""


class ClosedGenerations:
    """The generations before a ledger's current one, in one numbering with it."""

    def __init__(
        self,
        connection: Connection,
        identity: LedgerIdentity,
        archives: Archives | None,
        open_log: OpenLog,
    ) -> None:
        self._connection = connection
        self._archives = archives
        self._open_log = open_log
        self._logs: dict[int, GenerationLog] = {}
        self._closed: dict[int, ClosedGeneration] = {}
        self.follow(identity)

    def follow(self, identity: LedgerIdentity) -> None:
        """Know those that another generation goes on from."""
        generations: Generations = identity.generations
        closed = () if identity.continued is None else identity.continued.closed
        for generation, behind, archive in closed:
            end = generations.end(generation)
            self._closed[generation] = ClosedGeneration(identity.ledger_id, generation, behind, end, archive)

    async def history(self, after: Offset, until: Offset, subject_filter: str) -> AsyncGenerator[list[Message]]:
        """The messages behind `after` up to `until`, of all of these generations, in batches.

        Raises:
            GenerationError: one of them is neither here nor archived.
            LedgerUnavailableError: it cannot be read.
        """
        for one in sorted(self._closed.values()):
            begin, end = latest([after, one.behind]), earliest(until, one.end)
            if is_at_or_after(begin, end):
                continue
            if log := await self._log_here(one):
                batches = _log_history(log, begin, end, subject_filter)
            else:
                batches = self._archives_of(one).messages(one, begin, end, subject_filter)
            async for messages in batches:
                yield messages

    async def message_at(self, sequence: Offset) -> Message | None:
        """The message at a place in one of them; None where there is none. Raises as `history` does."""
        one = self._at(sequence)
        if one is None:
            return None
        if log := await self._log_here(one):
            with suppress(LogLostError):  # it was deleted meanwhile
                return await log.message_at(sequence)
        async for messages in self._archives_of(one).messages(one, back(sequence, 1), sequence, ALL):
            return messages[0]
        return None

    async def messages_at(self, sequences: Sequence[Offset]) -> list[Message | None]:
        """The messages at places that they had; see `gpuledger.ledger.api.Ledger.messages_at`."""
        found: list[Message | None] = []
        for one, group in groupby(sequences, self._at):
            places = list(group)
            if one is None:
                raise LogCutError(f"no closed generation has the place {number_of(places[0]):,}, where one was read")
            found += await self._messages_of(one, places)
        return found

    async def _messages_of(self, one: ClosedGeneration, sequences: Sequence[Offset]) -> list[Message | None]:
        if log := await self._log_here(one):
            with suppress(LogLostError):  # it was deleted meanwhile
                found = await log.messages_at(sequences)
                absent = [at for at, message in zip(sequences, found, strict=True) if message is None]
                if not absent:
                    return found
                at = Position(one.generation, absent[0])
                raise LogCutError(f"{stream_name(one.generation)} has no event at {at}, where one was read")
        return await self._archives_of(one).messages_at(one, sequences)

    async def anchor_at(self, sequence: Offset) -> Anchor:
        """The anchor at a place in one of them.

        Raises:
            LogCutError: it has no event there.
        """
        found = await self.message_at(sequence)
        if found is None:
            raise LogCutError(f"no closed generation holds an event at {number_of(sequence):,}")
        return anchor_of(found.sequence, found.subject, found.data)

    async def last_sequence(self, subject_filter: str) -> Offset:
        """The last message that the filter matches in those whose streams are here, the origin for none.

        Archives are not searched: a generation begins with repeats of what is asked for in this way.
        """
        for one in sorted(self._closed.values(), reverse=True):
            log = await self._log_here(one)
            if log is None:
                break
            last = await log.last_sequence(subject_filter)
            if not is_origin(last):
                return last
        return ORIGIN

    def _at(self, sequence: Offset) -> ClosedGeneration | None:
        found = (one for one in self._closed.values() if is_after(sequence, one.behind))
        return next((one for one in found if is_at_or_after(one.end, sequence)), None)

    async def _log_here(self, one: ClosedGeneration) -> GenerationLog | None:
        """Its log while its stream is there, else None."""
        try:
            info = await stream_info(self._connection, stream_name(one.generation))
        except NotFoundError:
            return None
        if one.generation not in self._logs:
            self._logs[one.generation] = self._open_log(generation_of(one.generation, info))
        return self._logs[one.generation]

    def _archives_of(self, one: ClosedGeneration) -> Archives:
        if self._archives is None:
            raise GenerationError(
                f"Generation {one.generation} is closed, its stream is gone, and nothing here reads its archive at "
                f"{one.archive}."
            )
        return self._archives


async def _log_history(
    log: GenerationLog, after: Offset, until: Offset, subject_filter: str
) -> AsyncIterator[list[Message]]:
    end = until
    if subject_filter != ALL:
        end = earliest(until, await log.last_sequence(subject_filter))
        if is_at_or_after(after, end):
            return
    async with log.reading(after, subject_filter) as reader:
        while batch := await reader.next_batch(timeout_s=SILENCE_MAX_S):
            selected = [message for message in batch if is_at_or_after(end, message.sequence)]
            if selected:
                yield selected
            if is_at_or_after(batch[-1].sequence, end):
                return
    generation = log.generation
    raise LogCutError(f"{generation.stream} does not show its event at {Position(generation.number, end)}")


async def continuing_generation(connection: Connection, before: LedgerIdentity) -> Generation | None:
    """The current generation, if it goes on from one that was closed, in its numbering.

    Raises:
        LedgerUnavailableError: the server does not answer.
    """
    streams = await ledger_streams(connection)
    newest = max(streams, default=0)
    if newest <= before.generation or not has_begun(newest, streams[newest]):
        return None
    found = generation_of(newest, streams[newest])
    identity = found.identity
    if identity is None or identity.ledger_id != before.ledger_id:
        return None
    at = before.generations.begun[-1]
    return found._replace(current=True, intake="") if at in identity.generations.begun else None

"""Publishes into the current generation of a log, and into the next one where that is closed meanwhile.

What a closed generation took stays there, and the rest goes behind it in the same order. A precondition may name an
event of a closed generation: it is compared there, because the server knows the sequences of one stream alone.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from gpuledger.events.position import (
    ORIGIN,
    Generations,
    Offset,
    back,
    is_after,
    is_at_or_after,
    is_origin,
    is_same,
    latest,
    number_of,
)
from gpuledger.ledger.api import Expected, Ledger, Outgoing, Receipt, behind
from gpuledger.ledger.atomic import parts_of
from gpuledger.ledger.closed import ClosedGenerations
from gpuledger.ledger.errors import GenerationError, SequenceConflictError
from gpuledger.ledger.generation_log import GenerationLog
from gpuledger.ledger.generation_publish import GenerationPublisher
from gpuledger.ledger.repeats import count_receipts, counted_failures

RECENT_MAX: Final = 16_384
"""Among so many last messages of a closed generation are those that it took and did not acknowledge."""

CROSSINGS_MAX: Final = 8
"""How many generations may be closed while one call publishes."""

T = TypeVar("T")


class Continuing(Ledger, Protocol):
    """A ledger that goes on in the next generation."""

    async def go_on_from(self, generation: int) -> bool:
        """Go on behind a generation, unless another call has done so; False where there is none yet."""
        ...

    async def log_of(self, generation: int) -> GenerationLog:
        """The log of one generation, whose stream is there."""
        ...


class SpanningPublisher:
    """Publishes for one ledger."""

    def __init__(
        self,
        log: Continuing,
        current: GenerationLog,
        publisher: GenerationPublisher,
        closed: ClosedGenerations,
    ) -> None:
        self._log = log
        self._current = current
        self._publisher = publisher
        self._closed = closed

    async def start(self) -> None:
        """Listen for acknowledgements, until the connection closes."""
        await self._publisher.start()

    @property
    def message_bytes_max(self) -> int:
        """See `gpuledger.ledger.api.Ledger.message_bytes_max`."""
        return self._publisher.message_bytes_max

    def follow(self, current: GenerationLog, publisher: GenerationPublisher) -> None:
        """Publish there from now on."""
        self._current, self._publisher = current, publisher

    @property
    def _number(self) -> int:
        """The generation that is published into."""
        return self._current.generation.number

    async def publish(self, message: Outgoing, expected: Expected | None) -> Receipt:
        """See `gpuledger.ledger.api.Ledger.publish`."""
        with counted_failures(1):
            receipt = await self._publish(message, expected) if expected else (await self._publish_all([message]))[0]
        count_receipts([receipt])
        return receipt

    async def _publish(self, message: Outgoing, expected: Expected) -> Receipt:
        return await self._in_current(lambda: self._publish_here(message, expected))

    async def _publish_here(self, message: Outgoing, expected: Expected) -> Receipt:
        try:
            here = await self._expected_here(expected)
            return await self._publisher.publish_expected(message, here)
        except SequenceConflictError:
            # The server checks the expectation before it checks for repeats.
            recorded = await self._recorded_behind(expected, message.id)
            if recorded is None:
                raise
            return Receipt(recorded, duplicate=True)

    async def publish_many(self, messages: Sequence[Outgoing], expected: Expected | None) -> list[Receipt]:
        """See `gpuledger.ledger.api.Ledger.publish_many`."""
        with counted_failures(len(messages)):
            if expected is None:
                receipts = await self._publish_all(messages)
            else:
                receipts = await self._publish_in_turn(messages, expected)
        count_receipts(receipts)
        return receipts

    async def _publish_all(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Those that a generation took that was closed meanwhile stay there; the others go into the next one."""
        receipts: list[Receipt] = []
        generation = self._number

        async def publish_rest() -> list[Receipt]:
            nonlocal generation
            if generation != self._number:
                receipts.extend(await self._taken(generation, messages[len(receipts) :]))
                generation = self._number
            try:
                return await self._publisher.publish(messages[len(receipts) :])
            except GenerationError as error:
                receipts.extend(error.receipts)
                raise

        rest = await self._in_current(publish_rest)
        return receipts + rest

    async def _taken(self, generation: int, messages: Sequence[Outgoing]) -> list[Receipt]:
        """The receipts of those that a closed generation took, and did not acknowledge; they come first."""
        recently = back(self._log.generations.end(generation), RECENT_MAX)
        receipts: list[Receipt] = []
        for message in messages:
            closed = await self._log.log_of(generation)
            found = await closed.recorded_behind(recently, message.subject, message.id)
            if found is None:
                break
            receipts.append(Receipt(found, duplicate=True))
        return receipts

    async def _publish_in_turn(self, messages: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """Each behind the one before: the server checks one expectation a batch, and one for each single message."""
        for message in messages:
            self._publisher.check_size(message)
        receipts: list[Receipt] = []
        for part in parts_of(messages):
            committed = await self._commit(part, expected) if len(part) > 1 else []
            if committed:
                expected = expected._replace(sequence=committed[-1].sequence)
            for message in () if committed else part:
                receipt = await self._publish(message, expected)
                expected = await behind(self._log.message_at, expected, message, receipt)
                committed.append(receipt)
            receipts += committed
        return receipts

    async def _commit(self, part: Sequence[Outgoing], expected: Expected) -> list[Receipt]:
        """Try a batch; none is recorded where the expectation does not hold, or the log goes on elsewhere."""
        try:
            return await self._publisher.commit(part, await self._expected_here(expected))
        except SequenceConflictError:
            return []

    async def _expected_here(self, expected: Expected) -> Expected:
        """The precondition as the stream of this generation can check it: what it names may be in a closed one.

        Raises:
            SequenceConflictError: it does not hold in the closed ones.
        """
        if is_in_current(self._log.generations, expected.sequence):
            return expected
        carried = await self._carried(expected.subject_filter)
        before = await self._closed.last_sequence(expected.subject_filter)
        if is_same(before, expected.sequence):
            return expected._replace(sequence=carried)
        raise SequenceConflictError(
            f"The event came too late: the last sequence is {number_of(before)}. Read and decide again."
        )

    async def _carried(self, subject_filter: str) -> Offset:
        """The last message of this generation that the filter matches, if it repeats one of before; else the origin."""
        identity = self._current.generation.identity
        if identity is None or identity.continued is None:
            return ORIGIN
        last = await self._current.last_sequence(subject_filter)
        return last if is_at_or_after(identity.continued.carried, last) else ORIGIN

    async def _recorded_behind(self, expected: Expected, message_id: str) -> Offset | None:
        generations, current = self._log.generations, self._number
        for generation in reversed([current, *generations.before(current)]):
            if is_at_or_after(expected.sequence, generations.end(generation)):
                continue
            after = latest([expected.sequence, generations.behind(generation)])
            log = await self._log.log_of(generation)
            found = await log.recorded_behind(after, expected.subject_filter, message_id)
            if found is not None:
                return found
        return None

    async def _in_current(self, publish: Callable[[], Awaitable[T]]) -> T:
        """Publish, and once more in the next generation where the log goes on there."""
        for _ in range(CROSSINGS_MAX):
            generation = self._number
            try:
                return await publish()
            except GenerationError:
                if not await self._log.go_on_from(generation):
                    raise
        return await publish()


def is_in_current(generations: Generations, at: Offset) -> bool:
    """Whether a place is in the current generation, or before all events; else it is in a closed one."""
    begins = generations.behind(generations.current)
    return is_origin(begins) or is_after(at, begins)

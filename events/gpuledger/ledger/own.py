"""Publishing by a service, which makes sure that its own events stand in the log.

The server drops a message whose id it has seen, whoever sent that, and acknowledges it as a duplicate. So a service
reads back what stands there. Where it is another's message, the service records its event under an id drawn anew, and
the incident beside it. Agents may not read the log; an agent can take ids from itself alone.
"""

import asyncio
from collections.abc import Iterable, Sequence

from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of, parse
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import truncated
from gpuledger.events.position import Offset, Position, latest, number_of
from gpuledger.events.source import SourceMessageIdTaken
from gpuledger.events.subjects import source_filter
from gpuledger.ledger.api import Expected, Ledger, Message, Outgoing, Receipt
from gpuledger.ledger.errors import LedgerUnavailableError, PublishError
from gpuledger.runtime.clock import NewId, random_id
from gpuledger.runtime.telemetry import PUBLISHED

ROUNDS_MAX = 3
"""How often a message may be dropped for another's; the ids drawn here cannot be foreseen."""

READS_AT_ONCE = 64
"""How many messages are read back at a time."""


class OwnEvents:
    """Where the last event of a service stands, as far as the one process knows that records them.

    What it publishes follows from all of them, so it is published only where no other process has recorded one since.
    """

    def __init__(self, source: str, last: Offset) -> None:
        self.expected = Expected(source_filter(source), last)

    def recorded(self, receipts: Iterable[Receipt]) -> None:
        """These were recorded, all of them in our name."""
        last = latest([self.expected.sequence, *(receipt.sequence for receipt in receipts)])
        self.expected = self.expected._replace(sequence=last)


async def publish_own(
    ledger: Ledger, messages: Sequence[Outgoing], new_id: NewId = random_id, own: OwnEvents | None = None
) -> list[Receipt]:
    """Record a service's own events in this order, as `publish_many` does, whatever stands under their ids.

    An event whose id was taken comes behind the others. Repeating the call with the same messages is safe: its
    source's numbers tell an event from its repeat, and an incident is the same event each time.

    Raises:
        PublishError: one stayed unacknowledged within the bound; those before it are recorded.
        SequenceConflictError: another process has recorded one since `own`; what is before it is recorded.
        LedgerUnavailableError: what stands in an event's place cannot be read.
    """
    sent = list(messages)
    receipts = await _publish(ledger, sent, own)
    unsure: Iterable[int] = range(len(sent))
    incidents: list[Outgoing] = []
    for _ in range(ROUNDS_MAX):
        taken = await _taken(ledger, sent, receipts, unsure)
        if own is not None:
            own.recorded(receipts[index] for index in unsure if index not in taken)
        await _note(ledger, incidents, own)
        if not taken:
            return receipts
        PUBLISHED.labels("taken").inc(len(taken))
        noted = [incident(ledger.generation, sent[index], holder) for index, holder in taken.items()]
        incidents = [Outgoing(nats_subject_of(one), new_id(), encode(one)) for one in noted]
        for index in taken:
            sent[index] = sent[index]._replace(id=new_id())
        again = await _publish(ledger, [sent[index] for index in taken], own)
        for index, receipt in zip(taken, again, strict=True):
            receipts[index] = receipt
        unsure = taken
    await ledger.publish_many(incidents)
    raise PublishError(
        f"The server dropped {len(taken)} events for others {ROUNDS_MAX} times running, although their ids are random. "
        "Check what stands between this service and NATS."
    )


def incident(generation: int, message: Outgoing, holder: Message) -> Decoded:
    """The event that says whose message stands under a message's id; the same for every repeat.

    It has an epoch of its own, so that the numbers of the source's other events do not depend on it.
    """
    lost = parse(message.data)
    data = SourceMessageIdTaken(
        generation=generation,
        sequence=number_of(holder.sequence),
        nats_subject=truncated(holder.subject.replace("\0", "\\0")),
        event=lost.id,
        message_id=message.id,
    )
    event_id = derived_id(f"{lost.id}/{Position(generation, holder.sequence)}", data.TYPE, lost.source)
    time = time_of_ns(holder.recorded_ns)
    return Event(event_id, lost.source, data.TYPE, lost.source, time, data, f"taken/{event_id}", 1, lost.id)


async def _note(ledger: Ledger, incidents: Sequence[Outgoing], own: OwnEvents | None) -> None:
    """Record incidents; a repeat among them is ours, because their ids were drawn just now."""
    receipts = await _publish(ledger, incidents, own) if incidents else []
    if own is not None:
        own.recorded(receipts)


async def _publish(ledger: Ledger, messages: Sequence[Outgoing], own: OwnEvents | None) -> list[Receipt]:
    """Record them; a repeat may be another's, so it is not taken for ours before it was read back."""
    if own is None:
        return list(await ledger.publish_many(messages))
    receipts = list(await ledger.publish_many(messages, own.expected))
    own.recorded(one for one in receipts if not one.duplicate)
    return receipts


async def _taken(
    ledger: Ledger, sent: Sequence[Outgoing], receipts: Sequence[Receipt], unsure: Iterable[int]
) -> dict[int, Message]:
    """By the place in the call: the message that stands under the id of one that was dropped."""
    duplicates = [index for index in unsure if receipts[index].duplicate]
    taken: dict[int, Message] = {}
    for start in range(0, len(duplicates), READS_AT_ONCE):
        part = duplicates[start : start + READS_AT_ONCE]
        found = await asyncio.gather(*(_standing(ledger, receipts[index].sequence) for index in part))
        taken |= {
            index: holder
            for index, holder in zip(part, found, strict=True)
            if (holder.subject, holder.data) != (sent[index].subject, sent[index].data)
        }
    return taken


async def _standing(ledger: Ledger, sequence: Offset) -> Message:
    message = await ledger.message_at(sequence)
    if message is None:
        raise LedgerUnavailableError(
            f"The server dropped an event as a repeat of position {Position(ledger.generation, sequence)}, where it "
            "has none. Check the replicas of its stream."
        )
    return message

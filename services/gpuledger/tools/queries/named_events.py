"""Finds the events about one name, whichever form of subject they stand under.

The server finds a named subject by itself. Where names share one, the `index` projection has the positions; what the
log has behind its checkpoint is read and compared. Nothing is folded here.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from typing import Final, NamedTuple

from gpuledger.db.readonly import read_only
from gpuledger.domain.event_index import INDEXED_EVENT, digest_of
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN, Offset, is_origin, lag, order
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import rule_subject
from gpuledger.events.subjects import aggregate_filter, may_share, parse_subject, shared_filter
from gpuledger.ledger.api import Ledger, Message
from gpuledger.projection.store import LIVE, live_checkpoints, schema_of
from gpuledger.readmodels.projections import EventIndexProjection
from gpuledger.tools.queries.backend import Backend, bring_current

READS_AT_ONCE: Final = 64
"""How many single messages the server is asked for at a time."""

COMPARED_MAX: Final = 10_000
"""How many events behind the index's checkpoint are compared; for more the index is brought to the head first."""

_POSITIONS: Final = (
    f"SELECT position FROM {schema_of(LIVE)}.{INDEXED_EVENT.name} "  # noqa: S608 - our own words
    "WHERE digest = ANY(%s) ORDER BY position"
)


class IndexedPositions(NamedTuple):
    """Where the events about a name may stand up to the index's checkpoint, in order; others may have its digest."""

    positions: Sequence[Offset]
    checkpoint: Offset


async def messages_about(
    backend: Backend, aggregate: str, name: str | None = None, event: str = ""
) -> AsyncIterator[list[Message]]:
    """The messages about one aggregate, or about all of its kind, in the order of the log; `event` keeps those of one.

    Raises:
        DatabaseUnavailableError: names share a subject, and the index cannot be read.
    """
    subjects = _of_event(aggregate_filter(aggregate, name), event)
    if name is None or not await names_share(backend.ledger, [aggregate]):
        async for messages in backend.ledger.history(subject_filter=subjects):
            yield messages
        return
    found = [one async for messages in backend.ledger.history(subject_filter=subjects) for one in messages]
    shared = await shared_messages_about(backend, [aggregate], name)
    found += (one for one in shared if not event or parse_subject(one.subject).event == event)
    if found:
        yield sorted(found, key=lambda one: order(one.sequence))


async def names_share(ledger: Ledger, aggregates: Collection[str]) -> bool:
    """Whether the log may have events about names of these aggregates under shared subjects."""
    rule = Rule.SHARED_SUBJECTS
    if not any(may_share(one, RULE_VERSIONS[rule]) for one in aggregates):
        return False
    return not is_origin(await ledger.last_sequence(rule_subject(rule)))


async def shared_messages_about(backend: Backend, aggregates: Collection[str], name: str) -> list[Message]:
    """The messages about a name of one of these aggregates under shared subjects, in the order of the log.

    Raises:
        DatabaseUnavailableError: the index cannot be read.
    """
    aggregates = [one for one in aggregates if may_share(one, RULE_VERSIONS[Rule.SHARED_SUBJECTS])]
    head, indexed = await backend.ledger.head(), await _indexed(backend, aggregates, name)
    if lag(indexed.checkpoint, head) > COMPARED_MAX:
        await bring_current(backend, [EventIndexProjection()])
        indexed = await _indexed(backend, aggregates, name)
    found: list[Message] = []
    for start in range(0, len(indexed.positions), READS_AT_ONCE):
        part = indexed.positions[start : start + READS_AT_ONCE]
        messages = await asyncio.gather(*map(backend.ledger.message_at, part))
        found += _about(name, aggregates, (one for one in messages if one is not None))
    tail: list[Message] = []
    for aggregate in aggregates:
        tail += await _behind(backend.ledger, indexed.checkpoint, aggregate, name)
    return found + sorted(tail, key=lambda one: order(one.sequence))


async def _behind(ledger: Ledger, checkpoint: Offset, aggregate: str, name: str) -> list[Message]:
    """The messages about a name that the index does not have yet."""
    found: list[Message] = []
    async for messages in ledger.history(checkpoint, subject_filter=shared_filter(aggregate)):
        found += _about(name, [aggregate], messages)
    return found


async def _indexed(backend: Backend, aggregates: Collection[str], name: str) -> IndexedPositions:
    digests = [digest_of(aggregate, name) for aggregate in aggregates]
    projection = EventIndexProjection()
    async with read_only(backend.database_url, application_name="gpuledger index") as connection:
        checkpoint = (await live_checkpoints(connection, [projection])).get(projection.name)
        if checkpoint is None or not checkpoint.at.is_in(backend.ledger.generation):
            return IndexedPositions((), ORIGIN)
        rows = await (await connection.execute(_POSITIONS.encode(), (digests,))).fetchall()
    return IndexedPositions([position for (position,) in rows], checkpoint.position)


def _about(
    name: str, aggregates: Collection[str], messages: Iterator[Message] | Sequence[Message]
) -> Iterator[Message]:
    """Those of the messages that stand under shared subjects and are about a name of these aggregates."""
    for message in messages:
        try:
            subject = parse_subject(message.subject)
            is_about = subject.id is None and subject.aggregate in aggregates and parse(message.data).subject == name
        except EventError:
            continue
        if is_about:
            yield message


def _of_event(subjects: str, event: str) -> str:
    return f"{subjects.removesuffix('>')}{event}" if event else subjects

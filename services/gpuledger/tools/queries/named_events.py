"""Finds the events about one name, whichever form of subject they stand under.

The `index` projection has the positions of events about devices, nodes and pools, and of those whose names share a
subject, and the events about devices and pools themselves; what the log has behind its checkpoint is read and compared.
Other names the server finds by their subjects. Nothing is folded here.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from typing import Final, NamedTuple

from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.event_index import ASSIGNED, INDEXED, INDEXED_EVENT, IndexedName, indexed_names
from gpuledger.domain.fact import ns_of_time
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.envelope import parse
from gpuledger.events.errors import EventError
from gpuledger.events.position import ORIGIN, Offset, is_at_or_after, is_origin, lag, order
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.registry import parse_type
from gpuledger.events.rule import rule_subject
from gpuledger.events.subjects import aggregate_filter, may_share, parse_subject, shared_filter, subject_of
from gpuledger.ledger.api import MESSAGES_AT_ONCE, Ledger, Message
from gpuledger.projection.checkpoint import LIVE, live_checkpoints, schema_of
from gpuledger.readmodels.projections import EventIndexProjection
from gpuledger.tools.queries.backend import Backend, bring_current, read

COMPARED_MAX: Final = 10_000
"""How many events behind the index's checkpoint are compared; for more the index is brought to the head first."""

NAMES_SHOWN_MAX: Final = 4
"""How many names a message about deleted events shows."""

INDEXED_SINCE: Final = 2
"""The version of the index since which it has the events about devices, nodes and pools."""

ASSIGNED_SINCE: Final = 3
"""The version of the index since which it has the pools that devices are assigned to."""

_WITH_EVENTS: Final = (
    f"SELECT position, recorded_at, event FROM {schema_of(LIVE)}.{INDEXED_EVENT.name} "  # noqa: S608 - our own words
    "WHERE digest = ANY(%s) AND (event IS NULL OR strpos(event, %s) > 0) ORDER BY position"
)
"""Of the events that the index has itself only those that hold a text."""


class Indexed(NamedTuple):
    """Where the events about names may stand up to the index's checkpoint, in order; others may have their digests.

    `kept` are those of them that the index has itself.
    """

    positions: Sequence[Offset]
    kept: Mapping[Offset, Message]
    checkpoint: Offset


async def messages_about(
    backend: Backend, aggregate: str, name: str | None = None, event: str = ""
) -> AsyncIterator[list[Message]]:
    """The messages about one aggregate, or about all of its kind, in the order of the log; `event` keeps those of one.

    Raises:
        DatabaseUnavailableError: the index has such names, and cannot be read.
    """
    subjects = _of_event(aggregate_filter(aggregate, name), event)
    if name is not None and aggregate in INDEXED:
        if found := (await messages_about_each(backend, aggregate, [name], event))[name]:
            yield found
        return
    if name is None or not await names_share(backend.ledger, [aggregate]):
        async for messages in backend.ledger.history(subject_filter=subjects):
            yield messages
        return
    found = [one async for messages in backend.ledger.history(subject_filter=subjects) for one in messages]
    shared = await shared_messages_about(backend, [aggregate], name)
    found += (one for one in shared if _is_of_event(one, event))
    if found:
        yield sorted(found, key=_order)


async def messages_about_each(
    backend: Backend, aggregate: str, names: Collection[str], event: str = ""
) -> dict[str, list[Message]]:
    """The messages about each of several names of an indexed aggregate, as `messages_about` gives those about one.

    One look-up finds them all; the server finds those behind the index's checkpoint, or all of them where the index
    does not have such names yet.
    """
    found: dict[str, list[Message]] = {one: [] for one in names}
    those = {IndexedName(aggregate, one) for one in names}
    if not those:
        return found
    one_name = next(iter(found)) if len(found) == 1 else None
    subjects = _of_event(aggregate_filter(aggregate, one_name), event)
    for one in await _up_to_the_head(backend, those, subjects, event, since=INDEXED_SINCE):
        for about in indexed_names(one.subject, one.data):
            if about in those and _is_of_event(one, event):
                found[about.name].append(one)
    return found


async def assignments_to(backend: Backend, pool: str) -> list[Message]:
    """The decisions that assign devices to a pool, or change what is left to do for it, in the order of the log."""
    event = DeviceAssignmentChanged.EVENT
    subjects = _of_event(aggregate_filter("device"), event)
    return await _up_to_the_head(backend, {IndexedName(ASSIGNED, pool)}, subjects, event, since=ASSIGNED_SINCE)


async def _up_to_the_head(
    backend: Backend, names: Set[IndexedName], subjects: str, event: str, *, since: int
) -> list[Message]:
    """The messages about the names: where the index has them, and what matches `subjects` behind its checkpoint.

    Of an `event` these are all, and perhaps others.
    """
    indexed = await _indexed(backend, names, event, since=since)
    messages = await _at(backend, indexed, names, None)
    async for behind in backend.ledger.history(indexed.checkpoint, subject_filter=subjects):
        messages += _about(names, behind)
    return messages


async def names_share(ledger: Ledger, aggregates: Collection[str]) -> bool:
    """Whether the log may have events about names of these aggregates under shared subjects."""
    rule = Rule.SHARED_SUBJECTS
    if not any(may_share(one, RULE_VERSIONS[rule]) for one in aggregates):
        return False
    return not is_origin(await ledger.last_sequence(rule_subject(rule)))


async def shared_messages_about(
    backend: Backend, aggregates: Collection[str], name: str, *, until: Offset | None = None, newest: int | None = None
) -> list[Message]:
    """The messages about a name of one of these aggregates under shared subjects, in the order of the log.

    Those up to `until` (None: the head), and of these the `newest` (None: all of them).

    Raises:
        DatabaseUnavailableError: the index cannot be read.
    """
    ledger = backend.ledger
    end = await ledger.head() if until is None else until
    names = {IndexedName(one, name) for one in aggregates if may_share(one, RULE_VERSIONS[Rule.SHARED_SUBJECTS])}
    indexed = await _indexed(backend, names)
    if lag(indexed.checkpoint, end) > COMPARED_MAX:
        await bring_current(backend, [EventIndexProjection()])
        indexed = await _indexed(backend, names)
    found: list[Message] = []
    for one in names:
        async for messages in ledger.history(indexed.checkpoint, end, shared_filter(one.aggregate)):
            found += _about(names, messages)
    found.sort(key=_order)
    if newest is None or len(found) < newest:
        positions = [position for position in indexed.positions if is_at_or_after(end, position)]
        upto = indexed._replace(positions=positions)
        found = [*await _at(backend, upto, names, newest and newest - len(found)), *found]
    return found if newest is None else found[max(len(found) - newest, 0) :]


async def _at(backend: Backend, indexed: Indexed, names: Set[IndexedName], newest: int | None) -> list[Message]:
    """The indexed messages that are about the names; with `newest`, at least so many from the end.

    How many retention has deleted is reported.

    Raises:
        LogChangedError: the log lacks one.
    """
    found: list[Message] = []
    positions = indexed.positions
    deleted, size = 0, len(positions) if newest is None else MESSAGES_AT_ONCE
    for end in range(len(positions), 0, -max(size, 1)):
        if newest is not None and len(found) >= newest:
            break
        messages = await _messages(backend.ledger, positions[max(end - size, 0) : end], indexed.kept)
        deleted += messages.count(None)
        found = [*_about(names, (one for one in messages if one is not None)), *found]
    if deleted:
        shown = sorted(f"{one.aggregate} {one.name}" for one in names)[:NAMES_SHOWN_MAX]
        about = ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")
        backend.reporter.message(
            f"Retention has deleted {deleted:,} events about {about} from the archive; the others follow. "
            "`gpuledger log archive list` shows which months."
        )
    return found


async def _messages(
    ledger: Ledger, positions: Sequence[Offset], kept: Mapping[Offset, Message]
) -> list[Message | None]:
    """The messages at these positions; the log is asked for those alone that the index does not have."""
    absent = [one for one in positions if one not in kept]
    read = iter(await ledger.messages_at(absent) if absent else ())
    return [kept[one] if one in kept else next(read) for one in positions]


async def _indexed(backend: Backend, names: Set[IndexedName], event: str = "", *, since: int = 1) -> Indexed:
    """What the index has, if its version is at least `since`; some of what is of another event may be left out."""
    projection, ledger = EventIndexProjection(), backend.ledger

    async def ask(connection: AsyncConnection) -> Indexed:
        checkpoint = (await live_checkpoints(connection, [projection])).get(projection.name)
        if checkpoint is None or checkpoint.version < since or checkpoint.ledger_id != ledger.identity.ledger_id:
            return Indexed((), {}, ORIGIN)
        if not ledger.generations.has(checkpoint.at):
            return Indexed((), {}, ORIGIN)
        digests = [one.digest for one in names]
        typed = f".{event}.v" if event else ""
        rows = await (await connection.execute(_WITH_EVENTS.encode(), (digests, typed))).fetchall()
        messages = (_kept(*row) for row in rows if row[2] is not None)
        kept = {one.sequence: one for one in _about(names, (one for one in messages if one is not None))}
        return Indexed(list(dict.fromkeys(row[0] for row in rows)), kept, checkpoint.position)

    return await read(backend, ask, application_name="gpuledger index")


def _kept(position: Offset, recorded_at: datetime, event: str) -> Message | None:
    """The message of a row; None where it was recorded under a subject that it does not belong under."""
    data = event.encode()
    try:
        envelope = parse(data)
        name = parse_type(envelope.type)
        subject = subject_of(envelope.source, name.aggregate, envelope.subject, name.event)
    except EventError:
        return None
    return Message(subject, data, position, ns_of_time(recorded_at))


def _about(names: Set[IndexedName], messages: Iterable[Message]) -> Iterator[Message]:
    """Those of the messages that are about one of the names."""
    return (one for one in messages if not names.isdisjoint(indexed_names(one.subject, one.data)))


def _order(message: Message) -> int:
    return order(message.sequence)


def _is_of_event(message: Message, event: str) -> bool:
    return not event or parse_subject(message.subject).event == event


def _of_event(subjects: str, event: str) -> str:
    return f"{subjects.removesuffix('>')}{event}" if event else subjects

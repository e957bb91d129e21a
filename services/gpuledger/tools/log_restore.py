"""Restores an exported log: into an empty ledger, or as a new generation beside the old one.

Subjects, ids, numbers, order and the time of the first recording stay as they were. Nothing is recorded before the
whole archive has been checked, nor while another process projects the log, and nobody else records anything until it is
complete.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from gpuledger.db.engine import connect
from gpuledger.db.locks import try_lock, unlock_all
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Event, decode, encode, nats_subject_of, parse
from gpuledger.events.errors import EventError
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.position import ORIGIN, Offset, Position, number_of
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Ledger, Message, Outgoing
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.publish import HEADER_BYTES_MAX, message_bytes_max
from gpuledger.ledger.restoring import begin_restore, end_restore
from gpuledger.projection.runner import writer_lock
from gpuledger.projection.store import Decider, ProjectionStore
from gpuledger.runtime.clock import random_id, system_clock
from gpuledger.runtime.settings import Servers
from gpuledger.tools.errors import ToolBusyError, ToolError
from gpuledger.tools.log_archive import Header, messages
from gpuledger.tools.operators import operator
from gpuledger.tools.projections import rebuild_projections
from gpuledger.tools.queries.backend import Backend, all_projections, bring_current
from gpuledger.tools.reporting import Reporter

NAME = "gpuledger log import"
MESSAGES_PER_PUBLISH = 2_000
RECORDED_TIME_BYTES = 64
"""At most so many bytes are added to an event by the time of its first recording."""

SKIP_SUBJECTS_END = f".{SourcePositionSkipped.EVENT}"
LOG = "log"
"""The subject of events about the log itself."""


class Restored(NamedTuple):
    """The generation of the restored log, its events, and the skipped positions that were carried over."""

    generation: int
    events: int
    skips: int


async def restore_log(
    servers: Servers, reporter: Reporter, archive: Path, header: Header, consent: Callable[[str], None]
) -> Restored:
    """Restore a checked archive, or go on with a restore of it that was interrupted.

    `consent` asks the user before a new generation begins, and raises if they refuse.
    """

    def ask(generation: int, events: int) -> None:
        consent(f"The ledger holds {events:,} events: keep them as generation {generation}, and go on anew?")

    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            connected(servers.nats_url, name=NAME, identity=servers.nats_identity)
        )
        async with _no_writers(servers.database_url):
            await _check_sizes(archive, message_bytes_max(connection))
            restoring = await begin_restore(connection, header.sha256, ask)
            async with _opened(servers, restoring.generation) as filled:
                skips = await _publish(filled, archive, header, restoring.recorded, reporter)
                if not _replaces_rows(filled):
                    await _settle_deciders(servers.database_url, await filled.head())
            await end_restore(connection, restoring.generation)
        ledger = await stack.enter_async_context(_opened(servers))
        await _project(Backend(ledger, servers.database_url, servers.nats_url, None, reporter, servers.nats_identity))
        return Restored(ledger.generation, header.events, skips)


def _opened(servers: Servers, generation: int | None = None) -> AbstractAsyncContextManager[JetStreamLedger]:
    return connect_ledger(servers.nats_url, name=NAME, identity=servers.nats_identity, generation=generation)


async def skip_positions(ledger: Ledger, skips: list[tuple[Position, str]]) -> list[Position]:
    """Record that projections skip positions, each with a reason; returns the positions of these events."""
    receipts = await ledger.publish_many(_skip_events(skips))
    return [ledger.generations.position(receipt.sequence) for receipt in receipts]


def _skip_events(skips: list[tuple[Position, str]]) -> list[Outgoing]:
    source, epoch, now = operator(), random_id(), system_clock()
    outgoing = []
    for number, (position, reason) in enumerate(skips, 1):
        data = SourcePositionSkipped(
            generation=position.generation, sequence=number_of(position.sequence), reason=reason
        )
        event = Event(random_id(), source, data.TYPE, LOG, now, data, epoch, number)
        outgoing.append(Outgoing(nats_subject_of(event), event.id, encode(event)))
    return outgoing


@asynccontextmanager
async def _no_writers(database_url: str) -> AsyncIterator[None]:
    """Keep every process from folding the log into rows and decisions, for the length of the block."""
    async with connect(database_url, application_name=NAME) as connection:
        try:
            for projection in all_projections():
                if not await try_lock(connection, writer_lock(projection.name)):
                    hint = "Stop `gpuledger up`, import, and start it again"
                    raise ToolBusyError(f"Projection {projection.name} is being written by another process", hint)
            yield
        finally:
            await unlock_all(connection)


async def _check_sizes(archive: Path, limit: int) -> None:
    """Refuse an archive with a message that the server would not take, before anything is begun.

    An agent can record more than that: what it sends has fewer headers, and no time of its first recording.
    """
    incoming, size, largest = messages(archive), 0, ORIGIN
    while chunk := list(islice(incoming, MESSAGES_PER_PUBLISH)):
        for one in chunk:
            may_be_too_large = len(one.data) + RECORDED_TIME_BYTES > limit
            if may_be_too_large and (bytes_restored := len(with_recorded_time(one))) > size:
                size, largest = bytes_restored, one.sequence
        await asyncio.sleep(0)  # the connection answers meanwhile
    if size > limit:
        raise ToolError(
            f"The event at {largest} of {archive} has {size:,} bytes, and the NATS server takes {limit:,}; nothing "
            "was imported",
            f"Raise max_payload of the server to at least {size + HEADER_BYTES_MAX}, and import again",
        )


async def _publish(ledger: Ledger, archive: Path, header: Header, recorded: int, reporter: Reporter) -> int:
    """Record what the generation lacks of the archive; returns how many skipped positions were carried over."""
    prefix, generation = random_id(), ledger.generation
    incoming = islice(messages(archive), recorded, None)
    with reporter.progress("Restoring", total=header.events, unit="events") as advance:
        advance(min(recorded, header.events))
        while chunk := list(islice(incoming, MESSAGES_PER_PUBLISH)):
            await ledger.publish_many([_outgoing(one, prefix) for one in chunk])
            advance(len(chunk))
    if generation == header.generation and not header.begun:
        return 0
    skips = _skips_of(archive, header, generation)
    missing = skips[max(0, recorded - header.events) :]
    if missing:
        await ledger.publish_many(_skip_events(missing))
    return len(skips)


def _skips_of(archive: Path, header: Header, generation: int) -> list[tuple[Position, str]]:
    """The skipped positions in a new generation, where the archive's events stand from 1 on in their order."""
    reasons = _skipped_in(archive, header)
    return [
        (Position(generation, number), reasons[one.sequence])
        for number, one in enumerate(messages(archive), 1)
        if one.sequence in reasons
    ]


def _skipped_in(archive: Path, header: Header) -> dict[Offset, str]:
    """The positions that operators skipped, with their reasons; the events name the old generation."""
    reasons: dict[Offset, str] = {}
    generations = header.generations
    for one in messages(archive):
        if not one.subject.endswith(SKIP_SUBJECTS_END):
            continue
        try:
            data = decode(one.data).data
        except EventError:
            continue
        if isinstance(data, SourcePositionSkipped) and generations.has(Position(data.generation, data.sequence)):
            reasons[data.sequence] = f"Restored: {data.reason}"[:NAME_LENGTH_MAX]
    return reasons


def _outgoing(one: Message, prefix: str) -> Outgoing:
    """The message as it was, under an id for the broker that belongs to this restore.

    The broker drops what repeats an id within its window, and a log may hold an event's id twice; the event keeps its
    id, and sources' numbers tell repeats from others.
    """
    return Outgoing(one.subject, f"{prefix}/{one.sequence}", with_recorded_time(one))


def with_recorded_time(one: Message) -> bytes:
    """The event with the time of its first recording; a message that is no event stays as it is.

    An event that has such a time keeps it, unless it is one that had not come yet: folds of the restored log must judge
    the event's own time as they did before. The time is put behind the event's last attribute, where it counts whatever
    stands before it; the rest keeps its bytes, for what can be read cannot always be written again.
    """
    recorded_at = time_of_ns(one.recorded_ns)
    try:
        before = parse(one.data).recorded_at
    except EventError:
        return one.data
    if before is not None and before <= recorded_at:
        return one.data
    attributes = one.data.rstrip().removesuffix(b"}")
    return b'%b,"recordedtime":%b}' % (attributes, orjson.dumps(recorded_at, option=orjson.OPT_UTC_Z))


async def _project(backend: Backend) -> None:
    """Bring the tables up to date with the restored log; the rows of a generation before it are replaced."""
    if _replaces_rows(backend.ledger):
        await rebuild_projections(backend, all_projections())
    else:
        await bring_current(backend)


def _replaces_rows(ledger: Ledger) -> bool:
    """Whether the rows may be those of a generation before."""
    return ledger.generation > 1


async def _settle_deciders(database_url: str, head: Offset) -> None:
    """Have deciders that started on the empty log see the decisions in the restored one before they decide.

    Only while nobody else may decide: what a decider holds back is forgotten.
    """
    async with connect(database_url, application_name=NAME) as connection:
        for projection in all_projections():
            if projection.decides:
                await ProjectionStore(connection, projection).create_decider(Decider(random_id(), 1, head))

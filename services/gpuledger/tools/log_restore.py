"""Restores an exported log: into an empty ledger, or as a new generation beside the old one.

Subjects, ids, numbers, order and the time of the first recording stay as they were. Nothing is recorded before the
whole archive has been checked, nor while another process projects the log.
"""

import getpass
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from gpuledger.db.engine import connect
from gpuledger.db.locks import try_lock
from gpuledger.domain.fact import time_of_ns
from gpuledger.events.envelope import Event, decode, encode, nats_subject_of, parse
from gpuledger.events.errors import EventError
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.ledger.api import Ledger, Message, Outgoing, Position
from gpuledger.ledger.connect import connected
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.ledger.stream import begin_generation
from gpuledger.projection.runner import writer_lock
from gpuledger.projection.store import Decider, ProjectionStore
from gpuledger.runtime.clock import random_id, system_clock
from gpuledger.tools.errors import ToolBusyError
from gpuledger.tools.log_archive import Header, messages
from gpuledger.tools.projections import rebuild_projections
from gpuledger.tools.queries.backend import Backend, all_projections, bring_current
from gpuledger.tools.reporting import Reporter

NAME = "gpuledger log import"
MESSAGES_PER_PUBLISH = 2_000
SKIP_SUBJECTS_END = f".{SourcePositionSkipped.EVENT}"
LOG = "log"
"""The subject of events about the log itself."""


class Restored(NamedTuple):
    """The generation of the restored log, its events, and the skipped positions that were carried over."""

    generation: int
    events: int
    skips: int


async def restore_log(backend: Backend, archive: Path, header: Header, consent: Callable[[str], None]) -> Restored:
    """Restore a checked archive; `consent` asks the user before a new generation begins, and raises if they refuse."""
    async with AsyncExitStack() as stack:
        await _refuse_writers(backend)
        ledger = backend.ledger
        if before := await ledger.head():
            consent(f"The ledger holds {before:,} events: keep them as generation {ledger.generation}, and go on anew?")
            async with connected(backend.nats_url, name=NAME, identity=backend.nats_identity) as connection:
                await begin_generation(connection)
            opening = connect_ledger(backend.nats_url, name=NAME, identity=backend.nats_identity)
            ledger = await stack.enter_async_context(opening)
        skips = await _publish(ledger, archive, header, backend.reporter)
        await _project(backend, ledger)
        return Restored(ledger.generation, header.events, skips)


def operator() -> str:
    """The source of the events that the user of the terminal records."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = "unknown"
    return f"/operators/{name.replace('/', '_') or 'unknown'}"


async def skip_positions(ledger: Ledger, skips: list[tuple[Position, str]]) -> list[Position]:
    """Record that projections skip positions, each with a reason; returns the positions of these events."""
    source, epoch, now = operator(), random_id(), system_clock()
    outgoing = []
    for number, (position, reason) in enumerate(skips, 1):
        data = SourcePositionSkipped(generation=position.generation, sequence=position.sequence, reason=reason)
        event = Event(random_id(), source, data.TYPE, LOG, now, data, epoch, number)
        outgoing.append(Outgoing(nats_subject_of(event), event.id, encode(event)))
    return [Position(ledger.generation, receipt.sequence) for receipt in await ledger.publish_many(outgoing)]


async def _refuse_writers(backend: Backend) -> None:
    """Make sure that no process folds the log into rows and decisions while it is replaced."""
    async with connect(backend.database_url, application_name=NAME) as connection:
        for projection in all_projections():
            if not await try_lock(connection, writer_lock(projection.name)):
                hint = "Stop `gpuledger up`, import, and start it again"
                raise ToolBusyError(f"Projection {projection.name} is being written by another process", hint)


async def _publish(ledger: Ledger, archive: Path, header: Header, reporter: Reporter) -> int:
    """Record every message of the archive; returns how many skipped positions were carried over."""
    prefix, reasons = random_id(), _skipped_in(archive, header)
    skips: list[tuple[Position, str]] = []
    incoming = messages(archive)
    with reporter.progress("Restoring", total=header.events, unit="events") as advance:
        while chunk := list(islice(incoming, MESSAGES_PER_PUBLISH)):
            receipts = await ledger.publish_many([_outgoing(one, prefix) for one in chunk])
            for one, receipt in zip(chunk, receipts, strict=True):
                if reason := reasons.get(one.sequence):
                    skips.append((Position(ledger.generation, receipt.sequence), reason))
            advance(len(chunk))
    if ledger.generation == header.generation:
        return 0
    return len(await skip_positions(ledger, skips)) if skips else 0


def _skipped_in(archive: Path, header: Header) -> dict[int, str]:
    """The positions that operators skipped, with their reasons; the events name the old generation."""
    reasons: dict[int, str] = {}
    for one in messages(archive):
        if not one.subject.endswith(SKIP_SUBJECTS_END):
            continue
        try:
            data = decode(one.data).data
        except EventError:
            continue
        if isinstance(data, SourcePositionSkipped) and data.generation == header.generation:
            reasons[data.sequence] = f"Restored: {data.reason}"[:NAME_LENGTH_MAX]
    return reasons


def _outgoing(one: Message, prefix: str) -> Outgoing:
    """The message as it was, under an id for the broker that belongs to this restore.

    The broker drops what repeats an id within its window, and a log may hold an event's id twice; the event keeps its
    id, and sources' numbers tell repeats from others.
    """
    return Outgoing(one.subject, f"{prefix}/{one.sequence}", _with_recorded_time(one))


def _with_recorded_time(one: Message) -> bytes:
    """The event with the time of its first recording; a message that is no event stays as it is.

    An event that has such a time keeps it, unless it is one that had not come yet: folds of the restored log must judge
    the event's own time as they did before.
    """
    recorded_at = time_of_ns(one.recorded_ns)
    try:
        before = parse(one.data).recorded_at
    except EventError:
        return one.data
    if before is not None and before <= recorded_at:
        return one.data
    document = orjson.loads(one.data) | {"recordedtime": recorded_at}
    return orjson.dumps(document, option=orjson.OPT_UTC_Z)


async def _project(backend: Backend, ledger: JetStreamLedger) -> None:
    """Bring the tables up to date with the restored log."""
    if ledger.generation == backend.ledger.generation:
        await _settle_deciders(backend, ledger)
        await bring_current(backend)
        return
    await rebuild_projections(replace(backend, ledger=ledger), all_projections())


async def _settle_deciders(backend: Backend, ledger: Ledger) -> None:
    """Have deciders that started on the empty log see the decisions in the restored one before they decide."""
    head = await ledger.head()
    async with connect(backend.database_url, application_name=NAME) as connection:
        for projection in all_projections():
            if projection.decides:
                await ProjectionStore(connection, projection).create_decider(Decider(random_id(), 1, head))

"""Imports a file: reads, sorts, numbers, and publishes the events that the log does not hold yet.

Events are numbered and published in the order of their times, so an interrupted import leaves a prefix, and the next
one continues from there. The log itself, and never the broker's memory, says which events are recorded, so importing
twice adds nothing, however much later. Memory does not grow with the file.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from gpuledger.domain.sources.deduplication import Numbers
from gpuledger.events.envelope import Decoded, Event, encode, nats_subject_of
from gpuledger.events.ids import imported_id
from gpuledger.events.source import SourceCompleted
from gpuledger.events.subjects import ROOT, SERVICE
from gpuledger.ledger.api import Ledger, Outgoing
from gpuledger.ledger.atomic import BATCH_MESSAGES_MAX
from gpuledger.projection.subject_form import SubjectForm
from gpuledger.tools.importers.draft import Draft, Reading, Reject
from gpuledger.tools.importers.jsonl import JsonLinesReading
from gpuledger.tools.importers.openb import START, OpenbReading
from gpuledger.tools.importers.sorting import Sorter
from gpuledger.tools.importers.titan import TitanReading

IMPORTS = f"{ROOT}.{SERVICE}.import.>"
"""The subjects of all importers."""

ROWS_PER_TURN = 1_000
EVENTS_PER_PUBLISH = 4 * BATCH_MESSAGES_MAX
REJECTS_SHOWN_MAX = 10

RejectSink = Callable[[Reject], None]
"""Called with every reject, in the order of the file, before anything is published."""

Progress = Callable[[int, int | None], None]
"""Called with the progress: rows read and None while reading, then events in the log and their total."""


class ImportResult(NamedTuple):
    """The result of an import. `events` = `published` + `already_recorded`; `first_rejects` are at most ten."""

    source: str
    epoch: str
    end: datetime | None
    events: int
    published: int
    already_recorded: int
    rejects: int
    first_rejects: tuple[Reject, ...]


async def import_titan(
    ledger: Ledger,
    path: Path,
    *,
    now: datetime,
    rejects: RejectSink,
    on_progress: Progress = lambda _done, _total: None,
    temp_dir: Path | None = None,
) -> ImportResult:
    """Import a file in Titan's format.

    Args:
        ledger: the ledger to record in.
        path: a regular file.
        now: the time of recording; the same for all events of this run.
        rejects: called with every row that cannot be imported.
        on_progress: called with the progress.
        temp_dir: the folder to sort in; the system's by default.

    Raises:
        ImporterError: the file cannot be read or has another format; nothing is recorded.
        LedgerError: recording failed; the log holds a prefix, and importing again continues from there.
    """
    return await import_reading(
        ledger, TitanReading(path), now=now, rejects=rejects, on_progress=on_progress, temp_dir=temp_dir
    )


async def import_openb(
    ledger: Ledger,
    nodes: Path,
    pods: Path,
    *,
    now: datetime,
    rejects: RejectSink,
    start: datetime = START,
    on_progress: Progress = lambda _done, _total: None,
    temp_dir: Path | None = None,
) -> ImportResult:
    """Import openb's node list and pod list; `start` is the moment of second 0. Otherwise as `import_titan`."""
    reading = OpenbReading(nodes, pods, start.astimezone(UTC))
    return await import_reading(ledger, reading, now=now, rejects=rejects, on_progress=on_progress, temp_dir=temp_dir)


async def import_jsonl(
    ledger: Ledger,
    path: Path,
    *,
    now: datetime,
    rejects: RejectSink,
    on_progress: Progress = lambda _done, _total: None,
    temp_dir: Path | None = None,
) -> ImportResult:
    """Import one JSON event a line, as `gpuledger.tools.importers.jsonl` describes. Otherwise as `import_titan`."""
    return await import_reading(
        ledger, JsonLinesReading(path), now=now, rejects=rejects, on_progress=on_progress, temp_dir=temp_dir
    )


async def import_reading(
    ledger: Ledger,
    reading: Reading,
    *,
    now: datetime,
    rejects: RejectSink,
    on_progress: Progress,
    temp_dir: Path | None = None,
) -> ImportResult:
    """Import a file in any format; see `import_titan`."""
    with Sorter(temp_dir) as sorter:
        rejected, first_rejects = await _read(reading, sorter, rejects, on_progress)
        seen = await recorded_numbers(ledger, reading.source, reading.epoch)
        events = numbered(reading, sorter, rejected, seen, now)
        total = sorter.count + (reading.end is not None)
        published = await _publish(ledger, events, total, on_progress)
    already_recorded = total - published
    return ImportResult(
        reading.source, reading.epoch, reading.end, total, published, already_recorded, rejected, first_rejects
    )


async def _read(
    reading: Reading, sorter: Sorter, rejects: RejectSink, on_progress: Progress
) -> tuple[int, tuple[Reject, ...]]:
    """How many rows are rejected, and the first of them."""
    rejected, first = 0, []
    for row, read in enumerate(reading.read(), 1):
        if isinstance(read, Reject):
            rejected += 1
            first += [read] if rejected <= REJECTS_SHOWN_MAX else []
            rejects(read)
        else:
            for draft in read:
                sorter.add(draft)
        if row % ROWS_PER_TURN == 0:
            on_progress(row, None)
            await asyncio.sleep(0)
    return rejected, tuple(first)


async def recorded_numbers(ledger: Ledger, source: str, epoch: str) -> Numbers:
    """The numbers of a source's epoch that the log holds."""
    numbers, mark = Numbers(), epoch.encode()
    async for batch in ledger.history(subject_filter=IMPORTS):
        for message in batch:
            # Checks only the bytes first, because most of a long log belongs to other imports.
            if mark in message.data and (number := _number(message.data, source, epoch)):
                numbers.add(number)
    return numbers


def _number(raw: bytes, source: str, epoch: str) -> int:
    """The event's number within the epoch; 0 if it belongs to another epoch, or is no event."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return 0
    if not isinstance(document, dict) or (document.get("source"), document.get("sourceepoch")) != (source, epoch):
        return 0
    number = document.get("sourceseq")
    return number if isinstance(number, int) else 0


def numbered(reading: Reading, sorter: Sorter, rejects: int, seen: Numbers, now: datetime) -> Iterator[Decoded | None]:
    """Every event in its order, the end of the data last; None for an event that was `seen`."""
    for number, draft in enumerate(sorter.merged(), 1):
        yield None if number in seen else _event(reading, draft, number, now)
    if reading.end is not None:
        yield None if (last := sorter.count + 1) in seen else _completion(reading, last, rejects, now)


def _event(reading: Reading, draft: Draft, number: int, now: datetime) -> Decoded:
    return Event(
        imported_id(reading.epoch, draft.line, draft.kind),
        reading.source,
        draft.data.TYPE,
        draft.subject,
        draft.time,
        draft.data,
        reading.epoch,
        number,
        recorded_at=now,
        imported=True,
    )


def _completion(reading: Reading, number: int, rejects: int, now: datetime) -> Decoded:
    """The end of the data, as line 0; `events` counts those before it."""
    assert reading.end is not None, "only data with an end is completed"
    data = SourceCompleted(events=number - 1, rejects=rejects)
    return _event(reading, Draft(reading.end, 0, 0, "source.completed", reading.source, data), number, now)


async def _publish(ledger: Ledger, events: Iterator[Decoded | None], total: int, on_progress: Progress) -> int:
    """Publish the missing events; returns how many the log did not hold."""
    form = SubjectForm(ledger)
    done = published = 0
    while chunk := list(islice(events, EVENTS_PER_PUBLISH)):
        missing = await form.of([_outgoing(event) for event in chunk if event is not None])
        receipts = await ledger.publish_many(missing) if missing else []
        published += sum(not receipt.duplicate for receipt in receipts)
        done += len(chunk)
        on_progress(done, total)
        await asyncio.sleep(0)
    return published


def _outgoing(event: Decoded) -> Outgoing:
    return Outgoing(nats_subject_of(event), event.id, encode(event))

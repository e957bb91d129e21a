"""Reads an archive: the messages of a generation as the log had them, each file checked before its first one."""

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from gpuledger.events.position import ORIGIN, Offset, is_after, is_at_or_after, next_after, number_of
from gpuledger.ledger.api import Message
from gpuledger.tools.archive.events_file import EventRow, messages_at, messages_in, rows_in
from gpuledger.tools.archive.manifest import EventsEntry, Manifest, key_of
from gpuledger.tools.archive.store import Archive
from gpuledger.tools.errors import ToolError

T = TypeVar("T")


async def archived_messages(
    archive: Archive,
    manifest: Manifest,
    after: Offset = ORIGIN,
    until: Offset | None = None,
    subject_prefix: str = "",
) -> AsyncIterator[list[Message]]:
    """The messages behind `after` up to `until` (default: the archive's end), in batches.

    With a prefix only those whose subject begins so.

    Raises:
        ToolError: a file is missing, damaged or was deleted by retention.
    """
    end = manifest.end if until is None else until
    within = (number_of(next_after(after)), number_of(end))
    for entry in manifest.files:
        if is_after(entry.first, end) or is_at_or_after(after, entry.last):
            continue
        _refuse_deleted(archive, entry)
        data = await archive.events_file(manifest.generation, entry)
        for batch in _readable(archive, manifest, entry, messages_in(data, subject_prefix, within)):
            selected = [one for one in batch if is_after(one.sequence, after) and is_at_or_after(end, one.sequence)]
            if selected:
                yield selected


async def archived_messages_at(
    archive: Archive, manifest: Manifest, sequences: Sequence[Offset]
) -> list[Message | None]:
    """The messages at places that ascend, in their order; None for each in a file that was deleted by retention.

    Raises:
        ToolError: a file is missing or damaged, or none has the place.
    """
    found: list[Message | None] = []
    for entry, group in groupby(sequences, lambda at: _entry_at(archive, manifest, at)):
        places = [number_of(at) for at in group]
        if entry.deleted is not None:
            found += [None] * len(places)
            continue
        data = await archive.events_file(manifest.generation, entry)
        there = [one for batch in _readable(archive, manifest, entry, messages_at(data, places)) for one in batch]
        if [number_of(one.sequence) for one in there] != places:
            raise _damaged(archive, manifest, entry, f"it lacks events of {entry.first:,} to {entry.last:,}")
        found += there
    return found


def _entry_at(archive: Archive, manifest: Manifest, at: Offset) -> EventsEntry:
    for entry in manifest.files:
        if is_at_or_after(entry.last, at) and is_at_or_after(at, entry.first):
            return entry
    raise ToolError(
        f"{archive.url} has no event {number_of(at):,} of generation {manifest.generation}",
        "Archive the rest, or name the archive that has it",
    )


async def kept_messages(archive: Archive, manifest: Manifest, subject_prefix: str) -> AsyncIterator[list[Message]]:
    """The messages of the files that were not deleted, whose subjects begin so; raises as `archived_messages` does."""
    for entry in manifest.kept:
        data = await archive.events_file(manifest.generation, entry)
        for batch in _readable(archive, manifest, entry, messages_in(data, subject_prefix)):
            yield batch


async def archived_rows(archive: Archive, manifest: Manifest, entry: EventsEntry) -> AsyncIterator[list[EventRow]]:
    """All columns of one file; raises as `archived_messages` does."""
    data = await archive.events_file(manifest.generation, entry)
    for batch in _readable(archive, manifest, entry, rows_in(data)):
        yield batch


def _refuse_deleted(archive: Archive, entry: EventsEntry) -> None:
    if entry.deleted is not None:
        raise ToolError(
            f"The events {entry.first:,} to {entry.last:,} of {entry.month} were deleted from {archive.url} "
            f"by {entry.deleted.by}: {entry.deleted.reason}",
            "Ask for months that are kept; `gpuledger log archive list` shows them",
        )


def _readable(archive: Archive, manifest: Manifest, entry: EventsEntry, batches: Iterator[T]) -> Iterator[T]:
    try:
        yield from batches
    except ValueError as error:
        raise _damaged(archive, manifest, entry, str(error)) from error


def _damaged(archive: Archive, manifest: Manifest, entry: EventsEntry, how: str) -> ToolError:
    where = f"{archive.url}/{key_of(manifest.generation, entry.path)}"
    return ToolError(f"{where} is damaged: {how}", "Take it from a copy of the archive")

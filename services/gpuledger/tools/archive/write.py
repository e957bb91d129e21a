"""Copies the log into an archive, and goes on where the archive ends; the log itself stays as it is.

After each file the manifest names it, so whoever is killed has lost one file's work, and the next run goes on behind
the last one. Memory is bounded by `FILE_BYTES_MAX` and a row group, whatever the log holds.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

from gpuledger.domain.fact import time_of_ns
from gpuledger.events.digests import chained
from gpuledger.events.position import Offset, Position, events_up_to, number_of
from gpuledger.ledger.api import Ledger, Message
from gpuledger.ledger.errors import GenerationError, LogChangedError, NoLedgerError
from gpuledger.ledger.identity import anchor_digest
from gpuledger.ledger.jetstream import JetStreamLedger, connect_ledger
from gpuledger.tools.archive.events_file import EventsFile
from gpuledger.tools.archive.manifest import EventsEntry, Manifest
from gpuledger.tools.archive.store import NAME, Archive, changing
from gpuledger.tools.archive.tables import archive_tables
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import Backend, bring_current
from gpuledger.tools.reporting import Reporter

FILE_BYTES_MAX: Final = 256 << 20
"""A file ends with the row group that takes its messages beyond this; zstd leaves a tenth of it or less."""

ENCODED_BYTES_MAX: Final = 128 << 20
"""A file also ends here, half of what an object store takes."""


class Written(NamedTuple):
    """What a run added: events and files, and up to where the archive goes now, by generation."""

    events: int
    files: int
    until: list[Position]


async def write_archive(
    backend: Backend, archive: Archive, before: datetime | None = None, tables_at: datetime | None = None
) -> Written:
    """Archive what every generation that is here holds beyond the archive.

    Args:
        backend: the ledger, and the database that has the tables and the lock.
        archive: where to.
        before: leave out events that were recorded at this time or later.
        tables_at: now, where the rows of all tables and reports are to be replaced by those of now.

    Raises:
        ToolError: the archive is another ledger's or damaged, or holds what the log does not hold.
        ToolBusyError: another run is at work.
    """
    written: list[Written] = []
    async with changing(backend.database_url, backend.ledger.identity.ledger_id):
        if tables_at is not None:
            await bring_current(backend)
        for number in range(1, backend.ledger.generation):
            try:
                async with _opened(backend, number) as earlier:
                    written.append(await write_generation(archive, earlier, backend.reporter, before))
            except (GenerationError, NoLedgerError):
                continue  # it is elsewhere, or of before there were ids
        written.append(await write_generation(archive, backend.ledger, backend.reporter, before))
        if tables_at is not None:
            await archive_tables(backend, archive, tables_at)
    return Written(
        sum(one.events for one in written),
        sum(one.files for one in written),
        [until for one in written for until in one.until],
    )


def _opened(backend: Backend, generation: int) -> AbstractAsyncContextManager[JetStreamLedger]:
    return connect_ledger(backend.nats_url, name=NAME, generation=generation, identity=backend.nats_identity)


async def write_generation(
    archive: Archive, ledger: Ledger, reporter: Reporter, before: datetime | None = None
) -> Written:
    """Archive what one generation holds beyond the archive; only while nobody else changes it."""
    manifest = await archive.begin(ledger.identity)
    await _check_goes_on(archive, manifest, ledger)
    await archive.sweep(manifest)
    head, behind = await ledger.head(), ledger.identity.behind
    writing = _Generation(archive, manifest)
    description = f"Archiving generation {ledger.generation}"
    with reporter.progress(description, total=events_up_to(head, behind), unit="events") as advance:
        advance.to(events_up_to(manifest.end, behind))
        async for batch in _until(ledger, manifest.end, head, before):
            for message in batch:
                await writing.add(message)
            advance.to(events_up_to(batch[-1].sequence, behind))
    await writing.end_file()
    return Written(writing.events, writing.files, [writing.manifest.until])


async def _check_goes_on(archive: Archive, manifest: Manifest, ledger: Ledger) -> None:
    """Refuse an archive that ends with another event than the log has there."""
    if manifest.identity != ledger.identity:
        raise _another_log(archive, manifest, "its generation began elsewhere")
    if not manifest.files:
        return
    try:
        found = await ledger.anchor_at(manifest.end)
    except LogChangedError as error:
        raise _another_log(archive, manifest, str(error)) from error
    if found is None or found.digest != manifest.files[-1].last_digest:
        raise _another_log(archive, manifest, "the log has another event there")


def _another_log(archive: Archive, manifest: Manifest, reason: str) -> ToolError:
    return ToolError(
        f"The archive at {archive.url} goes up to {manifest.until}, and the log is not the one that it was made of: "
        f"{reason}",
        "Keep it, and archive to another location; see docs/operations.md, The log was restored",
    )


async def _until(ledger: Ledger, after: Offset, head: Offset, before: datetime | None) -> AsyncIterator[list[Message]]:
    """The messages up to the first that was recorded at `before` or later."""
    async for batch in ledger.history(after, head):
        if before is not None and time_of_ns(batch[-1].recorded_ns) >= before:
            at = next(place for place, one in enumerate(batch) if time_of_ns(one.recorded_ns) >= before)
            if at:
                yield batch[:at]
            return
        yield batch


class _Generation:
    """The archive of one generation as it grows."""

    def __init__(self, archive: Archive, manifest: Manifest) -> None:
        self.manifest = manifest
        self.events = 0
        self.files = 0
        self._archive = archive
        self._link = manifest.link
        self._file: EventsFile | None = None
        self._month = ""
        self._first: Message | None = None
        self._last: Message | None = None

    async def add(self, message: Message) -> None:
        """Append a message; ends a file where the month of recording changes, or it is full."""
        month = month_of(message.recorded_ns)
        if self._file is not None and month != self._month:
            await self.end_file()
        if self._file is None:
            self._file, self._month, self._first = EventsFile(self.manifest.generation), month, message
        self._file.add(message)
        self._last = message
        self._link = chained(self._link, message.subject, message.data)
        if self._file.is_group_full:
            await asyncio.to_thread(self._file.flush)
            if self._file.raw_bytes > FILE_BYTES_MAX or self._file.encoded_bytes > ENCODED_BYTES_MAX:
                await self.end_file()

    async def end_file(self) -> None:
        """Write the file, and then the manifest that names it; does nothing where no message was added."""
        if self._file is None or self._first is None or self._last is None:
            return
        data = await asyncio.to_thread(self._file.finish)
        entry = EventsEntry(
            month=self._month,
            first=number_of(self._first.sequence),
            last=number_of(self._last.sequence),
            first_recorded_ns=self._first.recorded_ns,
            last_recorded_ns=self._last.recorded_ns,
            bytes=len(data),
            sha256=sha256(data).hexdigest(),
            link=self._link,
            last_digest=anchor_digest(self._last.subject, self._last.data),
        )
        await self._archive.put(self.manifest.generation, entry.path, data)
        self.manifest = self.manifest.with_file(entry)
        await self._archive.save(self.manifest)
        self.events += entry.events
        self.files += 1
        self._file = self._first = self._last = None


def month_of(recorded_ns: int) -> str:
    """The month of recording in UTC, such as `2026-11`."""
    return f"{time_of_ns(recorded_ns):%Y-%m}"

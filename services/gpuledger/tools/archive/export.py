"""Gives archived events back as the file that `gpuledger log import` restores, a whole generation or some months."""

from typing import IO

from gpuledger.events.position import back
from gpuledger.tools.archive.manifest import EventsEntry, Manifest
from gpuledger.tools.archive.read import archived_messages
from gpuledger.tools.archive.store import Archive
from gpuledger.tools.errors import RequestError
from gpuledger.tools.log_archive import ArchiveWriter, Header
from gpuledger.tools.reporting import Reporter


def exported_files(manifest: Manifest, month: str | None) -> list[EventsEntry]:
    """The files of a generation, or those of one month.

    Raises:
        RequestError: there are none.
    """
    found = [one for one in manifest.files if month in (None, one.month)]
    if not found:
        what = "has no events" if month is None else f"has no events of {month}"
        raise RequestError(
            f"The archive of generation {manifest.generation} {what}", "`gpuledger log archive list` shows its months"
        )
    return found


async def export_archive(
    archive: Archive, manifest: Manifest, month: str | None, file: IO[bytes], exported_at: str, reporter: Reporter
) -> int:
    """Write the events as `gpuledger log export` would; returns how many.

    Raises:
        RequestError: there are none.
        ToolError: a file is missing, damaged or was deleted.
    """
    files = exported_files(manifest, month)
    events = sum(one.events for one in files)
    writer = ArchiveWriter(file, Header(manifest.generation, events), exported_at)
    with reporter.progress("Exporting", total=events, unit="events") as advance:
        for one in files:
            async for batch in archived_messages(archive, manifest, back(one.first, 1), one.last):
                for message in batch:
                    writer.add(message)
                advance(len(batch))
    writer.finish()
    return events

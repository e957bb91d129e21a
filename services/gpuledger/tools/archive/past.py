"""Reads closed generations of the log from their archives, for whoever asks the past once their streams are gone.

The last file that was read is kept, because those who look for a place ask for single messages around it.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from gpuledger.events.position import Offset
from gpuledger.ledger.api import Message
from gpuledger.ledger.closed import ClosedGeneration
from gpuledger.ledger.errors import GenerationError, LedgerError, LedgerUnavailableError
from gpuledger.ledger.memory import matcher
from gpuledger.runtime.objects import ObjectsError, ObjectsUrlError
from gpuledger.tools.archive.manifest import EventsEntry, Manifest
from gpuledger.tools.archive.store import Archive, open_archive
from gpuledger.tools.errors import ToolError

_FAILURES: Final = (ToolError, ObjectsError, ObjectsUrlError)


class ArchivedGenerations:
    """See `gpuledger.ledger.closed.Archives`."""

    def __init__(self) -> None:
        self._archives: dict[str, _CachedArchive] = {}

    async def messages(
        self, closed: ClosedGeneration, after: Offset, until: Offset, subject_filter: str
    ) -> AsyncIterator[list[Message]]:
        """See `gpuledger.ledger.closed.Archives.messages`."""
        matches, prefix = matcher(subject_filter), _prefix_of(subject_filter)
        try:
            archive, manifest = await self._found(closed)
            async for batch in _messages(archive, manifest, after, until, prefix):
                if selected := [one for one in batch if matches(one.subject)]:
                    yield selected
        except _FAILURES as error:
            raise _unreadable(closed, error) from error

    async def messages_at(self, closed: ClosedGeneration, sequences: Sequence[Offset]) -> list[Message | None]:
        """See `gpuledger.ledger.closed.Archives.messages_at`."""
        from gpuledger.tools.archive.read import archived_messages_at  # noqa: PLC0415 - as below

        try:
            archive, manifest = await self._found(closed)
            return await archived_messages_at(archive, manifest, sequences)
        except _FAILURES as error:
            raise _unreadable(closed, error) from error

    async def _found(self, closed: ClosedGeneration) -> tuple[Archive, Manifest]:
        """The archive and the generation's manifest, which changes by retention alone."""
        archive = self._archives.get(closed.archive)
        if archive is None:
            archive = self._archives[closed.archive] = _CachedArchive(open_archive(closed.archive).objects)
        manifest = (await archive.manifests()).get(closed.generation)
        if manifest is None or manifest.ledger_id != closed.ledger_id:
            raise ToolError(f"{archive.url} does not hold generation {closed.generation} of this ledger")
        return archive, manifest


class _CachedArchive(Archive):
    """An archive that keeps the file of events that was read last."""

    _kept: tuple[str, bytes] | None = None

    async def events_file(self, generation: int, entry: EventsEntry) -> bytes:
        if self._kept is None or self._kept[0] != entry.sha256:
            self._kept = None  # never two at a time
            self._kept = (entry.sha256, await super().events_file(generation, entry))
        return self._kept[1]


def _messages(
    archive: Archive, manifest: Manifest, after: Offset, until: Offset, prefix: str
) -> AsyncIterator[list[Message]]:
    from gpuledger.tools.archive.read import archived_messages  # noqa: PLC0415 - Parquet takes a while to import

    return archived_messages(archive, manifest, after, until, prefix)


def _prefix_of(subject_filter: str) -> str:
    """What every subject that the filter matches begins with."""
    tokens = subject_filter.split(".")
    named = next((at for at, one in enumerate(tokens) if one in ("*", ">")), len(tokens))
    return subject_filter if named == len(tokens) else "".join(f"{one}." for one in tokens[:named])


def _unreadable(closed: ClosedGeneration, error: Exception) -> LedgerError:
    """An object store that is away comes back; a file that is damaged, or was deleted, does not."""
    kind = LedgerUnavailableError if isinstance(error, ObjectsError) else GenerationError
    text = (error.message if isinstance(error, ToolError) else str(error)).removesuffix(".")
    return kind(f"Generation {closed.generation} is archived at {closed.archive}, and cannot be read: {text}.")

"""An archive in an object store: its index, its manifests and its files, each whole or absent.

Who changes an archive holds its lock in the ledger's database meanwhile, so that no manifest replaces another's.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final

from gpuledger.db.engine import connect
from gpuledger.db.locks import try_lock, unlock_all
from gpuledger.ledger.identity import LedgerIdentity
from gpuledger.runtime.objects import ObjectMissingError, Objects, open_objects
from gpuledger.tools.archive.manifest import (
    EVENTS,
    INDEX,
    TABLES,
    EventsEntry,
    Index,
    Manifest,
    decode_index,
    decode_manifest,
    key_of,
)
from gpuledger.tools.errors import ToolBusyError, ToolError

NAME: Final = "gpuledger log archive"


class Archive:
    """The archive of one ledger at a location: a folder, or `s3://bucket/prefix`."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    @property
    def url(self) -> str:
        """Where it is."""
        return self.objects.url

    async def index(self) -> Index | None:
        """Which ledger it is of, and what it has of it; None where nothing was archived yet."""
        try:
            raw = await self.objects.get(INDEX)
        except ObjectMissingError:
            return None
        return decode_index(raw, self._where(INDEX))

    async def manifests(self) -> Mapping[int, Manifest]:
        """The manifests by generation, in their order.

        Raises:
            ToolError: there is no archive, or it is damaged.
        """
        index = await self.index()
        if index is None:
            raise ToolError(
                f"{self.url} holds no archive", "Name the location that `gpuledger log archive write` was given"
            )
        return {number: await self._manifest(index, number) for number in sorted(index.generations)}

    async def begin(self, identity: LedgerIdentity) -> Manifest:
        """The manifest of a generation, which is added to the index where it is not there yet.

        Raises:
            ToolError: the archive is another ledger's.
        """
        index = await self.index() or Index(ledger_id=identity.ledger_id)
        if index.ledger_id != identity.ledger_id:
            raise ToolError(
                f"{self.url} is the archive of the ledger {index.ledger_id}, and this one is {identity.ledger_id}",
                "Name another location",
            )
        if identity.generation in index.generations:
            return await self._manifest(index, identity.generation)
        manifest = Manifest.of(identity)
        await self.save(manifest)  # what the index names is there
        generations = tuple(sorted({*index.generations, identity.generation}))
        await self.objects.put(INDEX, index.model_copy(update={"generations": generations}).encode())
        return manifest

    async def save(self, manifest: Manifest) -> None:
        """Replace the manifest of a generation."""
        await self.objects.put(key_of(manifest.generation), manifest.encode())

    async def put(self, generation: int, path: str, data: bytes) -> None:
        """Write a file; it belongs to the archive once a manifest names it."""
        await self.objects.put(key_of(generation, path), data)

    async def file(self, generation: int, path: str, digest: str) -> bytes:
        """A file as it was written.

        Raises:
            ToolError: it is missing, or not what was written.
        """
        key = key_of(generation, path)
        try:
            data = await self.objects.get(key)
        except ObjectMissingError as error:
            raise ToolError(f"{self._where(key)} is missing", _FROM_A_COPY) from error
        if sha256(data).hexdigest() != digest:
            raise ToolError(f"{self._where(key)} is not what was written", _FROM_A_COPY)
        return data

    async def events_file(self, generation: int, entry: EventsEntry) -> bytes:
        """A file of events; raises as `file` does."""
        return await self.file(generation, entry.path, entry.sha256)

    async def sweep(self, manifest: Manifest) -> None:
        """Delete files that the manifest does not name: what an interrupted command left, or what was replaced."""
        paths = [*(one.path for one in manifest.kept), *(one.path for one in manifest.tables)]
        named = {key_of(manifest.generation, path) for path in paths}
        for folder in (EVENTS, TABLES):
            found = [one.key async for one in self.objects.list(key_of(manifest.generation, folder))]
            for key in found:
                if key not in named:
                    await self.objects.delete(key)

    async def _manifest(self, index: Index, generation: int) -> Manifest:
        key = key_of(generation)
        try:
            raw = await self.objects.get(key)
        except ObjectMissingError as error:
            raise ToolError(f"{self._where(key)} is missing", _FROM_A_COPY) from error
        return decode_manifest(raw, self._where(key), index, generation)

    def _where(self, key: str) -> str:
        return f"{self.url}/{key}"


_FROM_A_COPY: Final = "Take it from a copy of the archive; while the log has these events, a new location will do"


def open_archive(location: str) -> Archive:
    """The archive at a location.

    Raises:
        ObjectsUrlError: it names no object store.
    """
    return Archive(open_objects(location))


@asynccontextmanager
async def changing(database_url: str, ledger_id: str) -> AsyncIterator[None]:
    """Keep every other command from changing archives of this ledger, for the length of the block.

    Raises:
        ToolBusyError: one is at it.
    """
    async with connect(database_url, application_name=NAME) as connection:
        if not await try_lock(connection, f"archive:{ledger_id}"):
            raise ToolBusyError("Another `gpuledger log archive` is at work", "Wait until it has ended")
        try:
            yield
        finally:
            await unlock_all(connection)

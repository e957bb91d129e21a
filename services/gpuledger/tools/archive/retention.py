"""Deletes the oldest months of an archive, and leaves a tombstone for each file: verification goes on across it."""

from typing import NamedTuple

from gpuledger.tools.archive.manifest import Manifest, Tombstone
from gpuledger.tools.archive.store import Archive, changing
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import Backend


class Deletion(NamedTuple):
    """How many files and events go."""

    files: int
    events: int


def planned(manifests: list[Manifest], before: str) -> Deletion:
    """What the months before this one (`2026-11`) have."""
    found = [one for manifest in manifests for one in manifest.kept if one.month < before]
    return Deletion(len(found), sum(one.events for one in found))


async def delete_months(backend: Backend, archive: Archive, before: str, tombstone: Tombstone) -> Deletion:
    """Delete the events of all months before this one; who is killed in the midst runs it again.

    Raises:
        ToolError: the archive is another ledger's.
        ToolBusyError: another command changes it.
    """
    ledger_id = backend.ledger.identity.ledger_id
    async with changing(backend.database_url, ledger_id):
        manifests = list((await archive.manifests()).values())
        if any(one.ledger_id != ledger_id for one in manifests):
            raise ToolError(f"{archive.url} is the archive of another ledger", "Name its servers, or another location")
        deletion = planned(manifests, before)
        for manifest in manifests:
            files = [
                one.model_copy(update={"deleted": tombstone}) if one.month < before and one.deleted is None else one
                for one in manifest.files
            ]
            kept = manifest.with_files(files)
            await archive.save(kept)  # what the manifest does not keep is nobody's
            await archive.sweep(kept)
        return deletion

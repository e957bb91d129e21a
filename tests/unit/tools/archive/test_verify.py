"""What an archive is proven to be, and what breaks the proof."""

import json
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest

from gpuledger.ledger.api import Outgoing
from gpuledger.ledger.memory import MemoryLedger
from gpuledger.tools.archive import events_file
from gpuledger.tools.archive.events_file import EventsFile, messages_in, row_of
from gpuledger.tools.archive.manifest import Manifest, Tombstone
from gpuledger.tools.archive.store import Archive
from gpuledger.tools.archive.verify import ArchiveProof, verify_archive, verify_generation
from gpuledger.tools.archive.write import write_generation
from gpuledger.tools.errors import ToolError
from gpuledger.tools.reporting import SILENT
from support.archives import SetClock, archive_in, files_in, messages_of, record, replaced, seal
from support.ledgers import everything
from support.runners import failures

EVENTS = 12
"""Ten failures, and two seals."""


@pytest.fixture
async def ledger() -> MemoryLedger:
    """A log with a seal in its first month and one in the second."""
    clock = SetClock(datetime(2026, 1, 10, tzinfo=UTC))
    ledger = MemoryLedger(clock=clock)
    await record(ledger, failures(range(1, 6)))
    await seal(ledger)
    clock.now = datetime(2026, 2, 10, tzinfo=UTC)
    await record(ledger, failures(range(6, 11)))
    await seal(ledger)
    return ledger


@pytest.fixture
async def archive(ledger: MemoryLedger, tmp_path: Path) -> Archive:
    archive = archive_in(tmp_path)
    await write_generation(archive, ledger, SILENT)
    return archive


async def proven(archive: Archive, ledger: MemoryLedger | None = None) -> ArchiveProof:
    return await verify_generation(archive, (await archive.manifests())[1], ledger, SILENT)


async def test_an_archive_is_proven_by_itself_and_by_the_log(archive: Archive, ledger: MemoryLedger) -> None:
    (alone,) = await verify_archive(archive, None, SILENT)
    assert (alone.events, alone.seals, str(alone.sealed_to), alone.is_compared) == (EVENTS, 2, "1/11", False)
    assert await proven(archive, ledger) == alone._replace(is_compared=True)
    assert alone.first_break is None


async def test_seals_of_the_log_prove_what_was_archived_before_them(archive: Archive, ledger: MemoryLedger) -> None:
    await seal(ledger)
    assert str((await proven(archive, ledger)).sealed_to) == "1/12"


def altered(data: bytes) -> bytes:
    """The file with another event in the place of its second one, as somebody could write it."""
    file = EventsFile(1)
    for batch in messages_in(data):
        for at, one in enumerate(batch):
            file.add(one._replace(data=one.data.replace(b"DBE", b"SBE")) if at == 1 else one)
    return file.finish()


async def test_one_byte_more_or_less_is_noticed(archive: Archive, tmp_path: Path) -> None:
    replaced(tmp_path, "month=2026-01/*.parquet", lambda data: data[:-1])
    found = (await proven(archive)).first_break or ""
    assert "is not what was written" in found


async def test_another_event_is_noticed_by_the_chain(archive: Archive, tmp_path: Path) -> None:
    replaced(tmp_path, "month=2026-01/*.parquet", altered)
    _forge(tmp_path)
    assert (await proven(archive)).first_break == "the messages 1 to 6 are not those of the chain of digests"


async def forged(ledger: MemoryLedger) -> MemoryLedger:
    """The log with another event in the place of its first one, and the same seals."""
    copy = MemoryLedger(clock=SetClock(datetime(2026, 1, 10, tzinfo=UTC)))
    for at, one in enumerate(await everything(ledger)):
        data = one.data if at else one.data.replace(b"DBE", b"SBE")
        await copy.publish(Outgoing(one.subject, str(at), data))
    return copy


async def test_a_forged_chain_is_noticed_by_the_seals(ledger: MemoryLedger, tmp_path: Path) -> None:
    await write_generation(archive_in(tmp_path), await forged(ledger), SILENT)
    assert (await proven(archive_in(tmp_path))).first_break == "the messages 1 to 5 are not those that were sealed"


async def test_another_log_is_noticed(archive: Archive, ledger: MemoryLedger) -> None:
    shorter, another = MemoryLedger(), MemoryLedger(ledger_id="another")
    await record(shorter, failures(range(1, 3)))
    for log, reason in ((shorter, "the log ends at 1/2"), (another, "is the archive of the ledger memory")):
        found = await proven(archive, log)
        assert reason in (found.first_break or "")
        assert not found.is_compared


async def test_a_missing_file_is_named(archive: Archive, tmp_path: Path) -> None:
    files_in(tmp_path / "LEDGER_1")[1].unlink()
    assert "month=2026-02/000000000007-000000000012.parquet is missing" in str((await proven(archive)).first_break)


async def test_columns_that_differ_from_the_message_are_noticed(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            events_file, "row_of", lambda one, number: row_of(one, number)._replace(source="/nodes/n9/agent")
        )
        replaced(tmp_path, "month=2026-01/*.parquet", _file_of)
    _forge(tmp_path)
    assert "has at 1 another source than the message says" in str((await proven(archive)).first_break)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"generation": 2}, "is of generation 2 of the ledger memory, and stands elsewhere"),
        ({"version": 2}, "nothing that this build reads: version"),
        ({"files": []}, ""),
    ],
)
async def test_a_manifest_that_contradicts_itself_is_refused(
    change: dict[str, object], reason: str, archive: Archive, tmp_path: Path
) -> None:
    path = tmp_path / "LEDGER_1" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    if reason:
        with pytest.raises(ToolError, match=reason):
            await archive.manifests()
    else:
        assert (await proven(archive)).events == 0


async def test_a_manifest_with_a_hole_is_refused(archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "LEDGER_1" / "manifest.json"
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps(document | {"files": document["files"][1:]}))
    with pytest.raises(ToolError, match="does not follow position 0"):
        await archive.manifests()


async def test_deleted_months_leave_a_proof(archive: Archive, ledger: MemoryLedger, tmp_path: Path) -> None:
    """The seal of February proves the link that January's tombstone keeps."""
    manifest = (await archive.manifests())[1]
    january, february = manifest.files
    tombstone = Tombstone(at=datetime(2026, 3, 1, tzinfo=UTC), by="/operators/alice", reason="kept for a month")
    deleted = manifest.with_files([january.model_copy(update={"deleted": tombstone}), february])
    await archive.save(deleted)
    await archive.sweep(deleted)
    assert len(files_in(tmp_path)) == 1
    for log in (None, ledger):
        found = await proven(archive, log)
        assert (found.first_break, found.events, found.deleted, str(found.sealed_to)) == (None, 6, 6, "1/11")
    with pytest.raises(ToolError, match=r"were deleted .* by /operators/alice: kept for a month"):
        await messages_of(archive, deleted)
    forged = january.model_copy(update={"deleted": tombstone, "link": "0" * 64})
    await archive.save(manifest.with_files([forged, february]))
    assert "are not those of the chain" in str((await proven(archive)).first_break)


async def test_there_may_be_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="holds no archive"):
        await verify_archive(archive_in(tmp_path), None, SILENT)


def _file_of(data: bytes) -> bytes:
    file = EventsFile(1)
    for batch in messages_in(data):
        for one in batch:
            file.add(one)
    return file.finish()


def _forge(folder: Path) -> None:
    """Have the manifest name the files as they are now."""
    path = folder / "LEDGER_1" / "manifest.json"
    document = json.loads(path.read_bytes())
    manifest = Manifest.model_validate(document)
    for entry, one in zip(document["files"], manifest.files, strict=True):
        data = (folder / "LEDGER_1" / one.path).read_bytes()
        entry |= {"sha256": sha256(data).hexdigest(), "bytes": len(data)}
    path.write_text(json.dumps(document))

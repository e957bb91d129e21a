"""What an archive holds after runs that went through, and runs that did not."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.ledger.memory import MemoryLedger
from gpuledger.runtime.objects import ObjectsUnavailableError
from gpuledger.tools.archive import write
from gpuledger.tools.archive.store import Archive
from gpuledger.tools.archive.write import write_generation
from gpuledger.tools.errors import ToolError
from gpuledger.tools.reporting import SILENT
from support.archives import FailingObjects, SetClock, archive_in, files_in, messages_of, record, undecodable
from support.ledgers import everything
from support.runners import failures

JANUARY, FEBRUARY, MARCH = (datetime(2026, month, 10, tzinfo=UTC) for month in (1, 2, 3))


@pytest.fixture
def clock() -> SetClock:
    return SetClock(JANUARY)


@pytest.fixture
async def ledger(clock: SetClock) -> MemoryLedger:
    """Events of three months, one of which is none."""
    ledger = MemoryLedger(clock=clock)
    for at, numbers in ((JANUARY, range(1, 6)), (FEBRUARY, range(6, 9)), (MARCH, range(9, 11))):
        clock.now = at
        await record(ledger, failures(numbers))
        await ledger.publish(undecodable(numbers.start))
    return ledger


async def test_a_file_has_events_of_one_month(ledger: MemoryLedger, tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    written = await write_generation(archive, ledger, SILENT)
    assert (written.events, written.files) == (13, 3)
    manifest = (await archive.manifests())[1]
    assert [(one.month, one.first, one.last) for one in manifest.files] == [
        ("2026-01", 1, 6),
        ("2026-02", 7, 10),
        ("2026-03", 11, 13),
    ]
    assert await messages_of(archive, manifest) == await everything(ledger)


async def test_a_run_adds_what_is_new(ledger: MemoryLedger, tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    await write_generation(archive, ledger, SILENT)
    assert (await write_generation(archive, ledger, SILENT))[:2] == (0, 0)
    await record(ledger, failures(range(11, 13)))
    assert (await write_generation(archive, ledger, SILENT))[:2] == (2, 1)
    assert await messages_of(archive, (await archive.manifests())[1]) == await everything(ledger)


async def test_complete_months_leave_out_what_is_later(ledger: MemoryLedger, tmp_path: Path) -> None:
    archive = archive_in(tmp_path)
    before = datetime(2026, 3, 1, tzinfo=UTC)
    assert (await write_generation(archive, ledger, SILENT, before)).events == 10
    assert (await write_generation(archive, ledger, SILENT, before)).events == 0
    assert (await write_generation(archive, ledger, SILENT)).events == 3


@pytest.mark.parametrize("puts_max", range(1, 8))
async def test_who_is_killed_anywhere_leaves_an_archive_that_goes_on(
    puts_max: int, ledger: MemoryLedger, tmp_path: Path
) -> None:
    """The run writes the first manifest, the index, and for each of three files itself and the manifest."""
    with pytest.raises(ObjectsUnavailableError):
        await write_generation(Archive(FailingObjects(tmp_path, puts_max)), ledger, SILENT)
    archive = archive_in(tmp_path)
    if index := await archive.index():
        for manifest in (await archive.manifests()).values():
            assert await messages_of(archive, manifest) == (await everything(ledger))[: manifest.events]
            assert index.ledger_id == manifest.ledger_id
    await record(ledger, failures(range(11, 13)))
    await write_generation(archive, ledger, SILENT)
    manifest = (await archive.manifests())[1]
    assert await messages_of(archive, manifest) == await everything(ledger)
    assert files_in(tmp_path) == [tmp_path / "LEDGER_1" / one.path for one in manifest.files]


async def test_a_file_ends_at_its_bound(ledger: MemoryLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "FILE_BYTES_MAX", 0)
    monkeypatch.setattr("gpuledger.tools.archive.events_file.GROUP_ROWS_MAX", 2)
    archive = archive_in(tmp_path)
    assert (await write_generation(archive, ledger, SILENT)).files == 3 + 2 + 2
    assert await messages_of(archive, (await archive.manifests())[1]) == await everything(ledger)


async def test_the_archive_of_another_ledger_is_refused(ledger: MemoryLedger, tmp_path: Path) -> None:
    await write_generation(archive_in(tmp_path), ledger, SILENT)
    with pytest.raises(ToolError, match="is the archive of the ledger memory, and this one is another"):
        await write_generation(archive_in(tmp_path), MemoryLedger(ledger_id="another"), SILENT)


@pytest.mark.parametrize(("numbers", "reason"), [(range(1), "the log ends"), (range(20, 40), "has another event")])
async def test_an_archive_of_another_log_is_refused(
    numbers: range, reason: str, ledger: MemoryLedger, clock: SetClock, tmp_path: Path
) -> None:
    await write_generation(archive_in(tmp_path), ledger, SILENT)
    restored = MemoryLedger(clock=clock)
    await record(restored, failures(numbers))
    with pytest.raises(ToolError, match=f"goes up to 1/13, and the log is not the one .*{reason}"):
        await write_generation(archive_in(tmp_path), restored, SILENT)

"""Declared devices: what the part records, and when."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gpuledger.agent.declared_devices import Unreadable
from gpuledger.agent.declared_files import FILES_BYTES_MAX, POLL_PERIOD_S, DeclaredDevices, FolderError, read_files
from gpuledger.agent.discovery import REFRESH_S
from gpuledger.api.sharing import DEFAULT_NAMES
from gpuledger.events.node_devices import DECLARING_FILES_MAX, NodeDeclaredDevicesObserved
from support.agent_parts import NODE, Disk, Time
from support.declared import file_of, fpga
from support.waiting import eventually


class Watching:
    """A part that watches a folder, in time that stands still."""

    def __init__(self, part: DeclaredDevices, time: Time, disk: Disk) -> None:
        self.part, self.time, self.disk = part, time, disk
        self._polls = 0

    async def poll(self) -> list[NodeDeclaredDevicesObserved]:
        """Let it look once more; returns all that it has recorded so far."""
        before = self.part.alive_at
        await self.time.advance(POLL_PERIOD_S)

        async def has_looked() -> bool:
            return self.part.alive_at is not None and self.part.alive_at != before

        await eventually(has_looked)
        return [one.data for one in self.disk.recorded if isinstance(one.data, NodeDeclaredDevicesObserved)]


@asynccontextmanager
async def watching(folder: Path | None, disk: Disk | None = None) -> AsyncIterator[Watching]:
    time, disk = Time(), disk or Disk()
    part = DeclaredDevices(
        NODE, folder, DEFAULT_NAMES, disk, clock=time.clock, monotonic=time.monotonic, sleep=time.sleep
    )
    task = asyncio.create_task(part.run(disk.record))

    async def has_looked() -> bool:
        return part.alive_at is not None

    await eventually(has_looked)
    yield Watching(part, time, disk)
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def minors(found: list[NodeDeclaredDevicesObserved]) -> list[list[int]]:
    return [[device.minor for device in one.devices] for one in found]


async def test_what_changes_is_recorded_once(tmp_path: Path) -> None:
    async with watching(tmp_path) as part:
        assert await part.poll() == []
        (tmp_path / "a.json").write_bytes(file_of(fpga(0)))
        (tmp_path / "notes.txt").write_bytes(b"[")
        (tmp_path / ".b.json").write_bytes(b"[")
        assert minors(await part.poll()) == [[0]]
        assert minors(await part.poll()) == [[0]]
        (tmp_path / "a.json").write_bytes(file_of(fpga(0, health=False)))
        assert [one.devices[0].healthy for one in await part.poll()] == [True, False]
        (tmp_path / "a.json").unlink()
        assert minors(await part.poll()) == [[0], [0], []]
        assert part.part.trouble is None


async def test_a_file_that_cannot_be_read_counts_as_such_when_it_is_so_twice(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(file_of(fpga(0)))
    (tmp_path / "b.json").write_bytes(file_of(fpga(1)))
    async with watching(tmp_path) as part:
        (tmp_path / "b.json").write_bytes(b"[{")
        assert minors(await part.poll()) == [[0, 1]], "it may be half written"
        (tmp_path / "b.json").write_bytes(file_of(fpga(1)))
        assert minors(await part.poll()) == [[0, 1]]
        (tmp_path / "b.json").write_bytes(b"[{")
        await part.poll()
        found = await part.poll()
        assert minors(found) == [[0, 1], [0]]
        assert [one.file for one in found[-1].left_out] == ["b.json"]
        assert (part.part.trouble or "").startswith("The file of declared devices b.json is left out: it is not JSON")
        (tmp_path / "a.json").write_bytes(file_of(fpga(0), fpga(2)))
        assert minors(await part.poll())[2:] == [[0, 2]], "a broken file does not hold up the others"
        (tmp_path / "b.json").write_bytes(file_of(fpga(1)))
        assert minors(await part.poll())[3:] == [[0, 1, 2]]
        assert part.part.trouble is None


async def test_an_agent_records_that_files_are_gone_since_the_last_one(tmp_path: Path) -> None:
    disk = Disk()
    (tmp_path / "a.json").write_bytes(file_of(fpga(0)))
    async with watching(tmp_path, disk) as part:
        pass
    (tmp_path / "a.json").unlink()
    async with watching(tmp_path, disk) as part:
        assert minors(await part.poll()) == [[0], []]


async def test_without_a_folder_nothing_is_declared_any_more(tmp_path: Path) -> None:
    async with watching(None) as part:
        assert await part.poll() == []
    disk = Disk()
    (tmp_path / "a.json").write_bytes(file_of(fpga(0)))
    async with watching(tmp_path, disk):
        pass
    async with watching(None, disk) as part:
        assert minors(await part.poll()) == [[0], []]


async def test_a_folder_that_cannot_be_listed_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "devices.d"
    folder.mkdir()
    (folder / "a.json").write_bytes(file_of(fpga(0)))
    async with watching(folder) as part:
        folder.rename(tmp_path / "elsewhere")
        assert minors(await part.poll()) == [[0]]
        assert "Create it, or unset GPULEDGER_DEVICES_DIR" in (part.part.trouble or "")
        (tmp_path / "elsewhere").rename(folder)
        assert minors(await part.poll()) == [[0]]
        assert part.part.trouble is None


async def test_devices_are_recorded_once_a_day(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(file_of(fpga(0)))
    async with watching(tmp_path) as part:
        await part.time.advance(REFRESH_S)
        assert minors(await part.poll()) == [[0], [0]]


def test_what_is_no_file_is_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "nowhere")
    found = read_files(tmp_path)
    assert all(isinstance(one, Unreadable) for one in found.values())
    assert list(found) == ["folder.json", "link.json", "pipe.json"]


def test_files_have_a_bound_together(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b" " * (FILES_BYTES_MAX - 1))
    (tmp_path / "b.json").write_bytes(b"  ")
    (tmp_path / "c.json").write_bytes(b" ")
    found = read_files(tmp_path)
    assert [name for name, content in found.items() if isinstance(content, Unreadable)] == ["b.json"]


def test_more_files_than_are_read_are_none(tmp_path: Path) -> None:
    for number in range(DECLARING_FILES_MAX + 1):
        (tmp_path / f"{number}.json").write_bytes(b"[]")
    with pytest.raises(FolderError, match="has more than 64 files"):
        read_files(tmp_path)

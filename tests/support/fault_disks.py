"""Disks that have no space left: a small tmpfs where this process may mount one, else a limit that stands for it."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = 4_096
SPOOL_BYTES: Final = 4 * 1024 * 1024
BALLAST: Final = "ballast"
UNLIMITED: Final = resource.RLIM_INFINITY


@cache
def may_mount() -> bool:
    """Whether this process may mount a file system."""
    if shutil.which("mount") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        if _mount(Path(folder), PAGE_BYTES).returncode:
            return False
        _unmount(Path(folder))
    return True


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A folder on a disk of its own of `SPOOL_BYTES`, where one may be mounted."""
    folder.mkdir()
    mounted = may_mount()
    if mounted:
        _mount(folder, SPOOL_BYTES).check_returncode()
    try:
        yield folder
    finally:
        if mounted:
            _unmount(folder)


@contextmanager
def full(disk: Path, pid: int) -> Iterator[None]:
    """Meanwhile a process with its files on a small disk can write nothing more."""
    if not may_mount():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (PAGE_BYTES, UNLIMITED))
        yield
        with suppress(ProcessLookupError):  # killed meanwhile
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        return
    ballast = disk / BALLAST
    try:
        with ballast.open("wb", buffering=0) as file:
            while file.write(bytes(PAGE_BYTES)):
                pass
    except OSError:
        pass  # no space is left
    yield
    ballast.unlink()


def shrink(folder: Path, room_bytes: int) -> None:
    """Move a folder's files to a disk that has so much room besides them."""
    pages = sum(-(-one.stat().st_size // PAGE_BYTES) + 1 for one in folder.rglob("*"))
    roomy = folder.with_name(f"{folder.name}-roomy")
    folder.rename(roomy)
    _make_like(folder, roomy)
    _mount(folder, pages * PAGE_BYTES + room_bytes).check_returncode()
    _make_like(folder, roomy)
    _move_content(roomy, folder)
    shutil.rmtree(roomy)


def widen(folder: Path) -> None:
    """Move a folder's files back from their small disk."""
    roomy = folder.with_name(f"{folder.name}-roomy")
    _make_like(roomy, folder)
    _move_content(folder, roomy)
    _unmount(folder)
    folder.rmdir()
    roomy.rename(folder)


def _make_like(folder: Path, other: Path) -> None:
    folder.mkdir(exist_ok=True)
    found = other.stat()
    os.chown(folder, found.st_uid, found.st_gid)
    folder.chmod(found.st_mode & 0o777)


def _move_content(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


def _mount(folder: Path, size: int) -> "subprocess.CompletedProcess[bytes]":
    command = ("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    return subprocess.run(command, capture_output=True, check=False)


def _unmount(folder: Path) -> None:
    # Whoever was killed a moment ago may still hold a file; a lazy unmount waits for nobody.
    subprocess.run(["umount", "--lazy", str(folder)], check=True)

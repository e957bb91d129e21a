"""The host's files, reached from its root component by component, so that no link leads out of it.

Every component is opened by the folder before it, with O_NOFOLLOW: who can write into a folder of the host cannot have
the agent write elsewhere, even by exchanging folders for links meanwhile. A file is written beside its place and
renamed, so that it is the old one or the new one at every moment; the folder is on disk as well when a write returns.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from gpuledger.configagent.errors import HostError, LinkInPathError
from gpuledger.configagent.host_file import ABSENT, FileStatus, NewFile, file_status

FOLDER_MODE: Final = 0o755
PART_SUFFIX: Final = ".gpuledger-part"
PART_NAME_MAX: Final = 200
"""How much of a file's name the name of its part has, in bytes; a name has 255 at most."""

READ_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger file is not read: no configuration has one, so it differs."""

CHUNK_BYTES: Final = 64 * 1024
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER: Final = (errno.ELOOP, errno.ENOTDIR)

OnStep = Callable[[str], None]
"""Called before each step of a write, with its name; tests end the process there."""


class HostTree:
    """The files below a root; paths are those of the host, absolute and normalised."""

    def __init__(self, root: Path, on_step: OnStep | None = None, *, owned: bool = True) -> None:
        self._root = root
        self._on_step: OnStep = on_step or (lambda _: None)
        self._owned = owned

    def status(self, path: str) -> FileStatus:
        """What is there.

        Raises:
            LinkInPathError: the path leads through a link.
            HostError: it cannot be read.
        """
        with _translated(path), suppress(FileNotFoundError), self._folder(path) as (folder, name):
            return self._seen(_status(folder, name))
        return ABSENT

    def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            HostError: it is not there or cannot be read.
        """
        with _translated(path), self._folder(path) as (folder, name), _opened(folder, name) as file:
            return os.pread(file, READ_BYTES_MAX, 0)

    def write(self, new: NewFile) -> None:
        """Put a file in its place, whole and on disk, and its folders where they are missing; then read it back.

        Raises:
            LinkInPathError: the path leads through a link.
            HostError: the disk takes it not, or gives something else back.
        """
        with _translated(new.path), self._folder(new.path, create=True) as (folder, name):
            part = part_name(name)
            with suppress(FileNotFoundError):
                os.unlink(part, dir_fd=folder)
            try:
                self._write_part(folder, part, new)
                self._on_step("rename")
                os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(part, dir_fd=folder)
                raise
            self._on_step("sync folder")
            os.fsync(folder)
            found = self._seen(_status(folder, name))
        if found != file_status(new):
            raise HostError(f"{new.path} is not what was written when it is read back; see what else writes there.")

    def remove(self, path: str) -> None:
        """Remove a file or a link, one that is gone included; folders stay.

        Raises:
            LinkInPathError: the path leads through a link.
            HostError: it is a folder, or the disk does not remove it.
        """
        with _translated(path), suppress(FileNotFoundError), self._folder(path) as (folder, name):
            self._on_step("unlink")
            os.unlink(name, dir_fd=folder)
            self._on_step("sync folder")
            os.fsync(folder)

    def remove_part(self, path: str) -> None:
        """Remove what an interrupted write left beside a file.

        Raises:
            HostError: the disk does not remove it.
        """
        with _translated(path), suppress(FileNotFoundError, LinkInPathError), self._folder(path) as (folder, name):
            os.unlink(part_name(name), dir_fd=folder)

    def _seen(self, status: FileStatus) -> FileStatus:
        """A status as it is compared."""
        return status if self._owned else status._replace(uid=0, gid=0)

    def _write_part(self, folder: int, part: str, new: NewFile) -> None:
        self._on_step("create")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(part, flags, 0o600, dir_fd=folder)
        try:
            self._on_step("write")
            content = memoryview(new.content)
            while content:
                content = content[os.write(file, content) :]
            self._on_step("owner")
            if self._owned:
                os.fchown(file, new.uid, new.gid)
            os.fchmod(file, new.mode)
            self._on_step("sync file")
            os.fsync(file)
        finally:
            os.close(file)

    @contextmanager
    def _folder(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a path, and the name in it; FileNotFoundError where it is missing."""
        *folders, name = path.removeprefix("/").split("/")
        current = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for index, one in enumerate(folders):
                following = self._enter(current, one, "/" + "/".join(folders[: index + 1]), create=create)
                os.close(current)
                current = following
            yield current, name
        finally:
            os.close(current)

    def _enter(self, current: int, name: str, path: str, *, create: bool) -> int:
        try:
            return os.open(name, _FOLDER, dir_fd=current)
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            if error.errno in _NO_FOLDER:
                raise _obstacle(current, name, path) from error
            raise
        self._on_step("folder")
        os.mkdir(name, FOLDER_MODE, dir_fd=current)
        made = os.open(name, _FOLDER, dir_fd=current)
        os.fchmod(made, FOLDER_MODE)
        os.fsync(current)
        return made


def part_name(name: str) -> str:
    """The name under which a file is written before it takes its place."""
    cut = name.encode()[:PART_NAME_MAX].decode(errors="ignore")
    return f".{cut}{PART_SUFFIX}"


def _status(folder: int, name: str) -> FileStatus:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        return FileStatus("link", target=_target(folder, name))
    if not stat.S_ISREG(found.st_mode):
        return FileStatus("folder" if stat.S_ISDIR(found.st_mode) else "other")
    with _opened(folder, name) as file:
        opened = os.fstat(file)
        digest = _hash(file) if opened.st_size <= READ_BYTES_MAX else ""
    return FileStatus("file", digest, stat.S_IMODE(opened.st_mode), opened.st_uid, opened.st_gid)


@contextmanager
def _opened(folder: int, name: str) -> Iterator[int]:
    """A file, open for reading; a pipe in its place does not block."""
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield file
    finally:
        os.close(file)


def _hash(file: int) -> str:
    digest = sha256()
    while chunk := os.read(file, CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def _target(folder: int, name: str) -> str:
    """Where a link leads, as text that a report can have: whoever made the link may have used any bytes."""
    return os.readlink(os.fsencode(name), dir_fd=folder).decode(errors="replace")


def _obstacle(folder: int, name: str, path: str) -> LinkInPathError:
    """What stands in the way where a folder should be."""
    with suppress(OSError):
        target = _target(folder, name)
        return LinkInPathError(f"{path} is a link to {target}, which is not followed; write the path that it leads to.")
    return LinkInPathError(f"{path} is no folder; choose another path, or make room for the folder.")


@contextmanager
def _translated(path: str) -> Iterator[None]:
    """Errors of the disk as ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise HostError(f"{path} is not there.") from error
    except OSError as error:
        raise HostError(f"{path}: {error.strerror or error}. See the host's disk.") from error

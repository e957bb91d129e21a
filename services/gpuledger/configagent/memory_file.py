"""Keeps the agent's memory on the host's disk: one file, which is the old one or the new one at every moment."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson

from gpuledger.configagent.errors import FolderTakenError, HostError
from gpuledger.configagent.state import AgentMemory, memory_document, read_memory
from gpuledger.configagent.tree import OnStep

NAME: Final = "state.json"
LOCK: Final = "lock"
FOLDER_MODE: Final = 0o700


class MemoryFile:
    """The memory in a folder that is the agent's own."""

    def __init__(self, folder: Path, on_step: OnStep | None = None) -> None:
        self._folder = folder
        self._on_step: OnStep = on_step or (lambda _: None)

    def load(self) -> AgentMemory:
        """The memory; that of a host that no agent has configured yet where there is no file.

        Raises:
            HostError: it cannot be read. It is never replaced then, because what is on the host would be forgotten.
        """
        path = self._folder / NAME
        try:
            return read_memory(orjson.loads(path.read_bytes()))
        except FileNotFoundError:
            return AgentMemory()
        except OSError as error:
            raise HostError(f"{path}: {error.strerror}. See the host's disk.") from error
        except ValueError as error:
            raise HostError(
                f"{path} cannot be read: {error}. Move it away to have the agent apply its configuration anew."
            ) from error

    def save(self, memory: AgentMemory) -> None:
        """Replace the memory; it is on disk when this returns.

        Raises:
            HostError: the disk does not take it.
        """
        path = self._folder / NAME
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._on_step("write state")
            part = path.with_name(f"{NAME}.part")
            with part.open("wb") as file:
                file.write(orjson.dumps(memory_document(memory)))
                file.flush()
                os.fsync(file.fileno())
            self._on_step("rename state")
            part.replace(path)
            self._sync_folder()
        except OSError as error:
            raise HostError(f"{path}: {error.strerror or error}. See the host's disk.") from error

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def sole_agent(folder: Path) -> Iterator[None]:
    """For the length of the block no other agent has this folder, and so configures this host.

    Raises:
        FolderTakenError: one has it.
        HostError: the disk does not take the lock.
    """
    path = folder / LOCK
    try:
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(f"{path}: {error.strerror}. See the host's disk.") from error
    try:
        _take(lock, folder)
        yield
    finally:
        os.close(lock)


def _take(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderTakenError(f"Another agent has {folder}; two would configure this host. Stop that one.") from error

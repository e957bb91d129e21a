"""Declared devices: the part that watches a folder for files that declare devices, and records what changed.

A vendor's program may rewrite its file at any time, to change the health of a device. A file that is caught half
written counts as unreadable only once it is so twice in a row.
"""

import asyncio
import os
import re
import stat
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

from gpuledger.agent.declared_devices import Content, Unreadable, declared
from gpuledger.agent.discovery import refresh_of
from gpuledger.agent.part import AgentFact, BasePart, Recorder, StateStore
from gpuledger.api.sharing import SharingNames
from gpuledger.events.node_devices import DECLARING_FILES_MAX, NodeDeclaredDevicesObserved
from gpuledger.events.payload import NAME_LENGTH_MAX
from gpuledger.runtime.clock import Clock, Sleep

POLL_PERIOD_S: Final = 5.0
STUCK_AFTER_S: Final = 300.0
FILES_BYTES_MAX: Final = 128 * 1024
"""How large all files may be together: what they declare fits into one event then."""

STATE_KEY: Final = "declared devices"
"""Kept once something was recorded: an agent that starts then also records that all files are gone."""

NOTHING: Final = NodeDeclaredDevicesObserved()

_FILE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(json|yaml|yml)").fullmatch
"""Which files count: none that begin with a dot, as editors, ConfigMaps and careful programs name unfinished ones."""


class FolderError(Exception):
    """The folder cannot be listed, or has more files than are read; the message says what to do."""


class DeclaredDevices(BasePart):
    """Records the devices that files declare; see `gpuledger.agent.part.Part`.

    Without a folder nothing is declared, which it records where an agent before it has recorded devices.
    """

    name = "declared devices"
    stuck_after_s = STUCK_AFTER_S

    def __init__(
        self,
        node: str,
        folder: Path | None,
        names: SharingNames,
        store: StateStore,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._node = node
        self._folder = folder
        self._names = names
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._files: dict[str, Content] = {}
        self._found = NOTHING
        self._unreadable: set[str] = set()
        self._recorded: NodeDeclaredDevicesObserved | None = None
        self._refresh: int | None = None

    async def run(self, record: Recorder) -> None:
        """Look and record until cancelled."""
        self._recorded = NOTHING if self._store.get(STATE_KEY) is None else None
        while True:
            await self._poll(record)
            self.alive_at = self._monotonic()
            await self._sleep(POLL_PERIOD_S)

    async def _poll(self, record: Recorder) -> None:
        try:
            files = await asyncio.to_thread(read_files, self._folder)
        except FolderError as error:
            self.set_trouble(str(error))
            return
        if files != self._files:
            self._files = files
            self._found = await asyncio.to_thread(declared, files, self._names)
        if self._is_sure():
            self.set_trouble(_trouble(self._found))
            await self._record(record)

    def _is_sure(self) -> bool:
        """Whether each file that cannot be read was already so at the last poll: it may have been half written."""
        before, self._unreadable = self._unreadable, {one.file for one in self._found.left_out}
        return self._unreadable <= before

    async def _record(self, record: Recorder) -> None:
        """Record the devices where something changed, or where the periodic refresh is due."""
        found, refresh = self._found, refresh_of(self._node, self._monotonic())
        is_due = found != NOTHING and refresh != self._refresh
        if found == self._recorded and not is_due:
            return
        if found != NOTHING and self._store.get(STATE_KEY) is None:
            await self._store.put(STATE_KEY, b"1")
        await record([AgentFact(self._node, found, self._clock())])
        self._recorded, self._refresh = found, refresh


def read_files(folder: Path | None) -> dict[str, Content]:
    """The files of a folder that count, by name, with their content or why it cannot be had; may block.

    Raises:
        FolderError: the folder cannot be listed, or has too many files.
    """
    if folder is None:
        return {}
    try:
        with os.scandir(folder) as entries:
            counting = (entry.name for entry in entries if _FILE(entry.name) and len(entry.name) <= NAME_LENGTH_MAX)
            names = sorted(islice(counting, DECLARING_FILES_MAX + 1))
    except OSError as error:
        raise FolderError(
            f"The folder of declared devices, {folder}, cannot be listed ({error.strerror}); what its files declared "
            "last stays. Create it, or unset GPULEDGER_DEVICES_DIR to declare nothing."
        ) from error
    if len(names) > DECLARING_FILES_MAX:
        raise FolderError(
            f"{folder} has more than {DECLARING_FILES_MAX} files; what they declared last stays. Declare several "
            "devices in one file."
        )
    return _contents(folder, names)


def _contents(folder: Path, names: list[str]) -> dict[str, Content]:
    found: dict[str, Content] = {}
    left = FILES_BYTES_MAX
    for name in names:
        found[name] = content = _content(folder / name, left)
        left -= len(content) if isinstance(content, bytes) else 0
    return found


def _content(path: Path, bytes_max: int) -> Content:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Unreadable("it is no regular file")
            content = file.read(bytes_max + 1)
    except OSError as error:
        return Unreadable(f"it cannot be read ({error.strerror})")
    if len(content) > bytes_max:
        return Unreadable(
            f"with it the files have more than {FILES_BYTES_MAX} bytes, which is the most for all together"
        )
    return content


def _without_waiting(path: str, flags: int) -> int:
    """Open a file that may be a pipe which nobody writes to."""
    return os.open(path, flags | os.O_NONBLOCK)


def _trouble(found: NodeDeclaredDevicesObserved) -> str | None:
    if not found.left_out:
        return None
    first = found.left_out[0]
    more = f" So are {len(found.left_out) - 1} more." if len(found.left_out) > 1 else ""
    return f"The file of declared devices {first.file} is left out: {first.reason}.{more}"

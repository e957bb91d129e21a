"""Cgroups of pods and containers, by which the kernel says whose a process is; each pod network has its folder."""

import asyncio
import errno
from pathlib import Path
from typing import Final

from support.pod_cgroups import hierarchy

REMOVED_MAX_S: Final = 10.0
RETRY_S: Final = 0.05


class PodCgroups:
    """The cgroups of the pods of one cluster; what a killed process left under the same name is removed first."""

    def __init__(self, name: str) -> None:
        top = hierarchy()
        assert top is not None, missing()
        self._root = top / f"kubepods-{name}"

    async def open(self) -> None:
        """Have none yet."""
        await self.close()
        self._root.mkdir()

    async def close(self) -> None:
        """Remove all; their processes have ended."""
        if self._root.exists():
            await _remove(self._root)

    def make(self, uid: str, container: str) -> Path:
        """The cgroup of a container of a pod, by the ids of both."""
        folder = self._root / f"pod{uid}" / container
        folder.mkdir(parents=True)
        return folder

    async def remove(self, uid: str) -> None:
        """Remove those of a pod, whose processes have ended."""
        folder = self._root / f"pod{uid}"
        if folder.exists():
            await _remove(folder)


async def _remove(folder: Path) -> None:
    """Remove a cgroup with those in it, as soon as the kernel has released their processes."""
    async with asyncio.timeout(REMOVED_MAX_S):
        while not _is_removed(folder):  # noqa: ASYNC110 - there is no notification
            await asyncio.sleep(RETRY_S)


def _is_removed(folder: Path) -> bool:
    if not all(_is_removed(inner) for inner in folder.iterdir() if inner.is_dir()):
        return False
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def missing() -> str:
    """Why there can be none here; empty where there can."""
    return "" if hierarchy() is not None else "this machine lets nobody make cgroups"

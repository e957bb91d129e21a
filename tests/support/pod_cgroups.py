"""Cgroups of pods on this machine, where it lets us make any: a process in one belongs to the pod for the kernel."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

CGROUPS: Final = Path("/sys/fs/cgroup")
FIRST_VERSION: Final = "pids"
"""A hierarchy of the first version that every process may be moved in."""

ROOT: Final = f"kubepods-gpuledger-{os.getpid()}"
PROBE: Final = f"{ROOT}-probe"


def hierarchy() -> Path | None:
    """The hierarchy in which we may make cgroups; None where there is none."""
    for folder in (CGROUPS / FIRST_VERSION, CGROUPS):
        if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
            try:
                (folder / PROBE).mkdir()
                (folder / PROBE).rmdir()
            except OSError:
                continue
            return folder
    return None


@contextmanager
def pod_cgroup(uid: str, container: str = "container") -> Iterator[Path]:
    """The file that moves a process into a container of a pod, by its number; empty again at the end.

    Several may be open at a time; what they share goes with the last of them.
    """
    top = hierarchy()
    assert top is not None, "skip the test without a hierarchy"
    folders = [top / ROOT, top / ROOT / f"pod{uid}", top / ROOT / f"pod{uid}" / container]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    try:
        yield folders[-1] / "cgroup.procs"
    finally:
        folders.pop().rmdir()
        for folder in reversed(folders):
            with suppress(OSError):  # somebody else's container is in it
                folder.rmdir()

"""Writes the files of a volume as a kubelet does: all at once, by another folder behind the link `..data`."""

import os
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Final

DATA: Final = "..data"


def replace_files(folder: Path, files: Mapping[str, bytes], mode: int, group: int) -> None:
    """Have the folder hold these files, by their paths, and no others; who reads meanwhile gets the old or the new."""
    before = _current(folder)
    fresh = next(path for number in count() if not (path := folder / f"..{number}").exists())
    fresh.mkdir()
    os.chown(fresh, 0, group)
    for name, content in files.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
        os.chown(path, 0, group)
    _link(folder / DATA, fresh.name)
    shown = {Path(name).parts[0] for name in files}
    for path in folder.iterdir():
        if not path.name.startswith("..") and path.name not in shown:
            path.unlink()
    for name in shown:
        _link(folder / name, f"{DATA}/{name}")
    if before is not None:
        shutil.rmtree(before)


def _current(folder: Path) -> Path | None:
    link = folder / DATA
    return folder / link.readlink() if link.is_symlink() else None


def _link(path: Path, target: str) -> None:
    """A link in place of another one, or of none."""
    if not (path.is_symlink() and str(path.readlink()) == target):
        fresh = path.with_name(f"{DATA}_tmp")
        fresh.symlink_to(target)
        fresh.replace(path)

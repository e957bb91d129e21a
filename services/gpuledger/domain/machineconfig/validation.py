"""Which files and units a configuration may have: the rules that watchers, the renderer and nodes' agents share. Pure.

A refused path or unit is refused everywhere, so that one who gets past one of them meets the next. A problem says what
is wrong and what to do about it; the caller adds where.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final

from gpuledger.api.machine_config import POWER_UNITS, REFUSED_PATHS, REFUSED_UNITS

PATHS_CACHED_MAX: Final = 16_384
PATH_BYTES_MAX: Final = 4095
"""As Linux takes it."""

PART_BYTES_MAX: Final = 255
UNIT_SUFFIXES: Final = ("service", "socket", "timer", "path", "mount", "automount", "swap", "slice", "target")
STICKY_ALONE: Final = range(0o1000, 0o2000)
"""Modes with the sticky bit and neither of the other two, which mean nothing on a file: 644 in decimal is one."""

_UNIT: Final = re.compile(rf"[A-Za-z0-9:_.\\@-]{{1,240}}\.(?:{'|'.join(UNIT_SUFFIXES)})").fullmatch
_OWNER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}").fullmatch
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]").search


@lru_cache(PATHS_CACHED_MAX)
def path_problem(path: str) -> str | None:
    """Why a configuration may not have a file there; None if it may."""
    if not path.startswith("/") or path == "/":
        return "is not the absolute path of a file; begin with / and name a file"
    if _CONTROL(path):
        return "has control characters; remove them"
    parts = path[1:].split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "is not normalised; write it without //, ., .. and a / at its end"
    if len(path.encode()) > PATH_BYTES_MAX or any(len(part.encode()) > PART_BYTES_MAX for part in parts):
        return f"is too long; {PATH_BYTES_MAX} bytes at most, and {PART_BYTES_MAX} between two /"
    folder = next((one for one in REFUSED_PATHS if _contains(one, path) or _contains(path, one)), None)
    return None if folder is None else f"is refused: nodes depend on {folder}; manage it by other means"


def unit_problem(name: str) -> str | None:
    """Why a configuration may not have a unit of this name; None if it may."""
    if (stem := unit_stem(name)) in REFUSED_UNITS:
        return f"is refused: the node's pods depend on {stem}; manage it by other means"
    if _UNIT(name) is None:
        return f"is not the name of a unit; end it with one of .{', .'.join(UNIT_SUFFIXES)}"
    return None


def state_problem(name: str, state: str | None) -> str | None:
    """Why a configuration may not bring this unit into this state; None if it may."""
    if state in (None, "stopped") or unit_stem(name) not in POWER_UNITS:
        return None
    return f"is refused with the state {state}: it takes the machine down; set reboot.required for a reboot"


def unit_stem(name: str) -> str:
    """The name of a unit without its suffix and without the instance of a template."""
    stem, dot, suffix = name.rpartition(".")
    return (stem if dot and suffix in UNIT_SUFFIXES else name).partition("@")[0]


def owner_problem(owner: str) -> str | None:
    """Why this cannot be the owner of a file; None if it can."""
    return None if _OWNER(owner) else "is not an owner; write user:group or uid:gid, such as root:root"


def mode_problem(mode: int) -> str | None:
    """Why this cannot be the mode of a file; None if it can."""
    if not 0 <= mode <= 0o7777:
        return "is not a mode; give permission bits from 0 to 4095 (octal 07777)"
    if mode in STICKY_ALONE:
        return (
            f"has the sticky bit, which means nothing on a file; decimal {mode} is octal {mode:05o}, write 0644 or 420"
        )
    return None


def repeated(names: Collection[str]) -> list[str]:
    """The names that occur more than once, sorted: which of two entries counts would be a guess."""
    if len(set(names)) == len(names):
        return []
    return sorted(name for name, count in Counter(names).items() if count > 1)


def files_above(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of paths where the first one, a file, is a folder of the second one."""
    files = set(paths)
    for path in sorted(files):
        above = path.rpartition("/")[0]
        while above:
            if above in files:
                yield above, path
            above = above.rpartition("/")[0]


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")

"""Checks a folder of recorded outcomes, one a line: `python -m support.vectors FOLDER`, as `make vectors` runs it.

Each line's content says which check it is for, so a folder may have lines about DRA and about shared devices.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support import dra_vectors, sharing_vectors
from support.sharing_vectors_nodes import OF_NODES

FAILURES_SHOWN_MAX = 20
SHARING = {**sharing_vectors.OF_REQUESTS, **OF_NODES}
"""All checks of shared devices."""


UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError)
"""What a check raises for a line of another form, or by a fault of ours: that line fails, and the others go on."""


def differences(line: Mapping[str, Any]) -> list[str]:
    """Where what we compute is not what the line expects."""
    try:
        return _compared(line)
    except UNREADABLE as error:
        return [f"{type(error).__name__}: {error}"]


def _compared(line: Mapping[str, Any]) -> list[str]:
    if sharing_vectors.is_about_sharing(line):
        return sharing_vectors.differences(line, SHARING)
    return dra_vectors.differences(dict(line))


def failures(folder: Path) -> Iterator[list[str]]:
    """The differences of every line of every file, none where they agree; the line's name comes first."""
    for line in dra_vectors.vectors(folder):
        found = differences(line)
        yield [str(line.get("name")), *found] if found else []


def main(folder: Path) -> int:
    """Check a folder; the exit code is 0 where there are lines and all of them agree."""
    passed = failed = 0
    for found in failures(folder):
        passed, failed = passed + (not found), failed + bool(found)
        if found and failed <= FAILURES_SHOWN_MAX:
            print(*found, sep="\n  ")
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

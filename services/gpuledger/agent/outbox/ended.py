"""Whether the last run ended by itself: a file that is there from the clean end of a run to the start of the next.

To take a file away needs no room. So a run that finds the disk full, and whose events go with its process, does not
leave the word behind that all was well.
"""

import os
from pathlib import Path
from typing import Final

from gpuledger.agent.outbox.errors import DiskError

FILE: Final = "ended"


def note_end(folder: Path) -> None:
    """Say that a run ended, and that all of what it knew is kept.

    Raises:
        DiskError: it cannot be said.
    """
    try:
        (folder / FILE).touch(mode=0o600)
        _sync(folder)
    except OSError as error:
        raise DiskError(f"The end cannot be noted in {folder} ({error}).") from error


def take_end(folder: Path) -> bool:
    """Whether the last run said so; the next one cannot rely on it. What cannot be taken back does not count."""
    try:
        (folder / FILE).unlink()
        _sync(folder)
    except OSError:
        return False
    return True


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)

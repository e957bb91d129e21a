"""How often a card can be divided by a MIG profile: a whole card of one profile, as the MIG user guide places them."""

import re
from collections.abc import Sequence
from typing import Final

COMPUTE_SLICES: Final = 7
MEMORY_SLICES: Final = 8
_PROFILE = re.compile(r"(\d+)g\.(\d+)gb(\+\S+)?").fullmatch


def partitions_of(profile: str, profiles: Sequence[str]) -> int | None:
    """How many instances of a profile fit on a card that has these profiles; None where it has not that one.

    The card's largest profile has all of its memory. A profile with an extra, such as `+me` for the media engine, asks
    for something of which the card has one.
    """
    match, whole = _PROFILE(profile), max(map(_memory_gb, profiles), default=0)
    if profile not in profiles or match is None:
        return None
    compute, memory, extra = int(match[1]), int(match[2]), match[3]
    if extra:
        return 1
    memory_slices = max(1, round(memory * MEMORY_SLICES / whole))
    return min(COMPUTE_SLICES // compute, MEMORY_SLICES // memory_slices)


def _memory_gb(profile: str) -> int:
    match = _PROFILE(profile)
    return int(match[2]) if match else 0

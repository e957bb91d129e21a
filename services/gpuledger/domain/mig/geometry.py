"""What a card can be divided into by MIG: profiles, instances and their places, as values.

A card that knows MIG has seven compute slices and eight memory slices (an A30 four of each). A profile takes some of
both, and only certain memory slices may be the first of one of its instances (NVIDIA's MIG user guide; NVML calls such
a place a placement).
"""

from typing import NamedTuple


class Profile(NamedTuple):
    """A way to divide off a part of a card.

    `compute` is how many compute slices an instance takes, `size` how many memory slices, `starts` at which of those it
    may begin, `instances_max` how many there may be at once.
    """

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]
    instances_max: int
    memory_mib: int


class Instance(NamedTuple):
    """A part that was divided off: its UUID, its profile's name, and the memory slices from `start` on that it has."""

    uuid: str
    profile: str
    start: int
    size: int

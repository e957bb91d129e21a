"""How MIG divides cards: profiles, instances and their placements, as values. Pure.

A card with MIG has seven compute slices and eight memory slices (an A30 four of each, an RTX PRO 6000 four and twelve).
A profile takes some of both, and an instance of it may begin only at certain memory slices: its placements, as NVML and
NVIDIA's MIG user guide call them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from gpuledger.api.mig_profile import MigProfile, takes_media_engines

COMPUTE_SLICES: Final = 7
MEMORY_SLICES: Final = 8


class Profile(NamedTuple):
    """A part into which a card can be divided.

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
    """A part of a card that exists: its UUID, its profile's name, and the memory slices from `start` on that it has.

    `gpu_instance` is the driver's number for it on the card, by which DCGM names it; None where unknown.
    """

    uuid: str
    profile: str
    start: int
    size: int
    gpu_instance: int | None = None


class Place(NamedTuple):
    """The placement of an instance, existing or planned; orders by start."""

    start: int
    profile: str


def place_of(instance: Instance) -> Place:
    """The placement of an instance."""
    return Place(instance.start, instance.profile)


def find_profile(profiles: Sequence[Profile], name: str) -> Profile | None:
    """The profile of that name."""
    return next((profile for profile in profiles if profile.name == name), None)


def compute_slices(profiles: Sequence[Profile]) -> int:
    """How many compute slices the card has: as many as its largest profile takes."""
    return max((profile.compute for profile in profiles), default=0)


def obstacle(profiles: Sequence[Profile], standing: Iterable[Instance], profile: Profile, start: int) -> str | None:
    """Why an instance of a profile cannot be created at a place beside the existing ones; None if it can.

    Does not check whether the profile may begin there at all.
    """
    standing = tuple(standing)
    slices = range(start, start + profile.size)
    for instance in standing:
        if instance.start < slices.stop and slices.start < instance.start + instance.size:
            return f"{instance.profile} stands at memory slice {instance.start}"
    if _compute(profiles, standing) + profile.compute > compute_slices(profiles):
        return f"its {profile.compute} compute slices are more than are left"
    return _too_many(standing, profile)


def _compute(profiles: Sequence[Profile], standing: Iterable[Instance]) -> int:
    # An instance of a profile that the card does not list counts as much compute as it has memory.
    compute = {profile.name: profile.compute for profile in profiles}
    return sum(compute.get(instance.profile, instance.size) for instance in standing)


def _too_many(standing: Sequence[Instance], profile: Profile) -> str | None:
    if Counter(instance.profile for instance in standing)[profile.name] >= profile.instances_max:
        return f"{profile.instances_max} of {profile.name} is all that the card may have"
    if takes_media_engines(profile.name) and any(takes_media_engines(instance.profile) for instance in standing):
        return "another instance has the media engines"
    return None


def partitions_of(name: str, card: Collection[str]) -> int | None:
    """How many instances of a profile fit on a whole card that has these profiles; None if it lacks this one.

    The card's largest profile has all of its memory. A compute instance fits into each GPU instance as often as its
    slices do.
    """
    profile = MigProfile.parse(name)
    if profile is None or not profile.is_among(card):
        return None
    parts = 1 if profile.compute_slices is None else profile.gpu_slices // profile.compute_slices
    if takes_media_engines(name):
        return parts
    whole_gb = max(one.memory_gb for one in map(MigProfile.parse, card) if one is not None)
    memory_slices = max(1, round(profile.memory_gb * MEMORY_SLICES / whole_gb))
    return min(COMPUTE_SLICES // profile.gpu_slices, MEMORY_SLICES // memory_slices) * parts

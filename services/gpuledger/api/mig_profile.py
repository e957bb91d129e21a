"""Names of MIG profiles, such as `1g.10gb+me` and `1c.2g.20gb`: parsed, printed, compared, and turned into resources.

Pools, agents, labels and simulations all name profiles, and nobody else takes such a name apart. The pattern in the
CRDs of pools accepts the same names. Pure.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import Final, NamedTuple

CHARS_MAX: Final = 32
RESOURCE_PREFIX: Final = "mig-"
_MEDIA_ENGINES: Final = "+me"
_PROFILE: Final = re.compile(
    r"(?:([1-9][0-9]*)c\.)?([1-9][0-9]*)g\.([1-9][0-9]*)gb((?:[+-][a-z0-9]+(?:\.[a-z0-9]+)*)*)"
).fullmatch


class MigProfile(NamedTuple):
    """A part of a card: compute slices, memory in GB as NVIDIA rounds it, and attributes as they are written (`+me`).

    `compute_slices` is None for a whole GPU instance; else it is how many of its slices one compute instance has.
    """

    gpu_slices: int
    memory_gb: int
    attributes: str = ""
    compute_slices: int | None = None

    def __str__(self) -> str:
        name = f"{self.gpu_slices}g.{self.memory_gb}gb{self.attributes}"
        return name if self.compute_slices is None else compute_instance_name(name, self.compute_slices)

    @classmethod
    @lru_cache(1024)
    def parse(cls, name: str) -> "MigProfile | None":
        """The profile of that name; None if it is not the name of a profile."""
        match = _PROFILE(name) if len(name) <= CHARS_MAX else None
        if match is None:
            return None
        compute, slices, memory, attributes = match.groups()
        return cls(int(slices), int(memory), attributes, None if compute is None else int(compute))

    @classmethod
    def of_resource(cls, resource: str) -> "MigProfile | None":
        """The profile that a resource or label stands for (`mig-1g.10gb.me`), which cannot hold a plus."""
        size, _, attributes = resource.removeprefix(RESOURCE_PREFIX).partition("gb.")
        return cls.parse(f"{size}gb+{attributes}" if attributes else size)

    @property
    def resource(self) -> str:
        """How NVIDIA names resources and labels after it, behind `nvidia.com/`."""
        return f"{RESOURCE_PREFIX}{self}".replace("+", ".")

    @property
    def gpu_instance(self) -> "MigProfile":
        """The profile of the GPU instance: its own, or the one that its compute instance is a part of."""
        return self._replace(compute_slices=None)

    def is_among(self, profiles: Collection[str]) -> bool:
        """Whether a card with these profiles has this one; cards list GPU instances, which imply their parts."""
        return str(self) in profiles or str(self.gpu_instance) in profiles


def compute_instance_name(gpu_instance: str, slices: int) -> str:
    """The name of a compute instance that has so many slices of a GPU instance."""
    return f"{slices}c.{gpu_instance}"


def takes_media_engines(name: str) -> bool:
    """Whether instances of the profile take the media engines, which a card has once; any driver's name will do."""
    return _MEDIA_ENGINES in name

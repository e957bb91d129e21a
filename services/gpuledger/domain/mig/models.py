"""The profiles of NVIDIA's cards with the placements and the memory of their instances: data.

Names, counts and places are those of the MIG user guide (its tables of supported profiles, and what `nvidia-smi mig
-lgipp` prints there); memory is what `nvidia-smi mig -lgip` prints on such cards. Simulated hardware and the tests are
made of this; the agent queries a real card and never looks it up here.
"""

from typing import Final, NamedTuple

from gpuledger.domain.mig.geometry import Profile


class Geometry(NamedTuple):
    """The profiles of a model of card, smallest first, and the memory of the whole card in MiB as NVML reports it."""

    name: str
    memory_mib: int
    profiles: tuple[Profile, ...]


def _sevenths(names: str, *mib: int) -> tuple[Profile, ...]:
    """The profiles of cards with seven compute and eight memory slices, by the names of one and what they have.

    `mib` is the memory of instances with one, two, four and all memory slices.
    """
    eighth, quarter, half, whole = mib
    one, media, wide, two, three, four, seven = names.split()
    return (
        Profile(one, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, eighth),
        Profile(media, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, eighth),
        Profile(wide, 1, 2, (0, 2, 4, 6), 4, quarter),
        Profile(two, 2, 2, (0, 2, 4), 3, quarter),
        Profile(three, 3, 4, (0, 4), 2, half),
        Profile(four, 4, 4, (0,), 1, half),
        Profile(seven, 7, 8, (0,), 1, whole),
    )


_EIGHTY: Final = "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"

A30: Final = Geometry(
    "A30",
    24576,
    (
        Profile("1g.6gb", 1, 1, (0, 1, 2, 3), 4, 5952),
        Profile("1g.6gb+me", 1, 1, (0, 1, 2, 3), 1, 5952),
        Profile("2g.12gb", 2, 2, (0, 2), 2, 11968),
        Profile("2g.12gb+me", 2, 2, (0, 2), 1, 11968),
        Profile("4g.24gb", 4, 4, (0,), 1, 24000),
    ),
)
A100_40GB: Final = Geometry(
    "A100-40GB",
    40960,
    _sevenths("1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", 4864, 9984, 20096, 40320),
)
A100_80GB: Final = Geometry("A100-80GB", 81920, _sevenths(_EIGHTY, 9728, 19968, 40192, 80896))
H100_80GB: Final = Geometry("H100-80GB", 81559, _sevenths(_EIGHTY, 9984, 20096, 40448, 81152))
H100_96GB: Final = Geometry(
    "H100-96GB",
    97871,
    _sevenths("1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", 11264, 23552, 47616, 95232),
)
"""The H100 of a GH200."""
H200_141GB: Final = Geometry(
    "H200-141GB",
    143771,
    _sevenths("1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", 16384, 33280, 71424, 143360),
)

GEOMETRIES: Final = (A30, A100_40GB, A100_80GB, H100_80GB, H100_96GB, H200_141GB)

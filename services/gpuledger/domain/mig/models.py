"""The profiles of NVIDIA's cards with the placements and the memory of their instances: data.

Names, counts and places are those of the MIG user guide (its tables of supported profiles, and what `nvidia-smi mig
-lgipp` prints there); memory is what `nvidia-smi mig -lgip` prints on such cards. Simulated hardware and the tests are
made of this; the agent queries a real card, and looks it up here only where its driver does not tell (`find_geometry`).

GB200 and GB300 are here with the names that most drivers give their profiles, and with nominal memory where no
recording has the real one. Other drivers name the same profiles otherwise (`1g.24gb`, `3g.95gb`, `7g.189gb` on a GB200;
`1g.31gb`, `3g.126gb`, `7g.251gb` on a GB300), which a pool's checks learn as soon as the card's own driver answers.
"""

from typing import Final, NamedTuple

from gpuledger.domain.mig.geometry import Profile

MEMORY_TOLERANCE: Final = 0.02
"""Drivers report the memory of one model of card differently by so much of it; models of one chip differ by more."""


class Geometry(NamedTuple):
    """The profiles of a model of card, smallest first, and the memory of the whole card in MiB as NVML reports it.

    `chips` are the words of which every product of that model has one in its name.
    """

    name: str
    memory_mib: int
    profiles: tuple[Profile, ...]
    chips: tuple[str, ...]

    def fits(self, product: str, memory_mib: int) -> bool:
        """Whether a card of that name and memory is of this model."""
        is_near = abs(memory_mib - self.memory_mib) <= MEMORY_TOLERANCE * self.memory_mib
        return is_near and any(f" {chip} " in f" {product.replace('-', ' ')} " for chip in self.chips)


def find_geometry(product: str | None, memory_mib: int | None) -> Geometry | None:
    """The model of a card by its product name in NVML and its memory; None where no model is that card's for sure."""
    if product is None or memory_mib is None:
        return None
    found = [geometry for geometry in GEOMETRIES if geometry.fits(product, memory_mib)]
    return found[0] if len(found) == 1 else None


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


def _quarters(quarter: int, half: int, whole: int) -> tuple[Profile, ...]:
    """The profiles of an RTX PRO 6000, whose four compute slices stand on twelve places for memory, three for each."""
    one, two = (0, 3, 6, 9), (0, 6)
    return (
        Profile("1g.24gb", 1, 3, one, 4, quarter),
        Profile("1g.24gb+gfx", 1, 3, one, 4, quarter),
        Profile("1g.24gb+me", 1, 3, one, 1, quarter),
        Profile("1g.24gb+me.all", 1, 3, one, 1, quarter),
        Profile("1g.24gb-me", 1, 3, one, 4, quarter),
        Profile("2g.48gb", 2, 6, two, 2, half),
        Profile("2g.48gb+gfx", 2, 6, two, 2, half),
        Profile("2g.48gb+me.all", 2, 6, two, 1, half),
        Profile("2g.48gb-me", 2, 6, two, 2, half),
        Profile("4g.96gb", 4, 12, (0,), 1, whole),
        Profile("4g.96gb+gfx", 4, 12, (0,), 1, whole),
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
    ("A30",),
)
A100_40GB: Final = Geometry(
    "A100-40GB",
    40960,
    _sevenths("1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", 4864, 9984, 20096, 40320),
    ("A100", "A800"),
)
A100_80GB: Final = Geometry("A100-80GB", 81920, _sevenths(_EIGHTY, 9728, 19968, 40192, 80896), ("A100", "A800"))
H100_80GB: Final = Geometry("H100-80GB", 81559, _sevenths(_EIGHTY, 9984, 20096, 40448, 81152), ("H100", "H800"))
H100_94GB: Final = Geometry(
    "H100-94GB",
    95830,
    _sevenths("1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", 11008, 22144, 47488, 95360),
    ("H100", "H800"),
)
"""The H100 NVL: `-lgip`, `-lgipp` and the memory of MIG devices with driver 560, and GFD's labels of an instance."""

H100_96GB: Final = Geometry(
    "H100-96GB",
    97871,
    _sevenths("1g.12gb 1g.12gb+me 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb", 11264, 23552, 47616, 95232),
    ("GH200",),
)
"""The H100 of a GH200."""
H200_141GB: Final = Geometry(
    "H200-141GB",
    143771,
    _sevenths("1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", 16384, 33280, 71424, 143360),
    ("H200",),
)
B200_180GB: Final = Geometry(
    "B200-180GB",
    183359,
    _sevenths("1g.23gb 1g.23gb+me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb", 20992, 45312, 91136, 182784),
    ("B200",),
)
"""Counts and fractions are the MIG user guide's; places and memory those that NVIDIA's DRA driver published on a
machine with eight of them, which agree with `-lgip` (20.50 and 44.25 GiB; an earlier driver had 22.00 for the first).
"""

GB200_189GB: Final = Geometry(
    "GB200-189GB",
    189471,
    _sevenths("1g.23gb 1g.23gb+me 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb", 20480, 46592, 95232, 189471),
    ("GB200",),
)
"""Names and counts are the MIG user guide's, places those of all cards with seven slices, the memory of one and two
slices `-lgip`'s (20.00 and 45.50 GiB; another driver had 22.00 for the first). The recordings end there: halves have
what their name says, and the whole what the card has.
"""

GB300_278GB: Final = Geometry(
    "GB300-278GB",
    284208,
    _sevenths("1g.35gb 1g.35gb+me 1g.70gb 2g.70gb 3g.139gb 4g.139gb 7g.278gb", 30720, 69632, 140288, 282624),
    ("GB300",),
)
"""Names and counts are the MIG user guide's and those of drivers 59x, places those of all cards with seven slices, the
card's memory what NVIDIA's DRA driver published. No recording has the memory of its instances: it is NVIDIA's own
guide for a DGX Station, in whole GiB (30, 68, 137, 276).
"""

RTX_PRO_6000: Final = Geometry("RTX-PRO-6000", 97887, _quarters(24192, 48512, 97408), ("RTX PRO 6000",))
"""`-lgip`, `-lgipp` and CUDA's total memory in an instance of a Blackwell Server Edition."""

GEOMETRIES: Final = (
    A30,
    A100_40GB,
    A100_80GB,
    H100_80GB,
    H100_94GB,
    H100_96GB,
    H200_141GB,
    B200_180GB,
    GB200_189GB,
    GB300_278GB,
    RTX_PRO_6000,
)

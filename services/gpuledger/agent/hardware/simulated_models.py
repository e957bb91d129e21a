"""The card models that may be simulated, and the specs that name them. Pure.

Product names and memory are those that NVML reports, PCI ids those of the PCI ID database, compute capabilities those
of NVIDIA's CUDA GPUs page, numbers of NVLinks those of the cards' data sheets.
"""

import re
from typing import Final, NamedTuple

from gpuledger.domain.mig import models
from gpuledger.domain.mig.geometry import Profile

CARDS_MAX: Final = 16
"""How many cards a simulated node may have."""

EXAMPLE: Final = "2xH200,1xT4"


class HardwareSpecError(ValueError):
    """The text is not a spec of a simulated node's cards."""


class CardModel(NamedTuple):
    """A model of card: `nvlinks` counts its NVLinks, `switches` the NVSwitches that they go to on a large board."""

    product: str
    pci_device: str
    memory_mib: int
    compute: tuple[int, int]
    profiles: tuple[Profile, ...] = ()
    nvlinks: int = 0
    switches: int = 0
    remaps_rows: bool = True


_A100_80GB = CardModel(
    "NVIDIA A100-SXM4-80GB", "20b2", models.A100_80GB.memory_mib, (8, 0), models.A100_80GB.profiles, 12, 6
)
_H100_80GB = CardModel(
    "NVIDIA H100 80GB HBM3", "2330", models.H100_80GB.memory_mib, (9, 0), models.H100_80GB.profiles, 18, 4
)

CARD_MODELS: Final = {
    "T4": CardModel("Tesla T4", "1eb8", 15360, (7, 5), remaps_rows=False),
    "A30": CardModel("NVIDIA A30", "20b7", models.A30.memory_mib, (8, 0), models.A30.profiles, 4),
    "A100": _A100_80GB,
    "A100-40GB": CardModel(
        "NVIDIA A100-SXM4-40GB", "20b0", models.A100_40GB.memory_mib, (8, 0), models.A100_40GB.profiles, 12, 6
    ),
    "A100-80GB": _A100_80GB,
    "H100": _H100_80GB,
    "H100-80GB": _H100_80GB,
    "H100-PCIE": CardModel(
        "NVIDIA H100 PCIe", "2331", models.H100_80GB.memory_mib, (9, 0), models.H100_80GB.profiles, 12
    ),
    "H100-NVL": CardModel(
        "NVIDIA H100 NVL", "2321", models.H100_94GB.memory_mib, (9, 0), models.H100_94GB.profiles, 12
    ),
    "H100-96GB": CardModel(
        "NVIDIA GH200 480GB", "2342", models.H100_96GB.memory_mib, (9, 0), models.H100_96GB.profiles
    ),
    "H200": CardModel("NVIDIA H200", "2335", models.H200_141GB.memory_mib, (9, 0), models.H200_141GB.profiles, 18, 4),
    "B200": CardModel("NVIDIA B200", "2901", models.B200_180GB.memory_mib, (10, 0), models.B200_180GB.profiles, 18, 2),
    "GB200": CardModel(
        "NVIDIA GB200", "2941", models.GB200_189GB.memory_mib, (10, 0), models.GB200_189GB.profiles, 18, 2
    ),
    "GB300": CardModel(
        "NVIDIA GB300", "31c2", models.GB300_278GB.memory_mib, (10, 3), models.GB300_278GB.profiles, 18, 2
    ),
    "RTX-PRO-6000": CardModel(
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "2bb5",
        models.RTX_PRO_6000.memory_mib,
        (12, 0),
        models.RTX_PRO_6000.profiles,
    ),
}
"""The models, by their names in a spec."""

_PART = re.compile(r"(\d{1,3})x(\S+)", re.IGNORECASE).fullmatch


NIC: Final = None
"""Stands for a network card in a spec: all that are simulated are alike."""

NIC_NAME: Final = "NIC"


def parse_cards(spec: str) -> tuple[CardModel, ...]:
    """The cards that a spec such as `8xH100` or `2xH200,1xT4` names, in its order; NICs are none.

    Raises:
        HardwareSpecError: it names an unknown model, no card, or too many.
    """
    cards = tuple(card for part in spec.split(",") for card in _part(part.strip()) if card is not NIC)
    if not 1 <= len(cards) <= CARDS_MAX:
        raise HardwareSpecError(f"{spec!r} are {len(cards)} cards; a simulated node has 1 to {CARDS_MAX}.")
    return cards


def count_nics(spec: str) -> int:
    """How many network cards with RDMA the spec names, as in `8xH100,4xNIC`."""
    return sum(found is NIC for part in spec.split(",") for found in _part(part.strip()))


def _part(part: str) -> tuple[CardModel | None, ...]:
    match = _PART(part)
    if match is None:
        raise HardwareSpecError(f"{part!r} does not say how many cards of which model; write it as in {EXAMPLE}.")
    if match[2].upper() == NIC_NAME:
        return (NIC,) * int(match[1])
    model = CARD_MODELS.get(match[2].upper())
    if model is None:
        raise HardwareSpecError(f"{match[2]!r} is no model that can be simulated; there are {', '.join(CARD_MODELS)}.")
    return (model,) * int(match[1])

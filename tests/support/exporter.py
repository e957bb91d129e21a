"""Metrics in the form of dcgm-exporter 4.x, which does not state when it renewed them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

CARDS: Final = ("GPU-8a2f5c7e-1b0d-4f36-9e57-2c41d0b7a913",)


def exporter_text(renewed_at: datetime, cards: Sequence[str] = CARDS) -> str:
    """The metrics of idle cards; only the energy that they consume (mJ) depends on when they were renewed."""
    energy = int(renewed_at.timestamp() * 1000)
    return virtual_exporter_text(cards) + _family(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).", energy, cards
    )


def virtual_exporter_text(cards: Sequence[str] = CARDS) -> str:
    """The metrics of cards that do not count their energy, as virtual ones."""
    return _family("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", 31, cards)


def _family(name: str, kind: str, text: str, value: int, cards: Sequence[str]) -> str:
    samples = [
        f'{name}{{gpu="{number}",UUID="{card}",device="nvidia{number}",modelName="NVIDIA L4",Hostname="w1"}} {value}\n'
        for number, card in enumerate(cards)
    ]
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(samples)

"""Which GPUs of a node are linked with each other: tables of partitions of Devices, and a built-in one. Pure.

A table is by number of GPUs; its order decides between equals.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from gpuledger.domain.sharing.documents import amount_at, fields_at, json_object, list_at, text_at
from gpuledger.domain.sharing.model import Partition

Table = Mapping[int, tuple[Partition, ...]]

HONOR: Final = "Honor"
"""A request for whole GPUs has to fit a partition of the node's table."""

PREFER: Final = "Prefer"
"""It gets a partition where one fits."""

PARTITIONS_MAX: Final = 256
GPUS_MAX: Final = 64
_FIELDS: Final = ("minors", "gpuLinkType", "ringBusBandwidth", "allocationScore")

LINKED_EIGHT: Final[Table] = {
    size: tuple(Partition(frozenset(range(first, first + size)), "NVLink") for first in range(0, 8, size))
    for size in (1, 2, 4, 8)
}
"""Eight GPUs that are all linked: each alone, pairs, quartets, and all (H100, H800 and H20 on one board)."""

_LINKED_MODELS: Final = frozenset({"H100", "H800", "H20"})
_CARDS: Final = frozenset({"PCIE", "NVL"})
"""Words in a model's name that say that the GPU is a card of its own, and no part of such a board."""


def built_in_table(model: str | None) -> Table | None:
    """The table of nodes with this model of GPU, as their label names it: `H800`, or `NVIDIA-H100-80GB-HBM3`."""
    words = set(re.split(r"[^A-Z0-9]+", (model or "").upper()))
    return LINKED_EIGHT if words & _LINKED_MODELS and not words & _CARDS else None


def table_of(annotation: str | None, model: str | None) -> Table:
    """The table of a node: that of its Device's annotation, or else the built-in one. Raises ValueError."""
    return read_table(annotation) if annotation is not None else built_in_table(model) or {}


def policy_of(label: str | None) -> str | None:
    """What the node's label says of partitions: `Honor`, `Prefer`, or nothing."""
    return label if label in {HONOR, PREFER} else None


def read_table(text: str) -> Table:
    """The table that an annotation has. Raises ValueError, which says what is wrong."""
    return {
        _number(size): tuple(_partition(one, at) for one, at in list_at(rows, size, PARTITIONS_MAX))
        for size, rows in json_object(text).items()
    }


def _number(size: str) -> int:
    if not size.isdecimal() or int(size) > GPUS_MAX:
        raise ValueError(f"{size!r} is no number of GPUs from 0 to {GPUS_MAX}")
    return int(size)


def _partition(value: object, place: str) -> Partition:
    given = fields_at(value, place, _FIELDS)
    bandwidth, link = given.get("ringBusBandwidth"), given.get("gpuLinkType")
    return Partition(
        frozenset(amount_at(one, where) for one, where in list_at(given.get("minors"), f"{place}.minors", GPUS_MAX)),
        "" if link is None else text_at(link, f"{place}.gpuLinkType"),
        amount_at(given.get("allocationScore", 1), f"{place}.allocationScore"),
        None if bandwidth is None else amount_at(bandwidth, f"{place}.ringBusBandwidth"),
    )


def written_table(table: Table) -> dict[str, list[dict[str, Any]]]:
    """A table as the annotation has it."""
    return {str(size): [_row(one) for one in partitions] for size, partitions in table.items()}


def _row(one: Partition) -> dict[str, Any]:
    row = {"minors": sorted(one.minors), "gpuLinkType": one.link_type, "allocationScore": one.score}
    return row if one.ring_bus_bandwidth is None else {**row, "ringBusBandwidth": str(one.ring_bus_bandwidth)}

"""Which nodes of pools are judged for a pod that waits, and of how many of them Kubernetes is asked. Pure.

It must never leave a node that has room for one that has none, and never keep to itself which were not asked about.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from gpuledger.tools.explain.pools import HAS_OR_NEEDS_NONE, PoolAnswer, Room

NODES_ASKED_MAX: Final = 100
"""Nodes that Kubernetes is asked about; others are judged by the labels that the ledger knows, and a note says so."""


def judged_nodes(answers: Iterable[PoolAnswer]) -> list[str]:
    """The nodes that offer units which the pod waits for: first those with room, then those large enough, by name."""
    ranks = dict[str, tuple[bool, bool]]()
    for one in answers:
        if one.finding not in HAS_OR_NEEDS_NONE:
            for room in filter(lambda room: room.offered, one.rooms):
                rank = _rank(room, one.ask.units)
                ranks[room.node] = min(ranks.get(room.node, rank), rank)
    return sorted(ranks, key=lambda node: (ranks[node], node))


def asked_notes(judged: int, problem: str) -> Iterator[str]:
    """Of which nodes Kubernetes has not told, out of so many; `problem` is why it did not, empty where it did."""
    if judged and problem:
        yield f"Not every node was looked at for taints and a cordon: {problem}"
    elif judged > NODES_ASKED_MAX:
        yield (
            f"Only {NODES_ASKED_MAX} of {judged} nodes that offer units were looked at for taints and a cordon; the "
            "others were judged by the labels that the ledger knows."
        )


def _rank(room: Room, wanted: int) -> tuple[bool, bool]:
    return not room.fits(wanted), room.offered < wanted

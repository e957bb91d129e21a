"""Remembers how all nodes rank for a kind of pod, so that only nodes that changed are ranked again. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import compress
from operator import ne
from typing import Final

from gpuledger.domain.sharing.node_views import NodeView, OrderedViews

MISFIT: Final = -(1 << 62)
"""The rank of a node on which a pod does not fit; below every rank."""

KINDS_MAX: Final = 256
"""Of so many kinds of pods ranks are remembered, of the latest ones."""


class _Ranks:
    __slots__ = ("basis", "ranks", "stamps")

    def __init__(self, basis: object, nodes: int) -> None:
        self.basis = basis
        self.stamps = [-1] * nodes
        self.ranks = [MISFIT] * nodes


class RankedNodes:
    """The ranks of all nodes, in their order, by kind of pod."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[Hashable, _Ranks] = OrderedDict()

    def update(
        self, kind: Hashable, basis: object, nodes: OrderedViews, rank: Callable[[NodeView], int]
    ) -> Sequence[int]:
        """The ranks of all nodes; `rank` is called for those that are new or changed, or all if `basis` is another."""
        stamps = nodes.stamps
        kept = self._kinds.get(kind)
        if kept is None or kept.basis is not basis or len(kept.stamps) != len(stamps):
            kept = self._kinds[kind] = _Ranks(basis, len(stamps))
        self._kinds.move_to_end(kind)
        if len(self._kinds) > KINDS_MAX:
            self._kinds.popitem(last=False)
        for place in compress(range(len(stamps)), map(ne, stamps, kept.stamps)):
            kept.ranks[place] = rank(nodes.views[place])
        kept.stamps = list(stamps)
        return kept.ranks

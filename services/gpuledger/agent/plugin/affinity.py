"""How near two cards of a node are to each other, for containers that request several. Pure."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from gpuledger.agent.hardware.api import CardFacts

_FIGURE_BITS: Final = 24
"""Room for the sum of a figure over all pairs of a node's cards."""


def nearness(*, links: int = 0, numa: int = 0, bridges: int = 0) -> int:
    """Packs three figures into one number, in this order of weight, so that sums compare the same way.

    `links` counts NVLinks between two cards or to switches that they share; `numa` is 1 for cards on one NUMA node;
    `bridges` counts the PCIe bridges that both share on the way from the processor.
    """
    return (links << 2 * _FIGURE_BITS) + (numa << _FIGURE_BITS) + bridges


class Affinity:
    """Nearness by the cards' addresses, computed once per pair; an unknown card is near to none."""

    def __init__(self, cards: Iterable[CardFacts]) -> None:
        self._cards = {card.address: card for card in cards}
        self._cache: dict[tuple[str, str], int] = {}

    def between(self, one: str, other: str) -> int:
        """The nearness of two different cards."""
        pair = (one, other) if one < other else (other, one)
        if pair not in self._cache:
            self._cache[pair] = self._nearness(*pair)
        return self._cache[pair]

    def to_all(self, one: str, others: Iterable[str]) -> int:
        """The sum of a card's nearness to others."""
        return sum(self.between(one, other) for other in others)

    def _nearness(self, one: str, other: str) -> int:
        first, second = self._cards.get(one), self._cards.get(other)
        if first is None or second is None:
            return 0
        same_numa = first.numa_node is not None and first.numa_node >= 0 and first.numa_node == second.numa_node
        return nearness(
            links=self._links(first, second), numa=int(same_numa), bridges=_common(first.pci_path, second.pci_path)
        )

    def _links(self, one: CardFacts, other: CardFacts) -> int:
        direct = max(one.nvlinks.count(other.address), other.nvlinks.count(one.address))
        switches = set(one.nvlinks) & set(other.nvlinks) - self._cards.keys()
        return direct + sum(min(one.nvlinks.count(end), other.nvlinks.count(end)) for end in switches)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))

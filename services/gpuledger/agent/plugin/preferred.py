"""Which of the free units a container should rather get. Pure, deterministic, and of bounded work.

The kubelet asks before it allocates. First of all units come from as many cards as there are, and from cards that are
used less; among those, from cards that are near each other; and where that is the same, so that what stays free is
near each other as well. The order of the offer decides the rest.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpuledger.agent.board import DeviceUnit
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.plugin.affinity import Affinity

STARTS_MAX: Final = 16
"""With so many cards at most it is tried what comes of beginning with each."""


def preferred(
    units: Sequence[DeviceUnit],
    cards: Iterable[CardFacts],
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
) -> tuple[str, ...]:
    """`size` ids of those available, in the offer's order; fewer where there are not so many.

    What must be included is, as far as `size` goes. Ids that are not among the units count as cards of their own, and
    come last.
    """
    order = {unit.id: place for place, unit in enumerate(units)}
    included = _ordered(must_include, order)[: max(size, 0)]
    free = _ordered(set(available).difference(included), order)
    wanted = min(max(size, 0) - len(included), len(free))
    chosen = _Free(units, free, included, Affinity(cards)).chosen(wanted)
    return tuple(_ordered([*included, *chosen], order))


def _ordered(ids: Iterable[str], order: Mapping[str, int]) -> list[str]:
    return sorted(set(ids), key=lambda unit_id: (order.get(unit_id, len(order)), unit_id))


class _Free:
    """What may be chosen, by card: `_free` has the ids of each card that has any, in the offer's order."""

    def __init__(
        self, units: Sequence[DeviceUnit], free: Sequence[str], included: Sequence[str], affinity: Affinity
    ) -> None:
        address = {unit.id: unit.address for unit in units}
        self._affinity = affinity
        self._included = Counter(address.get(unit_id, unit_id) for unit_id in included)
        self._free: dict[str, list[str]] = {}
        for unit_id in free:
            self._free.setdefault(address.get(unit_id, unit_id), []).append(unit_id)
        self._place = {card: place for place, card in enumerate(self._free)}
        every = Counter(unit.address for unit in units)
        self._used = {
            card: every[card] - len(ids) - self._included[card] if card in every else len(units)
            for card, ids in self._free.items()
        }

    def chosen(self, wanted: int) -> list[str]:
        """So many ids, of the best of the ways that were tried."""
        if wanted <= 0:
            return []
        best = min((self._grown(beginning, wanted) for beginning in self._beginnings()), key=self._cost)
        return [unit_id for card, count in best.items() for unit_id in self._free[card][:count]]

    def _beginnings(self) -> Sequence[str | None]:
        """Cards to begin with; None leaves it to what must be included."""
        if self._included:
            return [None]
        least = min(self._used.values())
        return [card for card, used in self._used.items() if used == least][:STARTS_MAX]

    def _grown(self, beginning: str | None, wanted: int) -> Counter[str]:
        """How many units of each card, chosen one after the other: the best that goes with those before it."""
        picks: Counter[str] = Counter()
        near = {card: self._affinity.to_all(card, self._included.keys() - {card}) for card in self._free}
        while picks.total() < wanted:
            card = beginning if beginning is not None and not picks else self._next(picks, near)
            if not picks[card] and not self._included[card]:
                self._approach(near, card)
            picks[card] += 1
        return picks

    def _next(self, picks: Counter[str], near: Mapping[str, int]) -> str:
        left = (card for card, ids in self._free.items() if picks[card] < len(ids))
        return min(
            left,
            key=lambda card: (
                picks[card] + self._included[card],
                self._used[card],
                -near[card],
                self._place[card],
            ),
        )

    def _approach(self, near: dict[str, int], card: str) -> None:
        for other in near.keys() - {card}:
            near[other] += self._affinity.between(card, other)

    def _cost(self, picks: Counter[str]) -> tuple[int, int, list[int]]:
        taken = picks.keys() | self._included.keys()
        inside = sum(self._affinity.to_all(card, taken - {card}) for card in taken)
        outside = sum(self._affinity.to_all(card, self._free.keys() - taken) for card in taken)
        return -inside, outside, sorted(self._place[card] for card in picks)

"""The response to a GetPreferredAllocation request: which of the free units suit a container best. Pure.

Units come from as many cards as possible, and from the least used ones; among those, from cards that are near each
other; then so that the cards that stay free are near each other too. The order of the offer decides the rest. The
result is deterministic, and the work is bounded by the number of cards.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpuledger.agent.board import DeviceUnit
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.plugin.affinity import Affinity

STARTS_MAX: Final = 16
"""How many cards are tried as the first one."""


def preferred(
    units: Sequence[DeviceUnit],
    cards: Iterable[CardFacts],
    available: Iterable[str],
    must_include: Iterable[str],
    size: int,
) -> tuple[str, ...]:
    """`size` ids of the available ones, in the order of the offer; fewer where there are not so many.

    The ids that must be included are, as far as `size` goes. Unknown ids count as cards of their own, and come last.
    """
    order = {unit.id: place for place, unit in enumerate(units)}
    included = _ordered(must_include, order)[: max(size, 0)]
    free = _ordered(set(available).difference(included), order)
    count = min(max(size, 0) - len(included), len(free))
    chosen = _Free(units, free, included, Affinity(cards)).best_of(count)
    return tuple(_ordered([*included, *chosen], order))


def _ordered(ids: Iterable[str], order: Mapping[str, int]) -> list[str]:
    return sorted(set(ids), key=lambda unit_id: (order.get(unit_id, len(order)), unit_id))


class _Free:
    """The free units by card, in the order of the offer."""

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

    def best_of(self, count: int) -> list[str]:
        """The ids of the best of the choices that were tried."""
        if count <= 0:
            return []
        best = min((self._choice(start, count) for start in self._starts()), key=self._cost)
        return [unit_id for card, taken in best.items() for unit_id in self._free[card][:taken]]

    def _starts(self) -> Sequence[str | None]:
        """The cards to start with; None leaves it to the units that must be included."""
        if self._included:
            return [None]
        least = min(self._used.values())
        return [card for card, used in self._used.items() if used == least][:STARTS_MAX]

    def _choice(self, start: str | None, count: int) -> Counter[str]:
        """Units per card of the choice that begins with a card and always adds the best next one."""
        picks: Counter[str] = Counter()
        nearness = {card: self._affinity.to_all(card, self._included.keys() - {card}) for card in self._free}
        while picks.total() < count:
            card = start if start is not None and not picks else self._next_card(picks, nearness)
            if not picks[card] and not self._included[card]:
                self._bring_near(nearness, card)
            picks[card] += 1
        return picks

    def _next_card(self, picks: Counter[str], nearness: Mapping[str, int]) -> str:
        left = (card for card, ids in self._free.items() if picks[card] < len(ids))
        return min(
            left,
            key=lambda card: (
                picks[card] + self._included[card],
                self._used[card],
                -nearness[card],
                self._place[card],
            ),
        )

    def _bring_near(self, nearness: dict[str, int], card: str) -> None:
        for other in nearness.keys() - {card}:
            nearness[other] += self._affinity.between(card, other)

    def _cost(self, picks: Counter[str]) -> tuple[int, int, list[int]]:
        taken = picks.keys() | self._included.keys()
        inside = sum(self._affinity.to_all(card, taken - {card}) for card in taken)
        outside = sum(self._affinity.to_all(card, self._free.keys() - taken) for card in taken)
        return -inside, outside, sorted(self._place[card] for card in picks)

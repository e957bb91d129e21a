"""What the kubelet is told of each resource's units, as follows from what the agent's parts found. Pure.

A unit whose card nobody has looked at yet is not told to be healthy: a container that fails on a broken card costs
more than one that waits for a moment.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.agent.board import BoardState, DeviceUnit
from gpuledger.agent.hardware.api import CardFacts

ID_LENGTH_MAX: Final = 63
"""A kubelet takes no longer ids."""


class ListedUnit(NamedTuple):
    """A unit as the kubelet is told of it; `numa_node` is None where nobody knows."""

    unit: DeviceUnit
    healthy: bool
    numa_node: int | None


def device_lists(seen: BoardState) -> Mapping[str, tuple[ListedUnit, ...]]:
    """The units of each offered resource, in order, each id once; ids that no kubelet takes are left out."""
    cards = {card.address: card for card in seen.survey.cards} if seen.survey else None
    units: dict[str, dict[str, DeviceUnit]] = {}
    for offer in seen.offers:
        mine = units.setdefault(offer.resource, {})
        for unit in offer.units:
            if 0 < len(unit.id) <= ID_LENGTH_MAX:
                mine.setdefault(unit.id, unit)
    return {name: tuple(_listed(unit, cards, seen.unfit) for unit in mine.values()) for name, mine in units.items()}


def invalid_ids(seen: BoardState) -> tuple[str, ...]:
    """Ids that are offered and that no kubelet takes."""
    return tuple(unit.id for offer in seen.offers for unit in offer.units if not 0 < len(unit.id) <= ID_LENGTH_MAX)


def _listed(unit: DeviceUnit, cards: Mapping[str, CardFacts] | None, unfit: Mapping[str, str] | None) -> ListedUnit:
    card = cards.get(unit.address) if cards is not None else None
    gone = cards is not None and card is None
    healthy = unfit is not None and unit.address not in unfit and not gone
    numa_node = card.numa_node if card is not None else None
    return ListedUnit(unit, healthy, numa_node if numa_node is not None and numa_node >= 0 else None)

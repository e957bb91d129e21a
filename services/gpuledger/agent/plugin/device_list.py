"""The units that the device plugin lists to the kubelet, with their health, from the state of the board. Pure.

A unit whose card was never polled is not listed as healthy: a container that fails on a broken card costs more than one
that waits a moment.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpuledger.agent.board import BoardState, DeviceUnit
from gpuledger.agent.hardware.api import CardFacts

ID_LENGTH_MAX: Final = 63
"""The kubelet takes no longer ids."""


class ListedUnit(NamedTuple):
    """A unit as the kubelet sees it; `numa_node` is None where unknown."""

    unit: DeviceUnit
    healthy: bool
    numa_node: int | None


def device_lists(state: BoardState) -> Mapping[str, tuple[ListedUnit, ...]]:
    """The units of each offered resource, in order, each valid id once."""
    cards = {card.address: card for card in state.survey.cards} if state.survey else None
    units: dict[str, dict[str, DeviceUnit]] = {}
    for offer in state.offers:
        by_id = units.setdefault(offer.resource, {})
        for unit in offer.units:
            if _is_valid(unit):
                by_id.setdefault(unit.id, unit)
    return {name: tuple(_listed(unit, cards, state.unfit) for unit in by_id.values()) for name, by_id in units.items()}


def invalid_ids(state: BoardState) -> tuple[str, ...]:
    """The offered ids that no kubelet takes."""
    return tuple(unit.id for offer in state.offers for unit in offer.units if not _is_valid(unit))


def _is_valid(unit: DeviceUnit) -> bool:
    return 0 < len(unit.id) <= ID_LENGTH_MAX


def _listed(unit: DeviceUnit, cards: Mapping[str, CardFacts] | None, unfit: Mapping[str, str] | None) -> ListedUnit:
    card = cards.get(unit.address) if cards is not None else None
    gone = cards is not None and card is None
    healthy = unfit is not None and unit.address not in unfit and not gone
    numa_node = card.numa_node if card is not None else None
    return ListedUnit(unit, healthy, numa_node if numa_node is not None and numa_node >= 0 else None)

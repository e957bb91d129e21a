"""Which units of extended resources the node has to offer, from what was set up for pools. Pure.

Only what was set up and not withdrawn is offered: a card that nobody has, that changes hands, or that is taken back
makes no units. Whether a unit can be used at the moment is not asked: what is unhealthy stays offered, and is marked.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Final

from gpuledger.agent.board import DeviceUnit, ResourceOffer
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.setup.state import HeldDevice
from gpuledger.events.node import WantedDevice

UNIT_MIG: Final = "MIG"
SLICE: Final = "::"
"""Stands between a UUID and the number of a slice, as NVIDIA's device plugin has it."""

ID_LENGTH_MAX: Final = 63
"""The kubelet takes no longer id."""

_SUFFIX_LENGTH: Final = len(SLICE) + 2
_DIGEST_LENGTH: Final = 16

Used = frozenset[tuple[str, str]]
"""Units that containers have: resource and id."""


def profile_of(wish: WantedDevice) -> str | None:
    """The MIG profile that a card is to be divided by; None: not at all."""
    return wish.mig_profile or "" if wish.unit == UNIT_MIG else None


def unit_uuids(card: CardFacts, wish: WantedDevice) -> tuple[str, ...]:
    """The UUIDs of what makes units for a pool of a card as it is divided now: itself, or instances by their places."""
    profile = profile_of(wish)
    if profile is not None:
        found = sorted((each.start, each.uuid) for each in card.instances if each.profile == profile)
        return tuple(uuid for _, uuid in found)
    return (card.uuid,) if card.uuid is not None and not card.mig_enabled else ()


def partitions(wish: WantedDevice, uuids: tuple[str, ...]) -> int | None:
    """How many instances a pool of instances has of a card; None for a pool of cards."""
    return len(uuids) if wish.unit == UNIT_MIG else None


def ids_of(uuid: str, slices: int) -> tuple[str, ...]:
    """The ids of the units that a card or an instance makes."""
    base = _base(uuid)
    return (base,) if slices == 1 else tuple(f"{base}{SLICE}{number}" for number in range(slices))


def offers(held: Iterable[HeldDevice]) -> tuple[ResourceOffer, ...]:
    """All that is offered, by resource, the units in the order of their cards' addresses and of their places there."""
    units: dict[str, list[DeviceUnit]] = {}
    for each in sorted((each for each in held if each.offered), key=lambda each: each.address):
        units.setdefault(each.wish.resource, []).extend(_units(each))
    return tuple(ResourceOffer(resource, tuple(made)) for resource, made in sorted(units.items()) if made)


def without(offered: Iterable[ResourceOffer], held: HeldDevice) -> tuple[ResourceOffer, ...]:
    """What is left of offers without the units of a device."""
    left = ((each.resource, tuple(unit for unit in each.units if not _is_of(unit, held))) for each in offered)
    return tuple(ResourceOffer(resource, units) for resource, units in left if units)


def used_of(in_use: Mapping[str, frozenset[str]], uuids: Iterable[str]) -> Used:
    """The units of these cards and instances that containers have, of whichever resource."""
    bases = frozenset(map(_base, uuids))
    return frozenset((resource, each) for resource, ids in in_use.items() for each in ids if _base_of(each) in bases)


def uuids_used(used: Used, uuids: Iterable[str]) -> frozenset[str]:
    """Which of the cards and instances containers have units of."""
    bases = frozenset(_base_of(each) for _, each in used)
    return frozenset(uuid for uuid in uuids if _base(uuid) in bases)


def _units(held: HeldDevice) -> Iterator[DeviceUnit]:
    for uuid in held.uuids:
        for each in ids_of(uuid, held.wish.slices_per_unit):
            yield DeviceUnit(each, uuid, held.address)


def _is_of(unit: DeviceUnit, held: HeldDevice) -> bool:
    return unit.address == held.address or unit.uuid in held.uuids


def _base_of(unit: str) -> str:
    return unit.partition(SLICE)[0]


def _base(uuid: str) -> str:
    """A UUID, cut where it leaves no room for the number of a slice; what is cut off is told by a digest."""
    room = ID_LENGTH_MAX - _SUFFIX_LENGTH
    if len(uuid) <= room:
        return uuid
    digest = sha256(uuid.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{uuid[: room - _DIGEST_LENGTH - 1]}-{digest}"

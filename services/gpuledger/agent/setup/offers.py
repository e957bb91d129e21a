"""The units of extended resources that the node offers for the devices set up for pools. Pure.

Only devices that are set up and not withdrawn are offered. Whether a unit can be used at present does not matter here:
an unhealthy unit stays offered, and is marked.
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
"""Separates a UUID from the number of a slice, as in NVIDIA's device plugin."""

ID_LENGTH_MAX: Final = 63
"""The kubelet takes no longer ids."""

_SUFFIX_LENGTH: Final = len(SLICE) + 2
_DIGEST_LENGTH: Final = 16

Used = frozenset[tuple[str, str]]
"""The units that containers hold: resource and id."""


def profile_of(desired: WantedDevice) -> str | None:
    """The MIG profile that a card is partitioned by; None: by none."""
    return desired.mig_profile or "" if desired.unit == UNIT_MIG else None


def unit_uuids(card: CardFacts, desired: WantedDevice) -> tuple[str, ...]:
    """The UUIDs that make a pool's units of a card as it is now: its own, or its instances' in order of place."""
    profile = profile_of(desired)
    if profile is not None:
        found = sorted((each.start, each.uuid) for each in card.instances if each.profile == profile)
        return tuple(uuid for _, uuid in found)
    return (card.uuid,) if card.uuid is not None and not card.mig_enabled else ()


def partitions(desired: WantedDevice, uuids: tuple[str, ...]) -> int | None:
    """How many instances of a card a pool of instances has; None for a pool of cards."""
    return len(uuids) if desired.unit == UNIT_MIG else None


def ids_of(uuid: str, slices: int) -> tuple[str, ...]:
    """The ids of the units that a card or an instance makes."""
    base = uuid_base(uuid)
    return (base,) if slices == 1 else tuple(f"{base}{SLICE}{number}" for number in range(slices))


def offers(held: Iterable[HeldDevice]) -> tuple[ResourceOffer, ...]:
    """All offers by resource; their units in order of the cards' addresses and of the places on each."""
    units: dict[str, list[DeviceUnit]] = {}
    for each in sorted((each for each in held if each.offered), key=lambda each: each.address):
        units.setdefault(each.desired.resource, []).extend(_units(each))
    return tuple(ResourceOffer(resource, tuple(made)) for resource, made in sorted(units.items()) if made)


def without(offered: Iterable[ResourceOffer], held: HeldDevice) -> tuple[ResourceOffer, ...]:
    """The offers without the units of a device."""
    left = ((each.resource, tuple(unit for unit in each.units if not _is_of(unit, held))) for each in offered)
    return tuple(ResourceOffer(resource, units) for resource, units in left if units)


def used_of(in_use: Mapping[str, frozenset[str]], uuids: Iterable[str]) -> Used:
    """The units of these cards and instances that containers hold, of any resource."""
    bases = frozenset(map(uuid_base, uuids))
    return frozenset((resource, each) for resource, ids in in_use.items() for each in ids if unit_base(each) in bases)


def uuids_used(used: Used, uuids: Iterable[str]) -> frozenset[str]:
    """The cards and instances whose units containers hold."""
    bases = frozenset(unit_base(each) for _, each in used)
    return frozenset(uuid for uuid in uuids if uuid_base(uuid) in bases)


def unit_base(unit: str) -> str:
    """The part of a unit's id that names its card or instance; see `uuid_base`."""
    return unit.partition(SLICE)[0]


def uuid_base(uuid: str) -> str:
    """A UUID as ids of units have it: shortened by a digest where it leaves no room for the number of a slice."""
    room = ID_LENGTH_MAX - _SUFFIX_LENGTH
    if len(uuid) <= room:
        return uuid
    digest = sha256(uuid.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{uuid[: room - _DIGEST_LENGTH - 1]}-{digest}"


def _units(held: HeldDevice) -> Iterator[DeviceUnit]:
    for uuid in held.uuids:
        for each in ids_of(uuid, held.desired.slices_per_unit):
            yield DeviceUnit(each, uuid, held.address)


def _is_of(unit: DeviceUnit, held: HeldDevice) -> bool:
    return unit.address == held.address or unit.uuid in held.uuids

"""What a pool asks for: its row, its spec as it is compared, and what can be said of a spec by itself. Pure.

The decider, admission, agents and commands share this, so that all of them mean the same by a pool.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import orjson

from gpuledger.api.mig_profile import MigProfile
from gpuledger.api.pool_spec import UNIT_MIG
from gpuledger.domain.dra.objects import LabelledNode, NodeExpression, Reach
from gpuledger.domain.dra.reach import reaches
from gpuledger.domain.inventory.labels import pci_id
from gpuledger.domain.inventory.state import GpuDevice
from gpuledger.events.pool import DeviceFilter, LabelSelector, PoolDefined

SPECS_CACHED_MAX: Final = 4096
PROFILES_TOLD_MAX: Final = 10
"""How many of a card's MIG profiles a message lists; whatever an agent tells, the message is of a bounded length."""


class DeviceFacts(NamedTuple):
    """What of a GPUDevice selectors look at; PCI ids in lower case without `0x`."""

    inventory_id: str
    product: str | None
    pci_vendor: str | None
    pci_device: str | None
    mig_capable: bool | None
    mig_profiles: frozenset[str]


class Filter(NamedTuple):
    """A device filter, ready to compare."""

    inventory_ids: frozenset[str]
    products: frozenset[str]
    pci_vendors: frozenset[str]
    pci_devices: frozenset[str]
    mig_capable: bool | None
    mig_profiles: frozenset[str]


class Spec(NamedTuple):
    """A pool's spec, ready to compare. `approves` None approves nothing by itself."""

    said: PoolDefined
    nodes: tuple[NodeExpression, ...]
    include: Filter
    exclude: Filter | None
    approves: tuple[NodeExpression, ...] | None


@lru_cache(SPECS_CACHED_MAX)
def read_spec(said: str) -> Spec:
    """The spec in a pool's row."""
    return spec_of(PoolDefined.model_validate(orjson.loads(said)))


def spec_of(said: PoolDefined) -> Spec:
    """A spec, ready to compare. A pool that needs no annotation approves what its selector says, else nothing."""
    approves = None if said.requires_annotation or said.auto_approve is None else _requirements(said.auto_approve)
    exclude = None if said.exclude is None else _filter(said.exclude)
    return Spec(said, _requirements(said.node_selector), _filter(said.include), exclude, approves)


def facts_of(row: GpuDevice) -> DeviceFacts:
    """What selectors look at of a GPUDevice."""
    vendor, device = (None if text is None else pci_id(text) for text in (row.pci_vendor, row.pci_device))
    profiles = frozenset(row.mig_profiles.split(",")) if row.mig_profiles else frozenset[str]()
    return DeviceFacts(row.inventory_id, row.product, vendor, device, row.mig_capable, profiles)


def approval_of(spec: Spec) -> str | None:
    """A label that every device has that the pool approves by itself; see `Pool`."""
    if spec.approves is None:
        return None
    told = (f"{one.key}={one.values[0]}" for one in spec.approves if one.operator == "In" and len(one.values) == 1)
    return next(told, "")


def units(said: PoolDefined, *, cards: int, partitions: int, cap: int) -> int:
    """How many units so many cards with so many partitions offer; `cap` is the most slices of a unit."""
    return (partitions if said.unit == UNIT_MIG else cards) * min(said.slices_per_unit, cap)


def matches(spec: Spec, device: DeviceFacts) -> bool:
    """Whether a pool's device selector means the device."""
    return mismatch(spec, device) is None


def mismatch(spec: Spec, device: DeviceFacts, *, was_meant: bool = False) -> str | None:
    """Why the device is none that the pool means; None where it is one.

    A device that the pool has (`was_meant`) is one until it is known to be another: what nobody tells any more, because
    the driver is gone, say, has not changed, and by which profiles its card can be divided, its agent has the say.
    """
    if spec.said.unit == UNIT_MIG and device.mig_capable is False:
        return "The device cannot be partitioned."
    if spec.said.unit == UNIT_MIG and not was_meant and _lacks(device, spec.said.mig_profile or ""):
        return f"The device's card has no MIG profile {spec.said.mig_profile}, only {_listed(device.mig_profiles)}."
    unknown = _unknown(device) if was_meant else frozenset[str]()
    for part, holds in _parts(spec.include, device):
        if not holds and part not in unknown:
            return f"The device is not among the pool's deviceSelector.include.{part}."
    if spec.exclude is not None:
        parts = dict(_parts(spec.exclude, device))
        if parts and all(parts.values()):
            return "The device is among the pool's deviceSelector.exclude."
    return None


def selects(requirements: tuple[NodeExpression, ...], name: str, labels: Mapping[str, str]) -> bool:
    """Whether an object of this name with these labels is selected; without requirements everything is."""
    return not requirements or reaches(Reach(terms=(requirements,)), LabelledNode(name, labels))


def _requirements(selector: LabelSelector) -> tuple[NodeExpression, ...]:
    given = (NodeExpression(one.key, one.operator, one.values, one.is_field) for one in selector.requirements)
    return (*(NodeExpression(key, "In", (value,)) for key, value in sorted(selector.labels.items())), *given)


def _filter(given: DeviceFilter) -> Filter:
    return Filter(
        frozenset(given.inventory_ids), frozenset(given.products),
        frozenset(map(pci_id, given.pci_vendors)), frozenset(map(pci_id, given.pci_devices)),
        given.mig_capable, frozenset(given.mig_profiles),
    )  # fmt: skip


def _lacks(device: DeviceFacts, profile: str) -> bool:
    """Whether the card is known to lack the profile. A name that is no profile is the spec's fault, not the card's."""
    parsed, known = MigProfile.parse(profile), device.mig_profiles
    return parsed is not None and bool(known) and not parsed.is_among(known)


def _listed(profiles: frozenset[str]) -> str:
    told, more = sorted(profiles)[:PROFILES_TOLD_MAX], len(profiles) - PROFILES_TOLD_MAX
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def _unknown(device: DeviceFacts) -> frozenset[str]:
    """The parts of a filter, by their names in the manifest, of which nothing is known of the device."""
    told = {
        "products": device.product,
        "pciVendors": device.pci_vendor,
        "pciDevices": device.pci_device,
        "migCapable": device.mig_capable,
        "migProfiles": device.mig_profiles or (None if device.mig_capable is not False else ()),
    }
    return frozenset(part for part, value in told.items() if value is None)


def _parts(wanted: Filter, device: DeviceFacts) -> Iterator[tuple[str, bool]]:
    """The parts that are given, by their names in the manifest, and whether each holds for the device."""
    if wanted.inventory_ids:
        yield "inventoryIDs", device.inventory_id in wanted.inventory_ids
    if wanted.products:
        yield "products", device.product in wanted.products
    if wanted.pci_vendors:
        yield "pciVendors", device.pci_vendor in wanted.pci_vendors
    if wanted.pci_devices:
        yield "pciDevices", device.pci_device in wanted.pci_devices
    if wanted.mig_capable is not None:
        yield "migCapable", device.mig_capable == wanted.mig_capable
    if wanted.mig_profiles:
        yield "migProfiles", wanted.mig_profiles <= device.mig_profiles

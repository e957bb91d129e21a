"""What a pool's spec means: which devices and nodes it selects, and how many units cards offer. Pure.

The decider, admission, agents and commands share this, so that a pool means the same to all of them.
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
PROFILES_LISTED_MAX: Final = 10
"""How many of a card's MIG profiles a message lists, so that its length is bounded whatever an agent reports."""


class DeviceFacts(NamedTuple):
    """The properties of a GPUDevice that selectors compare; PCI ids in lower case without `0x`."""

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
    """A pool's spec, ready to compare. With `approves` None it approves nothing automatically."""

    definition: PoolDefined
    nodes: tuple[NodeExpression, ...]
    include: Filter
    exclude: Filter | None
    approves: tuple[NodeExpression, ...] | None


@lru_cache(SPECS_CACHED_MAX)
def read_spec(definition: str) -> Spec:
    """The spec in a pool's row."""
    return spec_of(PoolDefined.model_validate(orjson.loads(definition)))


def spec_of(definition: PoolDefined) -> Spec:
    """A spec, ready to compare. A pool that requires no annotation approves what its selector selects."""
    selector = None if definition.requires_annotation else definition.auto_approve
    approves = None if selector is None else requirements_of(selector)
    exclude = None if definition.exclude is None else _filter(definition.exclude)
    return Spec(definition, requirements_of(definition.node_selector), _filter(definition.include), exclude, approves)


def facts_of(row: GpuDevice) -> DeviceFacts:
    """The properties of a GPUDevice that selectors compare."""
    vendor, device = (None if text is None else pci_id(text) for text in (row.pci_vendor, row.pci_device))
    return DeviceFacts(row.inventory_id, row.product, vendor, device, row.mig_capable, profiles_of(row.mig_profiles))


def profiles_of(listed: str | None) -> frozenset[str]:
    """The MIG profiles in a column, which lists them with commas."""
    return frozenset(listed.split(",")) if listed else frozenset()


def approval_of(spec: Spec) -> str | None:
    """A label of every device that the pool approves automatically; see `Pool`."""
    if spec.approves is None:
        return None
    labels = (f"{one.key}={one.values[0]}" for one in spec.approves if one.operator == "In" and len(one.values) == 1)
    return next(labels, "")


def units(definition: PoolDefined, *, cards: int, partitions: int, cap: int) -> int:
    """How many units so many cards with so many partitions offer; `cap` is the most slices of a unit."""
    return (partitions if definition.unit == UNIT_MIG else cards) * min(definition.slices_per_unit, cap)


def matches(spec: Spec, device: DeviceFacts) -> bool:
    """Whether a pool's device selector selects the device."""
    return mismatch(spec, device) is None


def mismatch(spec: Spec, device: DeviceFacts, *, is_held: bool = False) -> str | None:
    """Why the pool's device selector does not select the device; None if it does.

    A device that the pool holds stays selected until a property differs: one that is no longer reported,
    for example because the driver is gone, has not changed. Its agent judges which profiles can divide its card.
    """
    is_divided, profile = spec.definition.unit == UNIT_MIG, spec.definition.mig_profile or ""
    if is_divided and device.mig_capable is False:
        return "The device cannot be partitioned."
    if is_divided and not is_held and _lacks(device, profile):
        return f"The device's card has no MIG profile {profile}, only {_listed(device.mig_profiles)}."
    unreported = _unreported(device) if is_held else frozenset[str]()
    for part, holds in _parts(spec.include, device):
        if not holds and part not in unreported:
            return f"The device is not among the pool's deviceSelector.include.{part}."
    if spec.exclude is not None:
        parts = dict(_parts(spec.exclude, device))
        if parts and all(parts.values()):
            return "The device is among the pool's deviceSelector.exclude."
    return None


def selects(requirements: tuple[NodeExpression, ...], name: str, labels: Mapping[str, str]) -> bool:
    """Whether an object of this name with these labels is selected; without requirements every object is."""
    return not requirements or reaches(Reach(terms=(requirements,)), LabelledNode(name, labels))


@lru_cache(SPECS_CACHED_MAX)
def approval_requirements(selector: str) -> tuple[NodeExpression, ...]:
    """What the module's selector in a row of settings requires of a device that pools may approve."""
    document = orjson.loads(selector)
    has_requirements = isinstance(document.get("requirements"), list)  # a label of that name has a text
    return requirements_of(LabelSelector.model_validate(document if has_requirements else {"labels": document}))


def requirements_of(selector: LabelSelector) -> tuple[NodeExpression, ...]:
    """All that a label selector requires."""
    given = (NodeExpression(one.key, one.operator, one.values, one.is_field) for one in selector.requirements)
    return (*(NodeExpression(key, "In", (value,)) for key, value in sorted(selector.labels.items())), *given)


def _filter(given: DeviceFilter) -> Filter:
    return Filter(
        frozenset(given.inventory_ids), frozenset(given.products),
        frozenset(map(pci_id, given.pci_vendors)), frozenset(map(pci_id, given.pci_devices)),
        given.mig_capable, frozenset(given.mig_profiles),
    )  # fmt: skip


def _lacks(device: DeviceFacts, profile: str) -> bool:
    """Whether the card is reported to lack the profile; a name that is no profile is a fault of the spec."""
    parsed, listed = MigProfile.parse(profile), device.mig_profiles
    return parsed is not None and bool(listed) and not parsed.is_among(listed)


def _listed(profiles: frozenset[str]) -> str:
    first, more = sorted(profiles)[:PROFILES_LISTED_MAX], len(profiles) - PROFILES_LISTED_MAX
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _unreported(device: DeviceFacts) -> frozenset[str]:
    """The parts of a filter, by their names in the manifest, that compare what nobody reports of the device."""
    reported = {
        "products": device.product,
        "pciVendors": device.pci_vendor,
        "pciDevices": device.pci_device,
        "migCapable": device.mig_capable,
        "migProfiles": device.mig_profiles or (None if device.mig_capable is not False else ()),
    }
    return frozenset(part for part, value in reported.items() if value is None)


def _parts(given: Filter, device: DeviceFacts) -> Iterator[tuple[str, bool]]:
    """The parts that a filter gives, by their names in the manifest, and whether each holds for the device."""
    if given.inventory_ids:
        yield "inventoryIDs", device.inventory_id in given.inventory_ids
    if given.products:
        yield "products", device.product in given.products
    if given.pci_vendors:
        yield "pciVendors", device.pci_vendor in given.pci_vendors
    if given.pci_devices:
        yield "pciDevices", device.pci_device in given.pci_devices
    if given.mig_capable is not None:
        yield "migCapable", device.mig_capable == given.mig_capable
    if given.mig_profiles:
        yield "migProfiles", given.mig_profiles <= device.mig_profiles

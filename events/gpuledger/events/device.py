"""Devices: GPUs, known by serial number or UUID wherever they sit."""

from typing import Annotated

from pydantic import Field, StringConstraints

from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.registry import registry

PRECISIONS_MAX = 16
PROFILES_MAX = 64
MARKS_MAX = 256

Labels = Annotated[dict[Name, Text], Field(max_length=MARKS_MAX)]

# What becomes part of an id is bounded here, at decoding: whatever an agent says, a subject can hold it.
Uuid = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:/-]{1,128}$")]
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")]
PciId = Annotated[str, StringConstraints(pattern=r"^(0x)?[0-9A-Fa-f]{4}$")]
PciClass = Annotated[str, StringConstraints(pattern=r"^(0x)?[0-9A-Fa-f]{4,6}$")]


class Hardware(Payload):
    """What is known of a card; what nobody said is missing. PCI ids are hexadecimal."""

    uuid: Uuid | None = None
    serial: Name | None = None
    pci_address: PciAddress | None = None
    pci_vendor: PciId | None = None
    pci_device: PciId | None = None
    pci_class: PciClass | None = None
    product: Name | None = None
    memory_mib: Count | None = None
    compute_major: Count | None = None
    compute_minor: Count | None = None
    precision: tuple[Name, ...] | None = Field(default=None, max_length=PRECISIONS_MAX)
    mig_capable: bool | None = None
    mig_strategy: Name | None = None
    mig_profiles: tuple[Name, ...] | None = Field(default=None, max_length=PROFILES_MAX)


class Card(Hardware):
    """A card as the agent of its node sees it."""

    pci_address: PciAddress
    pci_vendor: PciId
    pci_device: PciId


class Description(Payload):
    """What a GPUDevice shows. `missing` says that whoever sees the node's cards does not see this one."""

    hardware: Hardware
    managed: bool
    ignored: bool = False
    missing: bool = False


@registry.event("device", "inserted", publisher="importers")
class DeviceInserted(Payload):
    """The device was put into a slot; what is known of its identity comes along."""

    slot: Name
    serial: Name | None = None
    uuid: Name | None = None
    model: Name | None = None


@registry.event("device", "removed", publisher="importers")
class DeviceRemoved(Payload):
    """The device was taken out of a slot; `retired` says that it left service for good."""

    slot: Name
    retired: bool = False


@registry.event("device", "failed", publisher="importers")
class DeviceFailed(Payload):
    """The device failed; `kind` is the field's short name for how (DBE, OTB, XID 79)."""

    kind: Name
    slot: Name | None = None
    message: Text | None = None


@registry.event("device", "marked", publisher="watchers")
class DeviceMarked(Payload):
    """What people put on a GPUDevice, which the subject names; it replaces the last, and empty says that it is gone."""

    labels: Labels = {}
    annotations: Labels = {}


@registry.event("device", "detected", publisher="inventory")
class DeviceDetected(Description):
    """A GPUDevice exists under the subject's name, which was given once.

    `card` is what tells the device from every other: its UUID, else node and PCI address, else (provisional) its place
    among the node's devices of that vendor and model as Node Feature Discovery shows them.
    """

    node: Name
    card: Name
    provisional: bool = False
    index: Count | None = None


@registry.event("device", "identified", publisher="inventory")
class DeviceIdentified(Payload):
    """The GPUDevice that the subject names turned out to be this card."""

    card: Name


@registry.event("device", "described", publisher="inventory")
class DeviceDescribed(Description):
    """What is known of the GPUDevice from now on; it replaces the last."""


@registry.event("device", "withdrawn", publisher="inventory")
class DeviceWithdrawn(Payload):
    """The GPUDevice is no more: its node is gone, or its card sits in another one (`moved_to`)."""

    moved_to: Name | None = None


@registry.event("device", "attached", publisher="inventory")
class DeviceAttached(DeviceInserted):
    """The card that the subject names was found in a slot, and stands there as this GPUDevice."""

    name: Name


@registry.event("device", "detached", publisher="inventory")
class DeviceDetached(DeviceRemoved):
    """The card that the subject names, and that stood as this GPUDevice, is not in the slot any more."""

    name: Name

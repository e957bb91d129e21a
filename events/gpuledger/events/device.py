"""Devices: GPUs, known by serial number or UUID wherever they sit."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gpuledger.events.payload import Count, Name, Number, Payload, Text
from gpuledger.events.publishing import (
    BY_IMPORTERS,
    BY_IMPORTERS_AND_AGENTS,
    BY_WATCHERS,
    Authority,
    DropClass,
    SourceKind,
    by_agents,
    by_service,
)
from gpuledger.events.registry import registry

PRECISIONS_MAX = 16
PROFILES_MAX = 64
MARKS_MAX = 256
MIG_INSTANCES_MAX = 64
LINKS_MAX = 64
PCI_PATH_MAX = 32

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


class MigInstance(Payload):
    """A MIG instance of a card: its UUID, its profile, and at which of the card's memory slices it begins."""

    uuid: Uuid
    profile: Name
    start: Count


class Card(Hardware):
    """A card as the agent of its node sees it.

    `nvlink_peers` are the PCI addresses of what its NVLinks end at (cards or switches), `pci_path` those of the bridges
    between the processor and the card, beginning at the processor. `mig_enabled` None: the card knows no MIG, or nobody
    can tell.
    """

    pci_address: PciAddress
    pci_vendor: PciId
    pci_device: PciId
    numa_node: Count | None = None
    pci_path: Annotated[tuple[Name, ...], Field(max_length=PCI_PATH_MAX)] = ()
    nvlink_peers: Annotated[tuple[Name, ...], Field(max_length=LINKS_MAX)] = ()
    mig_enabled: bool | None = None
    mig_instances: Annotated[tuple[MigInstance, ...], Field(max_length=MIG_INSTANCES_MAX)] = ()


class Description(Payload):
    """What a GPUDevice shows. `missing` says that whoever sees the node's cards does not see this one."""

    hardware: Hardware
    managed: bool
    ignored: bool = False
    missing: bool = False


@registry.event("device", "inserted", BY_IMPORTERS)
class DeviceInserted(Payload):
    """The device was put into a slot; what is known of its identity comes along."""

    slot: Name
    serial: Name | None = None
    uuid: Name | None = None
    model: Name | None = None


@registry.event("device", "removed", BY_IMPORTERS)
class DeviceRemoved(Payload):
    """The device was taken out of a slot; `retired` says that it left service for good."""

    slot: Name
    retired: bool = False


@registry.event("device", "failed", BY_IMPORTERS_AND_AGENTS._replace(drop_class=DropClass.FAILURE))
class DeviceFailed(Payload):
    """The device failed; `kind` is the field's short name for how (DBE, OTB, XID 79)."""

    kind: Name
    slot: Name | None = None
    message: Text | None = None


@registry.event("device", "marked", BY_WATCHERS)
class DeviceMarked(Payload):
    """What people put on a GPUDevice, which the subject names; it replaces the last, and empty says that it is gone."""

    labels: Labels = {}
    annotations: Labels = {}


@registry.event("device", "detected", by_service(SourceKind.INVENTORY))
class DeviceDetected(Description):
    """A GPUDevice exists under the subject's name, which was given once.

    `card` is what tells the device from every other: its UUID, else node and PCI address, else (provisional) its place
    among the node's devices of that vendor and model as Node Feature Discovery shows them.
    """

    node: Name
    card: Name
    provisional: bool = False
    index: Count | None = None


@registry.event("device", "identified", by_service(SourceKind.INVENTORY))
class DeviceIdentified(Payload):
    """The GPUDevice that the subject names turned out to be this card."""

    card: Name


@registry.event("device", "described", by_service(SourceKind.INVENTORY))
class DeviceDescribed(Description):
    """What is known of the GPUDevice from now on; it replaces the last."""


@registry.event("device", "withdrawn", by_service(SourceKind.INVENTORY))
class DeviceWithdrawn(Payload):
    """The GPUDevice is no more: its node is gone, or its card sits in another one (`moved_to`)."""

    moved_to: Name | None = None


@registry.event("device", "attached", by_service(SourceKind.INVENTORY))
class DeviceAttached(DeviceInserted):
    """The card that the subject names was found in a slot, and stands there as this GPUDevice."""

    name: Name


@registry.event("device", "detached", by_service(SourceKind.INVENTORY))
class DeviceDetached(DeviceRemoved):
    """The card that the subject names, and that stood as this GPUDevice, is not in the slot any more."""

    name: Name


@registry.event("device", "health-changed", by_agents(DropClass.ONCE))
class DeviceHealthChanged(Payload):
    """The agent found the card that the subject names unfit for work, or fit again; `kind` is the short name of why.

    The subject is the card's UUID, or its place in the node where it tells none. Only what makes a card unusable is
    told so; errors of applications are not.
    """

    healthy: bool
    kind: Name | None = None
    message: Text = ""


@registry.event("device", "errors-observed", by_agents(DropClass.ONCE, Authority.EDGE))
class DeviceErrorsObserved(Payload):
    """The card that the subject names had errors that leave it usable; many in a short time are told together.

    `kind` is their short name (`XID 31`), `cause` whose they are: an application's, or the hardware's. They happened
    between `first_at` and the event's own time.
    """

    kind: Name
    cause: Literal["application", "hardware"]
    count: Number = 1
    first_at: AwareDatetime
    message: Text = ""


@registry.event("device", "state-changed", by_service(SourceKind.BOOTSTRAP))
class DeviceStateChanged(Payload):
    """How far the GPUDevice that the subject names is prepared; whether a pool has it is told apart."""

    state: Literal["Discovered", "Validating", "Ready", "Faulted"]
    reason: Name
    message: Text = ""


@registry.event("device", "assignment-changed", by_service(SourceKind.POOLS))
class DeviceAssignmentChanged(Payload):
    """Which pool the GPUDevice that the subject names belongs to from now on; None where to none.

    A pool is named as the `pool` aggregate is. `Pending` waits for the node's agent to set the card up, `Unassigning`
    for it to say that nothing holds the card any more. `automatic` says that the pool took it, and not a person.
    """

    pool: Name | None = None
    phase: Literal["Pending", "Assigned", "Unassigning"] | None = None
    reason: Name
    message: Text = ""
    automatic: bool = False


@registry.event("device", "pool-applied", by_agents(DropClass.ONCE))
class DevicePoolApplied(Payload):
    """The agent set up the GPUDevice for a pool; `partitions` is how many of the pool's MIG profile it has."""

    pool: Name
    partitions: Count | None = None


@registry.event("device", "pool-refused", by_agents(DropClass.ONCE))
class DevicePoolRefused(Payload):
    """The agent could not set up the GPUDevice for a pool."""

    pool: Name
    reason: Name
    message: Text = ""


@registry.event("device", "pool-released", by_agents(DropClass.ONCE))
class DevicePoolReleased(Payload):
    """The agent took the GPUDevice back from a pool: nothing holds it, and nothing of its set-up is left."""

    pool: Name

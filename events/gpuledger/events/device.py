"""Devices: GPUs, known by serial number or UUID wherever they sit."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gpuledger.events.break_glass import BY_ADMISSION, BreakGlassUse
from gpuledger.events.drain_mode import DrainMode
from gpuledger.events.payload import Count, Name, Number, Payload, Text
from gpuledger.events.publishing import (
    BY_IMPORTERS,
    BY_WATCHERS,
    Authority,
    DropClass,
    PublishRule,
    SourceKind,
    by_agents,
    by_service,
)
from gpuledger.events.registry import registry
from gpuledger.events.source import Epoch

PRECISIONS_MAX = 16
PROFILES_MAX = 64
MARKS_MAX = 256
MIG_INSTANCES_MAX = 64
"""How many MIG instances a card is taken to have at most; no card has nearly as many."""

LINKS_MAX = 64
PCI_PATH_MAX = 32

Labels = Annotated[dict[Name, Text], Field(max_length=MARKS_MAX)]

# Decoding limits every field that becomes part of an id, so that a subject can hold whatever an agent reports.
UUID_LENGTH_MAX = 128
Uuid = Annotated[str, StringConstraints(pattern=rf"^[A-Za-z0-9._:/-]{{1,{UUID_LENGTH_MAX}}}$")]
PciAddress = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")]
PciId = Annotated[str, StringConstraints(pattern=r"^(0x)?[0-9A-Fa-f]{4}$")]
ReportId = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Minor = Annotated[int, Field(ge=0, le=2**31 - 1)]
PciClass = Annotated[str, StringConstraints(pattern=r"^(0x)?[0-9A-Fa-f]{4,6}$")]


class Hardware(Payload):
    """The known attributes of a card; unknown ones are missing. PCI ids are hexadecimal."""

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
    """A MIG instance of a card: its UUID, its profile, and the memory slice of the card at which it begins."""

    uuid: Uuid
    profile: Name
    start: Count


class Card(Hardware):
    """A card as the agent of its node sees it.

    `nvlink_peers` are the PCI addresses at the other ends of its NVLinks (cards or switches), `pci_path` those of the
    bridges between the processor and the card, beginning at the processor. `mig_enabled` is None if the card does not
    support MIG, or its mode is unknown. `minor` is the driver's number of it (`/dev/nvidia<minor>`), `module_id` its
    place on its board, and `socket` the processor beside it.
    """

    pci_address: PciAddress
    pci_vendor: PciId
    pci_device: PciId
    numa_node: Count | None = None
    socket: Count | None = None
    minor: Minor | None = None
    module_id: Count | None = None
    pci_path: Annotated[tuple[Name, ...], Field(max_length=PCI_PATH_MAX)] = ()
    nvlink_peers: Annotated[tuple[Name, ...], Field(max_length=LINKS_MAX)] = ()
    mig_enabled: bool | None = None
    mig_instances: Annotated[tuple[MigInstance, ...], Field(max_length=MIG_INSTANCES_MAX)] = ()


class Description(Payload):
    """What a GPUDevice shows. `missing` means that the source of the node's inventory no longer finds this card."""

    hardware: Hardware
    managed: bool
    ignored: bool = False
    missing: bool = False


@registry.event("device", "inserted", BY_IMPORTERS)
class DeviceInserted(Payload):
    """The device was put into a slot; the event includes what is known about its identity."""

    slot: Name
    serial: Name | None = None
    uuid: Name | None = None
    model: Name | None = None


@registry.event("device", "removed", BY_IMPORTERS)
class DeviceRemoved(Payload):
    """The device was taken out of a slot; `retired` means that it left service for good."""

    slot: Name
    retired: bool = False


@registry.event(
    "device",
    "failed",
    PublishRule((SourceKind.IMPORTERS, SourceKind.AGENTS), Authority.OWN_DEVICE, DropClass.FAILURE, judged_since=1),
)
class DeviceFailed(Payload):
    """The device failed; `kind` is the field's short name for how (DBE, OTB, XID 79).

    `action` is the recommended one, by NVSentinel's name, where the agent that found it names one.
    """

    kind: Name
    slot: Name | None = None
    message: Text | None = None
    action: Name | None = None


@registry.event("device", "marked", BY_WATCHERS)
class DeviceMarked(Payload):
    """The labels and annotations that people set on the GPUDevice named by the subject. Replaces the previous event.

    If both are empty, they were removed, or the object is gone.
    """

    labels: Labels = {}
    annotations: Labels = {}


@registry.event("device", "detected", by_service(SourceKind.INVENTORY))
class DeviceDetected(Description):
    """A GPUDevice exists under the subject's name, which never changes.

    `card` distinguishes the device from every other: its UUID, else node and PCI address, else (provisional) its place
    among the node's devices of that vendor and model as Node Feature Discovery lists them.
    """

    node: Name
    card: Name
    provisional: bool = False
    index: Count | None = None


@registry.event("device", "identified", by_service(SourceKind.INVENTORY))
class DeviceIdentified(Payload):
    """The GPUDevice named by the subject was identified as this card."""

    card: Name


@registry.event("device", "described", by_service(SourceKind.INVENTORY))
class DeviceDescribed(Description):
    """What is known about the GPUDevice from now on. Replaces the previous description."""


@registry.event("device", "withdrawn", by_service(SourceKind.INVENTORY))
class DeviceWithdrawn(Payload):
    """The GPUDevice no longer exists: its node is gone, or its card is in another node (`moved_to`).

    The reason `Replaced` means that the agent found another card in its slot, `Retired` that its card is missing and
    people retired it.
    """

    moved_to: Name | None = None
    reason: Name | None = None


@registry.event("device", "attached", by_service(SourceKind.INVENTORY))
class DeviceAttached(DeviceInserted):
    """The card named by the subject was found in a slot, where this GPUDevice represents it."""

    name: Name


@registry.event("device", "detached", by_service(SourceKind.INVENTORY))
class DeviceDetached(DeviceRemoved):
    """The card named by the subject, which this GPUDevice represented, is no longer in the slot."""

    name: Name


@registry.event("device", "health-changed", by_agents(DropClass.ONCE, judged_since=2))
class DeviceHealthChanged(Payload):
    """The agent found the card named by the subject unhealthy, or healthy again; `kind` is the short name of the cause.

    The subject is the card's UUID, or its place in the node if it reports none. The agent records only faults that make
    a card unusable this way, and not errors of applications. `action` is what mends it, by NVSentinel's name: that of
    the first fault, where it has several.
    """

    healthy: bool
    kind: Name | None = None
    message: Text = ""
    action: Name | None = None


@registry.event("device", "errors-observed", by_agents(DropClass.ONCE, Authority.EDGE, judged_since=2))
class DeviceErrorsObserved(Payload):
    """The card named by the subject had errors that leave it usable; one event covers many errors in a short time.

    `kind` is their short name (`XID 31`), `cause` says whether an application or the hardware caused them. They
    happened between `first_at` and the event's own time.
    """

    kind: Name
    cause: Literal["application", "hardware"]
    count: Number = 1
    first_at: AwareDatetime
    message: Text = ""


@registry.event("device", "state-changed", by_service(SourceKind.BOOTSTRAP))
class DeviceStateChanged(Payload):
    """How far the GPUDevice named by the subject is prepared; another event says whether a pool has it."""

    state: Literal["Discovered", "Validating", "Ready", "Faulted"]
    reason: Name
    message: Text = ""


class Evacuation(Payload):
    """Pods are to leave the card or MIG instances with this UUID, on this node, in this mode."""

    node: Name
    device: Uuid
    mode: DrainMode


@registry.event("device", "assignment-changed", by_service(SourceKind.POOLS))
class DeviceAssignmentChanged(Payload):
    """Which pool the GPUDevice named by the subject belongs to from now on; None if to none.

    `pool` is the id of the `pool` aggregate. `Pending` waits for the node's agent to set the card up, `Unassigning` for
    it to report that nothing holds the card any more. `automatic` means that the pool took it, and not a person. With
    an `evacuation`, which only `Unassigning` has, pods leave the card until the next change of its assignment.
    """

    pool: Name | None = None
    phase: Literal["Pending", "Assigned", "Unassigning"] | None = None
    reason: Name
    message: Text = ""
    automatic: bool = False
    evacuation: Evacuation | None = None


@registry.event("device", "pool-applied", by_agents(DropClass.ONCE, Authority.OWN_DEVICE, judged_since=1))
class DevicePoolApplied(Payload):
    """The agent set up the GPUDevice for a pool; `partitions` counts its instances of the pool's MIG profile."""

    pool: Name
    partitions: Count | None = None


@registry.event("device", "pool-refused", by_agents(DropClass.ONCE, Authority.OWN_DEVICE, judged_since=1))
class DevicePoolRefused(Payload):
    """The agent could not set up the GPUDevice for a pool."""

    pool: Name
    reason: Name
    message: Text = ""


@registry.event("device", "pool-released", by_agents(DropClass.ONCE, Authority.OWN_DEVICE, judged_since=1))
class DevicePoolReleased(Payload):
    """The agent released the GPUDevice from a pool: nothing holds it, and nothing is left of its setup."""

    pool: Name


class JudgedReport(Payload):
    """What the agent of `node` reported of the device named by the subject: an event's id, type, epoch and number."""

    node: Name
    report: ReportId
    type: ReportId
    epoch: Epoch
    number: Number


@registry.event("device", "report-accepted", by_service(SourceKind.INVENTORY))
class DeviceReportAccepted(JudgedReport):
    """The report counts: the device is on the node whose agent sent it, or nobody else has it. `data` is the report's.

    The event has the time of the report, and folds take it for the report itself.
    """

    data: dict[str, Any]


@registry.event("device", "report-rejected", by_service(SourceKind.INVENTORY))
class DeviceReportRejected(JudgedReport):
    """The report does not count: the device is on another node, `located_on`. Of a survey this concerns the one card.

    `last_of_hour`: so many reports of this agent were rejected within the hour that no further one of it is recorded.
    """

    located_on: Name
    last_of_hour: bool = False


@registry.event("device", "break-glass-used", BY_ADMISSION, introduced=True)
class DeviceBreakGlassUsed(BreakGlassUse):
    """It was the GPUDevice named by the subject."""

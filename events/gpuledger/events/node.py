"""Nodes: machines that hold GPUs."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gpuledger.events.break_glass import BY_ADMISSION, BreakGlassUse
from gpuledger.events.device import Card, PciAddress, Uuid
from gpuledger.events.payload import NAME_LENGTH_MAX, Count, Name, Number, Payload, Text
from gpuledger.events.publishing import BY_IMPORTERS, BY_WATCHERS, DropClass, SourceKind, by_agents, by_service
from gpuledger.events.registry import registry
from gpuledger.events.settings import SLICES_PER_UNIT_MAX
from gpuledger.events.source import Epoch

PCI_DEVICES_MAX = 1024
CARDS_PER_NODE_MAX = 256
CONDITIONS_MAX = 32
LABELS_MAX = 1024
COMPONENT_PODS_MAX = 64
ENDED_EPOCHS_MAX = 16

LabelValue = Annotated[str, StringConstraints(max_length=NAME_LENGTH_MAX)]
Labels = Annotated[dict[Name, LabelValue], Field(max_length=LABELS_MAX)]

ConditionType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{1,64}$")]


class PciDevice(Payload):
    """A PCI device as Node Feature Discovery lists it; unknown attributes are missing. `index` counts from 0."""

    index: Count
    pci_vendor: Name | None = None
    pci_device: Name | None = None
    pci_class: Name | None = None
    pci_address: Name | None = None


class ComponentPod(Payload):
    """A pod of a component that prepares or monitors GPUs, on its node.

    `step` is the first of its containers, in the order in which they run, that is not done or not ready; `failing`
    means that waiting does not help: it ended with an error, keeps crashing, or has no image. A ready pod has no step.
    """

    component: Literal["validator", "gfd", "dcgm", "dcgm-exporter", "node-agent"]
    pod: Name
    ready: bool
    failing: bool = False
    step: Name | None = None
    reason: Name | None = None
    message: Text = ""


class Condition(Payload):
    """A Kubernetes condition, without its times."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: Name
    message: Text = ""


@registry.event("node", "registered", BY_IMPORTERS)
class NodeRegistered(Payload):
    """A node belongs to the fleet, with these resources. Replaces the previous registration."""

    gpu_count: Count | None = None
    gpu_model: Name | None = None
    cpu_milli: Count | None = None
    memory_mib: Count | None = None


@registry.event("node", "decommissioned", BY_IMPORTERS)
class NodeDecommissioned(Payload):
    """The node has left the fleet."""


@registry.event("node", "observed", BY_WATCHERS)
class NodeObserved(Payload):
    """The Node object exists, with these labels about its GPUs and their management. Replaces the previous event."""

    uid: Name
    labels: Labels = {}
    nfd_version: Name | None = None


@registry.event("node", "gone", BY_WATCHERS)
class NodeGone(Payload):
    """The Node object was deleted."""

    uid: Name | None = None


@registry.event("node", "features-observed", BY_WATCHERS)
class NodeFeaturesObserved(Payload):
    """The content of the node's NodeFeature: PCI devices in their order, and labels. Replaces the previous event."""

    devices: tuple[PciDevice, ...] = Field(default=(), max_length=PCI_DEVICES_MAX)
    labels: Labels = {}
    nfd_version: Name | None = None


@registry.event("node", "features-gone", BY_WATCHERS)
class NodeFeaturesGone(Payload):
    """The node's NodeFeature was deleted."""


@registry.event("node", "devices-observed", by_agents(DropClass.REPEATED))
class NodeDevicesObserved(Payload):
    """Every card that the node's agent finds; cards that are not listed are no longer there.

    `driver_missing` means that no driver answers, so the cards have only those attributes that the PCI bus shows.
    """

    cards: tuple[Card, ...] = Field(default=(), max_length=CARDS_PER_NODE_MAX)
    driver_version: Name | None = None
    cuda_version: Name | None = None
    driver_missing: bool = False


@registry.event("node", "inventory-changed", by_service(SourceKind.INVENTORY))
class NodeInventoryChanged(Payload):
    """The node's inventory from now on: whether it has devices, and all conditions of the inventory."""

    present: bool
    conditions: tuple[Condition, ...] = Field(default=(), max_length=CONDITIONS_MAX)


@registry.event("node", "inventory-withdrawn", by_service(SourceKind.INVENTORY))
class NodeInventoryWithdrawn(Payload):
    """The node is gone, and its inventory with it."""


@registry.event("node", "labelled", BY_WATCHERS)
class NodeLabelled(Payload):
    """All labels of the Node object, for the node selectors of slices. Replaces the previous event."""

    uid: Name
    labels: Labels = {}


@registry.event("node", "unlabelled", BY_WATCHERS)
class NodeUnlabelled(Payload):
    """The Node object was deleted, and its labels with it."""

    uid: Name | None = None


@registry.event("node", "components-observed", BY_WATCHERS)
class NodeComponentsObserved(Payload):
    """The pods of components on the node; empty if there are none. Replaces the previous event."""

    pods: tuple[ComponentPod, ...] = Field(default=(), max_length=COMPONENT_PODS_MAX)


@registry.event("node", "monitoring-observed", by_agents(DropClass.REPEATED))
class NodeMonitoringObserved(Payload):
    """A scrape of the node's dcgm-exporter, which renewed its metrics at `updated_at`.

    That is the metric `dcgm_exporter_last_update_time_seconds` where a build has it, otherwise when the agent saw the
    samples of DCGM change. `fresh` means that this was within the last two minutes. The agent records the first scrapes
    in a row that agree, and is then silent until one differs.
    """

    fresh: bool
    updated_at: AwareDatetime | None = None


class WantedDevice(Payload):
    """A device that belongs to a pool, and how the node's agent must set it up.

    `resource` is the extended resource of its units. `releasing` means that the device leaves the pool: the agent stops
    offering it, and releases it once nothing holds it. The agent reports the result again whenever `asked_at` changes.
    """

    device: Name
    uuid: Uuid | None = None
    pci_address: PciAddress | None = None
    pool: Name
    resource: Name
    unit: Literal["Card", "MIG"]
    mig_profile: Name | None = None
    slices_per_unit: Annotated[int, Field(ge=1, le=SLICES_PER_UNIT_MAX)] = 1
    releasing: bool = False
    asked_at: AwareDatetime


@registry.event("node", "devices-wanted", by_service(SourceKind.POOLS))
class NodeDevicesWanted(Payload):
    """All devices of the node that belong to pools, and how to set them up. Replaces the previous event."""

    devices: Annotated[tuple[WantedDevice, ...], Field(max_length=CARDS_PER_NODE_MAX)] = ()


class EndedEpoch(Payload):
    """An epoch that the source will not continue, and the last number that it gave out there; 0 if none."""

    epoch: Epoch
    last: Count


@registry.event("node", "agent-started", by_agents(DropClass.ONCE))
class NodeAgentStarted(Payload):
    """The node's agent began to record, in this epoch.

    `clean` means that its last run ended in an orderly way, with all its events recorded or kept; otherwise nobody may
    have heard some reports of the hardware. `durable` means that events are on disk before they are sent; otherwise
    events that were not sent yet are lost with the process. `ended` are the epochs that ended since the agent last
    announced one, as far as it knows them; the length of an epoch that it leaves out is unknown.
    """

    version: Name
    hardware: Name
    clean: bool
    durable: bool
    ended: Annotated[tuple[EndedEpoch, ...], Field(max_length=ENDED_EPOCHS_MAX)] = ()


@registry.event("node", "events-dropped", by_agents(DropClass.NEVER))
class NodeEventsDropped(Payload):
    """The agent had to drop events that it had numbered in `epoch`; they are lost for good.

    `first` and `last` are the lowest and the highest of their numbers; not all between them were dropped.
    """

    epoch: Epoch
    count: Number
    first: Number
    last: Number
    reason: Name


@registry.event("node", "clock-jumped", by_agents(DropClass.ORDINARY))
class NodeClockJumped(Payload):
    """The node's clock was set forward by `seconds`, or back if that is negative.

    The agent's events still keep their order: none has an earlier time than the one before it, unless the clock was
    more than a day ahead.
    """

    seconds: float


@registry.event("node", "bootstrap-changed", by_service(SourceKind.BOOTSTRAP))
class NodeBootstrapChanged(Payload):
    """The state of the node's preparation from now on: its phase, and all conditions of the preparation."""

    phase: Literal["Disabled", "Validating", "GFD", "Monitoring", "Ready", "ValidatingFailed"]
    conditions: tuple[Condition, ...] = Field(default=(), max_length=CONDITIONS_MAX)


@registry.event("node", "bootstrap-withdrawn", by_service(SourceKind.BOOTSTRAP))
class NodeBootstrapWithdrawn(Payload):
    """Nothing is left to prepare: the node's inventory was withdrawn."""


@registry.event("node", "bootstrap-waited", by_service(SourceKind.BOOTSTRAP))
class NodeBootstrapWaited(Payload):
    """A time limit of the preparation has passed: nothing about the component on the node changed since `since`.

    Time alone leaves no trace in the log, so this event records it before anything follows from it. A validator, GPU
    feature discovery, monitoring (`dcgm`) or a node-agent was not ready all that time; an exporter was, and the agent
    reported nothing to the contrary.
    """

    component: Literal["validator", "gfd", "dcgm", "node-agent", "dcgm-exporter"]
    since: AwareDatetime


@registry.event("node", "break-glass-used", BY_ADMISSION, introduced=True)
class NodeBreakGlassUsed(BreakGlassUse):
    """It was the GPUNodeState of the node."""

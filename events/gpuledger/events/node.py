"""Nodes: machines that hold GPUs."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

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

LabelValue = Annotated[str, StringConstraints(max_length=NAME_LENGTH_MAX)]
Labels = Annotated[dict[Name, LabelValue], Field(max_length=LABELS_MAX)]

ConditionType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{1,64}$")]


class PciDevice(Payload):
    """A PCI device as Node Feature Discovery shows it; what it does not say is missing. `index` counts from 0."""

    index: Count
    pci_vendor: Name | None = None
    pci_device: Name | None = None
    pci_class: Name | None = None
    pci_address: Name | None = None


class ComponentPod(Payload):
    """A pod of what prepares GPUs and watches over them, on its node.

    `step` is the first of its containers, in the order in which they run, that is not done or not ready; `failing` says
    that it will not get there by itself: it ended badly, keeps crashing, or has no image. A ready pod has no step.
    """

    component: Literal["validator", "gfd", "dcgm", "dcgm-exporter", "node-agent"]
    pod: Name
    ready: bool
    failing: bool = False
    step: Name | None = None
    reason: Name | None = None
    message: Text = ""


class Condition(Payload):
    """A condition in the sense of Kubernetes, without its times."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"]
    reason: Name
    message: Text = ""


@registry.event("node", "registered", BY_IMPORTERS)
class NodeRegistered(Payload):
    """A node is part of the fleet, with these resources; a later one replaces what was known."""

    gpu_count: Count | None = None
    gpu_model: Name | None = None
    cpu_milli: Count | None = None
    memory_mib: Count | None = None


@registry.event("node", "decommissioned", BY_IMPORTERS)
class NodeDecommissioned(Payload):
    """The node has left the fleet."""


@registry.event("node", "observed", BY_WATCHERS)
class NodeObserved(Payload):
    """The Node object exists, with these labels that tell of its GPUs or of their management; it replaces the last."""

    uid: Name
    labels: Labels = {}
    nfd_version: Name | None = None


@registry.event("node", "gone", BY_WATCHERS)
class NodeGone(Payload):
    """The Node object was deleted."""

    uid: Name | None = None


@registry.event("node", "features-observed", BY_WATCHERS)
class NodeFeaturesObserved(Payload):
    """What the node's NodeFeature says: its PCI devices in their order, and labels; it replaces the last."""

    devices: tuple[PciDevice, ...] = Field(default=(), max_length=PCI_DEVICES_MAX)
    labels: Labels = {}
    nfd_version: Name | None = None


@registry.event("node", "features-gone", BY_WATCHERS)
class NodeFeaturesGone(Payload):
    """The node's NodeFeature was deleted."""


@registry.event("node", "devices-observed", by_agents(DropClass.REPEATED))
class NodeDevicesObserved(Payload):
    """Every card that the node's agent sees; one that is not among them is not seen any more.

    `driver_missing` says that no driver answers, so that only what the PCI bus shows is told of the cards.
    """

    cards: tuple[Card, ...] = Field(default=(), max_length=CARDS_PER_NODE_MAX)
    driver_version: Name | None = None
    cuda_version: Name | None = None
    driver_missing: bool = False


@registry.event("node", "inventory-changed", by_service(SourceKind.INVENTORY))
class NodeInventoryChanged(Payload):
    """What holds for the node's inventory from now on: whether it has devices, and these conditions, all of ours."""

    present: bool
    conditions: tuple[Condition, ...] = Field(default=(), max_length=CONDITIONS_MAX)


@registry.event("node", "inventory-withdrawn", by_service(SourceKind.INVENTORY))
class NodeInventoryWithdrawn(Payload):
    """The node is gone, and what was kept of its inventory goes with it."""


@registry.event("node", "labelled", BY_WATCHERS)
class NodeLabelled(Payload):
    """All of the Node object's labels, which node selectors of slices ask for; it replaces the last."""

    uid: Name
    labels: Labels = {}


@registry.event("node", "unlabelled", BY_WATCHERS)
class NodeUnlabelled(Payload):
    """The Node object was deleted, and its labels with it."""

    uid: Name | None = None


@registry.event("node", "components-observed", BY_WATCHERS)
class NodeComponentsObserved(Payload):
    """The pods of the components on the node; it replaces the last, and empty says that there are none."""

    pods: tuple[ComponentPod, ...] = Field(default=(), max_length=COMPONENT_PODS_MAX)


@registry.event("node", "monitoring-observed", by_agents(DropClass.REPEATED))
class NodeMonitoringObserved(Payload):
    """A look at the metric `dcgm_exporter_last_update_time_seconds`, which said `updated_at`.

    `fresh` says that it moved on within the last two minutes. The agent tells each of the first looks in a row that
    agree, and each after something changed; from then on it is silent until the next change.
    """

    fresh: bool
    updated_at: AwareDatetime | None = None


class WantedDevice(Payload):
    """A device that a pool has, and how the node's agent is to set it up.

    `resource` is the extended resource whose units it makes. `releasing` says that the device is to leave the pool: it
    is offered no more, and taken back once nothing holds it. What the agent did is told anew whenever `asked_at`
    differs from the last.
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
    """Which of the node's devices pools have, and how they are to be set up: all of them; it replaces the last."""

    devices: Annotated[tuple[WantedDevice, ...], Field(max_length=CARDS_PER_NODE_MAX)] = ()


@registry.event("node", "agent-started", by_agents(DropClass.ONCE))
class NodeAgentStarted(Payload):
    """The node's agent began to record, in this epoch.

    `clean` says that it had ended by itself before, with all of what it knew recorded or kept; where it did not, the
    hardware may have said something that nobody heard. `durable` says that what it finds out is on disk before it is
    sent; where it is not, what was not sent yet goes with the process.
    """

    version: Name
    hardware: Name
    clean: bool
    durable: bool


@registry.event("node", "events-dropped", by_agents(DropClass.NEVER))
class NodeEventsDropped(Payload):
    """The agent had to drop events that it had numbered in `epoch`, and which nobody will ever see.

    `first` and `last` are the lowest and the highest of their numbers; not all between them were dropped.
    """

    epoch: Epoch
    count: Number
    first: Number
    last: Number
    reason: Name


@registry.event("node", "clock-jumped", by_agents(DropClass.ORDINARY))
class NodeClockJumped(Payload):
    """The node's clock was set: it went `seconds` further than time did, or back where that is negative.

    The agent's events keep their order all the same: none is told for an earlier time than the one before it, unless
    the clock was more than a day ahead.
    """

    seconds: float


@registry.event("node", "bootstrap-changed", by_service(SourceKind.BOOTSTRAP))
class NodeBootstrapChanged(Payload):
    """How far the node's preparation is from now on: its phase, and all conditions that the preparation keeps."""

    phase: Literal["Disabled", "Validating", "GFD", "Monitoring", "Ready", "ValidatingFailed"]
    conditions: tuple[Condition, ...] = Field(default=(), max_length=CONDITIONS_MAX)


@registry.event("node", "bootstrap-withdrawn", by_service(SourceKind.BOOTSTRAP))
class NodeBootstrapWithdrawn(Payload):
    """Nothing is left to prepare: the node's inventory was withdrawn."""


@registry.event("node", "bootstrap-waited", by_service(SourceKind.BOOTSTRAP))
class NodeBootstrapWaited(Payload):
    """The preparation waited for as long as it may: nothing changed about the component on the node since then.

    Time alone leaves no trace in the log, so that its passing is recorded before anything follows from it. A validator
    or a node-agent was not ready all that time; an exporter was, and the agent had nothing to say against it.
    """

    component: Literal["validator", "node-agent", "dcgm-exporter"]
    since: AwareDatetime

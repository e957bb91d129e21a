"""Maintenance of nodes: who wants a node set aside, what is decided of it, and what became of that on the Node.

Requests are facts of their owners. The service `maintenance` merges them into one desired isolation of a node, which
is an intent; the service `nodewriter` alone writes it to the Node, and records the outcome. What they want drained is
an intent of its own, because it takes long: `nodewriter` evicts, and records how far it is.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gpuledger.events.drain_mode import DrainMode
from gpuledger.events.node import LabelValue
from gpuledger.events.payload import Count, Name, Payload, Text
from gpuledger.events.publishing import Authority, PublishRule, SourceKind, by_service
from gpuledger.events.registry import registry

OWNERS_MAX = 64
"""How many owners' requests are merged into the isolation of one node, the first ones by name."""

TAINTS_PER_REQUEST_MAX = 16
LABELS_PER_REQUEST_MAX = 16
MERGED_MAX = 256
"""How many taints, and how many labels, are put on one node for all owners; with names of any length, one event."""

TAINT_VALUE_MAX = 63

NAMESPACE_MODES_MAX = 16
"""How many patterns of namespaces a drain may have."""

DRAIN_TIMEOUT_DEFAULT_S = 3600
DRAIN_TIMEOUT_MAX_S = 7 * 24 * 3600

DRAINED_DEVICES_MAX = 64
"""How many devices of a node a drain may name."""

PODS_LISTED_MAX = 16
"""How many of the pods that are left an event about a drain names, the first ones by namespace and name."""

BY_REQUESTERS = PublishRule((SourceKind.OPERATORS, SourceKind.HEALTH, SourceKind.ROLLOUT), Authority.OWN_SOURCE)
"""Who may ask for the maintenance of a node."""

_BY_DECIDER = by_service(SourceKind.MAINTENANCE)
_BY_WRITER = by_service(SourceKind.NODEWRITER)

EVENT_ID_LENGTH_MAX = 1024
"""As long as envelopes take them: a source of the edge chooses its ids, and a decision names its cause."""

EventId = Annotated[str, StringConstraints(min_length=1, max_length=EVENT_ID_LENGTH_MAX)]
TaintValue = Annotated[str, StringConstraints(max_length=TAINT_VALUE_MAX)]


class NodeTaint(Payload):
    """A taint of a Node. Kubernetes tells taints apart by key and effect."""

    key: Name
    value: TaintValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class NamespaceMode(Payload):
    """The mode for the namespaces that match a pattern, such as `team-*`."""

    namespaces: Name
    mode: DrainMode


class Drain(Payload):
    """How pods leave a node: in the mode of the first pattern that their namespace matches, else in `mode`.

    `timeout_s` counts from the request on. After it, pods of `DeleteAfterTimeout` are evicted, and after as long again
    deleted where a disruption budget has kept them; that counts from the drain's first report where it came late. With
    `devices`, which are UUIDs of cards or MIG instances, only pods that hold one of them leave, and the node need not
    be cordoned.
    """

    mode: DrainMode = "AllowCompletion"
    namespaces: Annotated[tuple[NamespaceMode, ...], Field(max_length=NAMESPACE_MODES_MAX)] = ()
    timeout_s: Annotated[int, Field(ge=1, le=DRAIN_TIMEOUT_MAX_S)] = DRAIN_TIMEOUT_DEFAULT_S
    devices: Annotated[tuple[Name, ...], Field(max_length=DRAINED_DEVICES_MAX)] = ()


@registry.event("node", "maintenance-requested", BY_REQUESTERS, introduced=True)
class NodeMaintenanceRequested(Payload):
    """An owner wants the node set aside. Replaces the owner's previous request about the node.

    `owner` is who asks, such as `operators/eva`; `reason` is one word or a short phrase, `message` has the details.
    `cordon` keeps new pods away; taints and labels are put on the Node unless it has them already. The request ends
    with its release, or at `expires`. `rules` is the version of the rules that led to it, where rules did. Where it has
    a `drain`, pods leave the node, which is cordoned for that in any case, but where the drain names devices.
    """

    owner: Name
    reason: Name
    message: Text = ""
    cordon: bool = True
    taints: Annotated[tuple[NodeTaint, ...], Field(max_length=TAINTS_PER_REQUEST_MAX)] = ()
    labels: Annotated[dict[Name, LabelValue], Field(max_length=LABELS_PER_REQUEST_MAX)] = {}
    expires: AwareDatetime | None = None
    rules: Name | None = None
    drain: Drain | None = None


@registry.event("node", "maintenance-released", BY_REQUESTERS, introduced=True)
class NodeMaintenanceReleased(Payload):
    """The owner no longer needs the node set aside."""

    owner: Name
    reason: Name


@registry.event("node", "maintenance-expired", _BY_DECIDER, introduced=True)
class NodeMaintenanceExpired(Payload):
    """The owner's request with this end is over, because nobody renewed it in time."""

    owner: Name
    expires: AwareDatetime


class Isolation(Payload):
    """How a node is set aside: whether it is cordoned, and the taints and labels that are put on it."""

    unschedulable: bool = False
    taints: Annotated[tuple[NodeTaint, ...], Field(max_length=MERGED_MAX)] = ()
    labels: Annotated[dict[Name, LabelValue], Field(max_length=MERGED_MAX)] = {}

    def is_none(self) -> bool:
        """Whether nothing sets the node aside."""
        return not (self.unschedulable or self.taints or self.labels)


@registry.event("node", "isolation-changed", _BY_DECIDER, introduced=True)
class NodeIsolationChanged(Payload):
    """An intent: from now on the Node with this uid is to be set aside so, for these owners.

    An isolation that says nothing gives the Node back.
    """

    uid: Name
    isolation: Isolation
    owners: Annotated[tuple[Name, ...], Field(max_length=OWNERS_MAX)] = ()


@registry.event("node", "isolation-applied", _BY_WRITER, introduced=True)
class NodeIsolationApplied(Payload):
    """An outcome: the Node is as the intent says.

    `written` means that it had to be changed for that. `was` is what it had without us: that stays when the node is
    given back, and of what the intent names it is all that is not ours.
    """

    intent: EventId
    written: bool
    was: Isolation = Isolation.model_construct()


@registry.event("node", "isolation-failed", _BY_WRITER, introduced=True)
class NodeIsolationFailed(Payload):
    """An outcome: the API server refuses what the intent says; somebody has to look at it, and ask again."""

    intent: EventId
    reason: Name
    message: Text = ""


@registry.event("node", "isolation-superseded", _BY_WRITER, introduced=True)
class NodeIsolationSuperseded(Payload):
    """An outcome: the intent was not carried out, and will not be.

    `Newer`: another one about the node came after it. `NodeGone`: the Node with its uid is gone. `Expired`: it was too
    old by the time that it could be carried out. `Imported`: it is history.
    """

    intent: EventId
    reason: Literal["Newer", "NodeGone", "Expired", "Imported"]
    message: Text = ""


class OwnedDrain(Payload):
    """What one owner wants drained, since its request."""

    owner: Name
    since: AwareDatetime
    drain: Drain


@registry.event("node", "drain-changed", _BY_DECIDER, introduced=True)
class NodeDrainChanged(Payload):
    """An intent: from now on pods leave the Node with this uid so. None in `drains` cancels the drain before it.

    Each drain is in force by itself: a pod is evicted as soon as one of them says so.
    """

    uid: Name
    drains: Annotated[tuple[OwnedDrain, ...], Field(max_length=OWNERS_MAX)] = ()


class LeavingPod(Payload):
    """A pod that is to leave the node and is there; `state` says what it waits for."""

    namespace: Name
    pod: Name
    state: Text


class DrainState(Payload):
    """What every event about a drain says: how many pods are `left`, and the first of them.

    `stays` are the first pods that no drain touches because of their namespace, such as gpuledger's own, and those of
    DaemonSets and mirror pods that hold a device that is drained.
    """

    intent: EventId
    left: Count
    pods: Annotated[tuple[LeavingPod, ...], Field(max_length=PODS_LISTED_MAX)] = ()
    stays: Annotated[tuple[LeavingPod, ...], Field(max_length=PODS_LISTED_MAX)] = ()


@registry.event("node", "drain-progressed", _BY_WRITER, introduced=True)
class NodeDrainProgressed(DrainState):
    """The drain goes on. The first one of an intent says that it has begun."""


@registry.event("node", "drain-timed-out", _BY_WRITER, introduced=True)
class NodeDrainTimedOut(DrainState):
    """Pods are left when they should have gone. The drain goes on."""


@registry.event("node", "pod-deletion-requested", _BY_WRITER, introduced=True)
class NodePodDeletionRequested(Payload):
    """The pod with this uid is deleted, with its own grace period, because its eviction was refused for too long.

    `blocked` says which disruption budget refused it last. It is recorded before the request, and once for each pod.
    """

    intent: EventId
    namespace: Name
    pod: Name
    uid: Name
    blocked: Text


@registry.event("node", "drain-finished", _BY_WRITER, introduced=True)
class NodeDrainFinished(Payload):
    """An outcome: no pod is left that had to leave. `stays` is as in `DrainState`."""

    intent: EventId
    stays: Annotated[tuple[LeavingPod, ...], Field(max_length=PODS_LISTED_MAX)] = ()


@registry.event("node", "drain-superseded", _BY_WRITER, introduced=True)
class NodeDrainSuperseded(Payload):
    """An outcome: nothing is evicted for the intent any more.

    `NotCordoned`: somebody uncordoned the Node, or it could not be cordoned; that ends the drains of whole nodes alone.
    The other reasons are those of `NodeIsolationSuperseded`.
    """

    intent: EventId
    reason: Literal["Newer", "NodeGone", "Expired", "Imported", "NotCordoned"]
    message: Text = ""

"""Maintenance of nodes: who wants a node set aside, what is decided of it, and what became of that on the Node.

Requests are facts of their owners. The service `maintenance` merges them into one desired isolation of a node, which
is an intent; the service `nodewriter` alone writes it to the Node, and records the outcome.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from gpuledger.events.node import LabelValue
from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry

OWNERS_MAX = 64
"""How many owners' requests are merged into the isolation of one node, the first ones by name."""

TAINTS_PER_REQUEST_MAX = 16
LABELS_PER_REQUEST_MAX = 16
MERGED_MAX = 256
"""How many taints, and how many labels, are put on one node for all owners; with names of any length, one event."""

TAINT_VALUE_MAX = 63

BY_REQUESTERS = by_service(SourceKind.OPERATORS)
"""Who may ask for the maintenance of a node."""

_BY_DECIDER = by_service(SourceKind.MAINTENANCE)
_BY_WRITER = by_service(SourceKind.NODEWRITER)

EventId = Annotated[str, StringConstraints(min_length=1, max_length=128)]
TaintValue = Annotated[str, StringConstraints(max_length=TAINT_VALUE_MAX)]


class NodeTaint(Payload):
    """A taint of a Node. Kubernetes tells taints apart by key and effect."""

    key: Name
    value: TaintValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@registry.event("node", "maintenance-requested", BY_REQUESTERS, introduced=True)
class NodeMaintenanceRequested(Payload):
    """An owner wants the node set aside. Replaces the owner's previous request about the node.

    `owner` is who asks, such as `operators/eva`; `reason` is one word or a short phrase, `message` has the details.
    `cordon` keeps new pods away; taints and labels are put on the Node unless it has them already. The request ends
    with its release, or at `expires`.
    """

    owner: Name
    reason: Name
    message: Text = ""
    cordon: bool = True
    taints: Annotated[tuple[NodeTaint, ...], Field(max_length=TAINTS_PER_REQUEST_MAX)] = ()
    labels: Annotated[dict[Name, LabelValue], Field(max_length=LABELS_PER_REQUEST_MAX)] = {}
    expires: AwareDatetime | None = None


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

"""The rows of the remediation of nodes: documents in force, Nodes, faults, remediations, and where a person looks."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.domain.health.codes import CodeTimes, codes_of_text, codes_text
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import TableSpec
from gpuledger.events.maintenance import OwnedDrain

WAITING: Final = "waiting"
"""The node is not ready for a remedy of it yet, or a remedy is under way that leaves no room for another."""

PENDING: Final = "pending"
"""The node is ready, and the service has still to come to it."""

TREATED: Final = "treated"
"""A remediation is for it."""

STALE: Final = "stale"
"""It was too old when the service came to it; another report may be fresh."""

ATTENTION: Final = "attention"
"""A person has to look."""

HEALTHY: Final = "healthy"
"""It is over; the row keeps reports of before from bringing it back."""

REQUESTED: Final = "requested"
"""The object is to be created."""

CREATED: Final = "created"
"""The object is there."""

OPEN: Final = (REQUESTED, CREATED)
"""The states of a remediation without an outcome."""

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
TIMED_OUT: Final = "timed-out"
REFUSED: Final = "refused"
SUPERSEDED: Final = "superseded"

RETRIED: Final = "Retried"
"""The reason of a remediation that is over and counts as no attempt any more: an operator has it tried again."""


DRAIN_REQUESTED: Final = "requested"
DRAINING: Final = "draining"
DRAINED: Final = "drained"
GIVEN_UP: Final = "given-up"
"""How far the drain of a request is: an intent follows from it, has its pods leave, and has ended one way or the other.

The last one also stands for the intent to drain a node of which nothing came, and which nobody has asked for again.
"""


class RemediationDocument(NamedTuple):
    """A document in force: our remedies, or the rules of quarantine; `document` is its canonical JSON."""

    id: str
    digest: str
    file: str
    applied_at: datetime
    event: str
    document: str


class RemediationNode(NamedTuple):
    """The Node of a name, and how far it is set aside; `labels` is a JSON object.

    `isolation` is the newest intent about how it is set aside, and `keeps_pods_away` whether that cordons or taints it.
    `drain` is the newest intent to drain it, empty where there is none, `GIVEN_UP` where that came to nothing.
    """

    node: str
    uid: str | None
    labels: str
    observed_at: datetime
    isolation: str
    keeps_pods_away: bool
    is_applied: bool
    drain: str
    is_drained: bool

    def ended_at(self) -> datetime | None:
        """Since when there is no such Node; None while there is."""
        return self.observed_at if self.uid is None else None

    def is_aside(self) -> bool:
        """Whether it is set aside, and no pod is left that has to leave."""
        is_applied = self.uid is not None and self.keeps_pods_away and self.is_applied
        return is_applied and not self.is_draining()

    def is_draining(self) -> bool:
        """Whether pods have still to leave."""
        return bool(self.drain) and not self.is_drained

    def is_given_up(self) -> bool:
        """Whether pods have still to leave, and nobody has them leave."""
        return self.drain == GIVEN_UP


class QuarantinedNode(NamedTuple):
    """A request in force of the ruleset about the node.

    `devices` is a JSON object of its drain: `devices` are those that it drains alone, `state` says how far it is. It is
    empty where it drains nothing. Rows that serve while this build makes its own may have the list of the devices.
    """

    node: str
    ruleset: str
    requested_at: datetime
    devices: str

    def _drain(self) -> Mapping[str, Any]:
        found = orjson.loads(self.devices)
        return found if isinstance(found, dict) else {"devices": found or []}

    def drained_devices(self) -> list[str]:
        """The devices whose pods leave; none where it drains the whole node, or nothing."""
        names: list[str] = self._drain().get("devices", [])
        return names

    def drain_state(self) -> str | None:
        """How far its drain is; None where it drains nothing."""
        state: str | None = self._drain().get("state")
        return state

    def awaits_drain(self) -> bool:
        """Whether pods have still to leave for it."""
        return self.drain_state() not in (None, DRAINED)

    def with_drain(self, state: str) -> "QuarantinedNode":
        """The request once its drain is so far."""
        return self._replace(devices=drain_text(self.drained_devices(), state))

    def is_covered_by(self, drains: Iterable[OwnedDrain]) -> bool:
        """Whether one of these drains has all pods leave that have to leave for it."""
        devices = set(self.drained_devices())
        return any(not one.drain.devices or (devices and devices <= set(one.drain.devices)) for one in drains)


class RemediationFault(NamedTuple):
    """Something unhealthy on a node for which there is a remedy, until it is healthy again.

    `rulesets`, a JSON array, are those of quarantine that match it; `is_accepted`: the node was set aside for it while
    it was fresh. `report` is the first report of it. `remediation` is the latest one for it, `remedy` the name of the
    next one where that is no longer the one of its action. While it is pending, `cause` is what made it ready, at
    `ready_at`. `codes` is a JSON object of the error codes that stand, each with the time of its latest report, and
    `cleared` one of those that were cleared, each with the time of that (an empty code: all were).
    """

    node: str
    monitor: str
    check_name: str
    entity: str
    alias: str
    device: str
    report: str
    action: str
    custom_action: str
    rulesets: str
    is_accepted: bool
    changed_at: datetime
    observed_at: datetime
    recorded_at: datetime
    state: str
    remedy: str
    remediation: str
    cause: str
    ready_at: datetime | None
    codes: str
    cleared: str

    def code_times(self) -> CodeTimes:
        """The error codes that stand."""
        return codes_of_text(self.codes)

    def cleared_times(self) -> CodeTimes:
        """When error codes were cleared."""
        return codes_of_text(self.cleared)

    def with_codes(self, codes: CodeTimes) -> "RemediationFault":
        """The fault with other codes standing."""
        return self._replace(codes=codes_text(codes))

    def ruleset_names(self) -> list[str]:
        """The rulesets of quarantine that match it."""
        names: list[str] = orjson.loads(self.rulesets)
        return names

    def ended_at(self) -> datetime | None:
        """Since when it is healthy; None before."""
        return self.changed_at if self.state == HEALTHY else None


class Remediation(NamedTuple):
    """A remedy of a node, from its request on; `intent`, its id, is that of the event, `faults` a JSON array."""

    intent: str
    node: str
    uid: str
    remedy: str
    remedy_group: str
    device: str
    action: str
    attempt: int
    follows: str
    faults: str
    api_version: str
    kind: str
    namespace: str
    name: str
    state: str
    requested_at: datetime
    created_at: datetime | None
    ended_at: datetime | None
    object_uid: str
    reason: str
    message: str

    def is_open(self) -> bool:
        """Whether it has no outcome yet."""
        return self.state in OPEN


NO_GROUP: Final = ""
"""Stands for the drain that all remedies of a node wait for, whatever another group needs."""


class RemediationAttention(NamedTuple):
    """A person has to look at a node because of a group of remedies, or (`NO_GROUP`) of its drain."""

    node: str
    remedy_group: str
    remedy: str
    reason: str
    message: str
    since: datetime


def drain_text(devices: Sequence[str], state: str) -> str:
    """The drain of a request as its row has it."""
    return json_text({"devices": list(devices), "state": state})


NOTHING_DRAINED: Final = json_text({})

DOCUMENT = TableSpec("remediation_document", RemediationDocument, ("id",))
NODE = TableSpec("remediation_node", RemediationNode, ("node",))
QUARANTINED = TableSpec("remediation_quarantined", QuarantinedNode, ("node", "ruleset"))
FAULT = TableSpec("remediation_fault", RemediationFault, ("node", "monitor", "check_name", "entity"))
REMEDIATION = TableSpec("remediation", Remediation, ("intent",))
ATTENTION_OF = TableSpec("remediation_attention", RemediationAttention, ("node", "remedy_group"))

SPECS: tuple[TableSpec[Any], ...] = (DOCUMENT, NODE, QUARANTINED, FAULT, REMEDIATION, ATTENTION_OF)

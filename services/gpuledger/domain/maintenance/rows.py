"""The rows of the maintenance of nodes: who asks for it, which Nodes exist, and what was decided and done."""

from datetime import datetime
from typing import Any, NamedTuple

import orjson

from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import TableSpec
from gpuledger.events.maintenance import Isolation, OwnedDrain


def isolation_text(isolation: Isolation) -> str:
    """An isolation as its row has it, a JSON object; equal ones have the same text."""
    return json_text(isolation.model_dump(mode="json"))


def drains_text(drains: tuple[OwnedDrain, ...]) -> str:
    """Drains as their row has them, a JSON array; equal ones have the same text."""
    return json_text([one.model_dump(mode="json") for one in drains])


class MaintenanceRequest(NamedTuple):
    """An owner's latest request about a node, which ends with `ended_at`: its release, or its expiry.

    `changed_at` is the time of the latest fact about it, `isolation` and `drain` what it wants, as JSON objects; an
    empty `drain` asks for none. `decided_at` is when it was first decided on; None: not since it was made. `standing`
    is the isolation of this owner that was applied last, a JSON object. One that `has_lapsed` came to nothing, and adds
    no more than that until its owner makes it again. `drain_result` is `finished` or `superseded` once its drain is
    over.
    """

    node: str
    owner: str
    changed_at: datetime
    requested_at: datetime | None
    reason: str
    message: str
    isolation: str
    expires_at: datetime | None
    ended_at: datetime | None
    decided_at: datetime | None
    standing: str
    has_lapsed: bool
    drain: str
    drain_result: str

    def contribution(self) -> str:
        """The isolation that it adds to that of its node."""
        return self.standing if self.has_lapsed else self.isolation

    def is_pending(self) -> bool:
        """Whether it was decided on, and nothing has come of that yet."""
        return self.decided_at is not None and not self.has_lapsed and self.standing != self.isolation

    def wants_drain(self) -> bool:
        """Whether a drain of its is to begin, or goes on."""
        return self.drain != NO_DRAIN and not self.drain_result and not self.has_lapsed

    def drained_devices(self) -> tuple[str, ...]:
        """The devices whose pods are to leave; none: those of the whole node, or nobody's."""
        return () if self.drain == NO_DRAIN else tuple(orjson.loads(self.drain).get("devices") or ())


class MaintenanceNode(NamedTuple):
    """The Node object of a name: its uid (None: there is none), as of the latest fact."""

    node: str
    uid: str | None
    observed_at: datetime


class NodeIsolation(NamedTuple):
    """The newest intent about a node, and its outcome; `result` is None while there is none.

    `intent` is the id of its event, `isolation` and `was` are JSON objects, `owners` is a JSON array. `result` is
    `applied`, `failed` or `superseded`; `was` is what the Node has without us.
    """

    node: str
    uid: str
    intent: str
    changed_at: datetime
    isolation: str
    owners: str
    result: str | None
    reason: str
    message: str
    settled_at: datetime | None
    was: str

    def ended_at(self) -> datetime | None:
        """Since when the node is given back, and nothing is left to do; None before."""
        return self.settled_at if self.isolation == NOT_ISOLATED and self.result == APPLIED else None


class NodeDrain(NamedTuple):
    """The newest intent to drain a node, and how far it is; a node that is not drained has none.

    `drains` is a JSON array, and so is `pods`, the first pods that are left and those that stay. `progress` is empty
    before it has begun, then `draining`, `timed-out`, `finished` or `superseded`. `pods_left` and `pods` are those of
    `reported_at`, which may be a report of the intent before.
    """

    node: str
    uid: str
    intent: str
    changed_at: datetime
    drains: str
    progress: str
    pods_left: int
    pods: str
    reported_at: datetime | None
    reason: str
    message: str

    def is_over(self) -> bool:
        """Whether nothing is done for it any more."""
        return self.progress in (FINISHED, SUPERSEDED)

    def includes(self, request: MaintenanceRequest) -> bool:
        """Whether it was decided for this very request."""
        found = map(OwnedDrain.model_validate, orjson.loads(self.drains))
        return any((one.owner, one.since) == (request.owner, request.requested_at) for one in found)


NOT_ISOLATED = isolation_text(Isolation())
"""The isolation of a node that nobody wants set aside."""

APPLIED, FAILED, SUPERSEDED = "applied", "failed", "superseded"
"""Outcomes of intents."""

NO_DRAIN = ""
"""The drain of a request that asks for none."""

DRAINING, TIMED_OUT, FINISHED = "draining", "timed-out", "finished"
"""How far a drain is; one that is not carried out any more is superseded."""

MAINTENANCE_REQUEST = TableSpec("maintenance_request", MaintenanceRequest, ("node", "owner"))
MAINTENANCE_NODE = TableSpec("maintenance_node", MaintenanceNode, ("node",))
NODE_ISOLATION = TableSpec("node_isolation", NodeIsolation, ("node",))
NODE_DRAIN = TableSpec("node_drain", NodeDrain, ("node",))

SPECS: tuple[TableSpec[Any], ...] = (MAINTENANCE_REQUEST, MAINTENANCE_NODE, NODE_ISOLATION, NODE_DRAIN)

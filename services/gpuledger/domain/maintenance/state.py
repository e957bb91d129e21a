"""The state of the maintenance of nodes, and how the requests about one node are merged. Pure."""

from collections.abc import Iterable
from datetime import datetime

import orjson

from gpuledger.domain.fact import TableState
from gpuledger.domain.maintenance import rows
from gpuledger.domain.table import Table
from gpuledger.domain.tombstones import RowEnds, Tombstones
from gpuledger.events.maintenance import MERGED_MAX, OWNERS_MAX, Drain, Isolation, NodeTaint, OwnedDrain


class Maintenance(TableState):
    """Requests, Nodes and isolations. A fold marks the nodes that a fact may lead to a decision about."""

    def __init__(self) -> None:
        self.request = Table(rows.MAINTENANCE_REQUEST, "node", "owner")
        self.node = Table(rows.MAINTENANCE_NODE)
        self.isolation = Table(rows.NODE_ISOLATION)
        self.drain = Table(rows.NODE_DRAIN)
        self.node_ends = RowEnds(self.node, _gone_at)
        self.isolation_ends = RowEnds(self.isolation, rows.NodeIsolation.ended_at)
        self._request_ends: Tombstones | None = None
        self._touched: dict[str, bool] = {}

    def requests_about(self, node: str) -> list[rows.MaintenanceRequest]:
        """The requests in force about a node, by owner."""
        found = (row for row in self.request.where("node", node) if row.requested_at and row.ended_at is None)
        return sorted(found, key=lambda row: row.owner)

    def touch(self, node: str, *, renews: bool = False) -> None:
        """A decision about the node may be due; `renews`: also where the last one says the same."""
        self._touched[node] = renews or self._touched.get(node, False)

    def take_touched(self) -> dict[str, bool]:
        """The nodes that were touched since the last call, each with whether its decision is to be renewed."""
        touched, self._touched = self._touched, {}
        return touched

    def request_ends(self) -> Tombstones:
        """The ends of requests, those of loaded rows included."""
        if self._request_ends is None:
            self._request_ends = Tombstones()
            for row in self.request.rows.values():
                if row.ended_at is not None:
                    self._request_ends.add((row.node, row.owner), row.ended_at)
        return self._request_ends


def isolation_of(text: str) -> Isolation:
    """An isolation from its row."""
    return Isolation.model_validate(orjson.loads(text))


def merged(requests: Iterable[rows.MaintenanceRequest]) -> Isolation:
    """What the requests want together: cordoned if anybody wants that, and the taints and labels of all.

    Two owners may want a taint or a label with different values; that of the first owner by name holds, so that the
    result does not depend on who asked when. Only the first `OWNERS_MAX` owners bring taints and labels. A request that
    has lapsed brings what stands applied of it.
    """
    ordered = sorted(requests, key=lambda row: row.owner)
    contributions = [row.contribution() for row in ordered]
    desired = [isolation_of(one) for one in contributions if one != rows.NOT_ISOLATED]
    taints: dict[tuple[str, str], NodeTaint] = {}
    labels: dict[str, str] = {}
    for one in desired[:OWNERS_MAX]:
        for taint in one.taints:
            taints.setdefault((taint.key, taint.effect), taint)
        for key, value in one.labels.items():
            labels.setdefault(key, value)
    return Isolation(
        unschedulable=any(one.unschedulable for one in desired),
        taints=tuple(taints[key] for key in sorted(taints)[:MERGED_MAX]),
        labels=dict(sorted(labels.items())[:MERGED_MAX]),
    )


def merged_drains(requests: Iterable[rows.MaintenanceRequest]) -> tuple[OwnedDrain, ...]:
    """What the requests still want drained, by owner; of the first `OWNERS_MAX` owners who want that."""
    ordered = sorted((row for row in requests if row.wants_drain()), key=lambda row: row.owner)[:OWNERS_MAX]
    return tuple(
        OwnedDrain(owner=row.owner, since=row.requested_at, drain=Drain.model_validate(orjson.loads(row.drain)))
        for row in ordered
        if row.requested_at is not None
    )


def _gone_at(row: rows.MaintenanceNode) -> datetime | None:
    return row.observed_at if row.uid is None else None

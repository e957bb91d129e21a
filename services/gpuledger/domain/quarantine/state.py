"""The state of the quarantine of nodes: standing faults, what is requested for them, and the breaker's window. Pure."""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, TypeVar

import orjson

from gpuledger.domain.fact import TableState, is_late
from gpuledger.domain.quarantine import rows
from gpuledger.domain.quarantine.expiries import NodeExpiries, moved
from gpuledger.domain.quarantine.rules import RulesInForce, rules_of
from gpuledger.domain.table import Table
from gpuledger.domain.tombstones import LATE_MAX, RowEnds
from gpuledger.events.quarantine import QUARANTINE

FAULTS_PER_NODE_MAX: Final = 512
"""How many faults of one node are kept, over all rulesets."""

HEALTHY_PER_NODE_MAX: Final = 512
"""How many checks of one node that are healthy again are kept; beyond them, the earliest are forgotten.

As many of its codes that were cleared alone are kept as well.
"""

_H = TypeVar("_H", rows.HealthyCheck, rows.HealthyCode)

OWNER_PREFIX: Final = "health/"
"""How the owners of our requests begin; the ruleset follows."""

FaultKey = tuple[str, str]
"""A node, and the cause by which faults of it are to be assessed."""


class Quarantine(TableState):
    """Rules, Nodes, faults, requests and the breaker. A fold marks nodes where a request may be over."""

    def __init__(self) -> None:
        self.rules_row = Table(rows.RULES)
        self.count = Table(rows.RULESET_COUNT)
        self.node = Table(rows.NODE)
        self.fault = Table(rows.FAULT, "node")
        self.healthy = Table(rows.HEALTHY, "node")
        self.healthy_code = Table(rows.HEALTHY_CODE, "node")
        self.request = Table(rows.REQUEST, "node")
        self.breaker = Table(rows.BREAKER)
        self.node_ends = RowEnds(self.node, rows.QuarantineNode.ended_at)
        self._ends: NodeExpiries | None = None
        self._existing: int | None = None
        self._window: list[tuple[datetime, str]] | None = None
        self._pending: dict[FaultKey, None] | None = None
        self._touched: dict[str, list[rows.NodeFault]] = {}

    def rules(self) -> RulesInForce | None:
        """The rules in force; None before any."""
        row = self.rules_row.get(QUARANTINE)
        return None if row is None else rules_of(row.document)

    def max_event_age(self) -> timedelta:
        """How old a report may be; nothing is fresh without rules."""
        rules = self.rules()
        return timedelta(seconds=-1 if rules is None else rules.document.max_event_age_s)

    def labels_of(self, node: str) -> dict[str, str]:
        """The labels of a Node."""
        row = self.node.get(node)
        labels: dict[str, str] = {} if row is None else orjson.loads(row.labels)
        return labels

    def exists(self, node: str) -> bool:
        """Whether there is a Node of that name."""
        row = self.node.get(node)
        return row is not None and row.uid is not None

    def standing(self, node: str, ruleset: str) -> list[rows.NodeFault]:
        """The faults of a node under a ruleset that nobody has overridden."""
        found = self.fault.where("node", node)
        return [row for row in found if row.ruleset == ruleset and row.state != rows.OVERRIDDEN]

    def accepted(self, node: str, ruleset: str) -> list[rows.NodeFault]:
        """The faults of a node for which a request of the ruleset is in force."""
        return [row for row in self.standing(node, ruleset) if row.state == rows.ACCEPTED]

    def in_force(self, node: str) -> list[rows.QuarantineRequest]:
        """The requests in force about a node, by ruleset."""
        found = [row for row in self.request.where("node", node) if row.ended_at is None]
        return sorted(found, key=lambda row: row.ruleset)

    def is_open(self) -> bool:
        """Whether the breaker is open."""
        row = self.breaker.get(QUARANTINE)
        return row is not None and row.opened_at is not None

    # The nodes that exist, and those that were set aside within the breaker's window.

    def put_node(self, row: rows.QuarantineNode) -> None:
        """Take a Node in, and count it."""
        before = self.node.get(row.node)
        if self._existing is not None:
            self._existing += (row.uid is not None) - (before is not None and before.uid is not None)
        if self._window is not None and (before and before.quarantined_at) != row.quarantined_at:
            moved(self._window, row.node, before and before.quarantined_at, row.quarantined_at)
        self.node.put(row)

    def existing(self) -> int:
        """How many Nodes there are."""
        if self._existing is None:
            self._existing = sum(row.uid is not None for row in self.node.rows.values())
        return self._existing

    def quarantined_with(self, node: str, at: datetime) -> int:
        """How many nodes would have been set aside within the breaker's window, with this one at that time."""
        rules = self.rules()
        assert rules is not None, "a ruleset has matched"
        since = at - timedelta(seconds=rules.document.breaker.window_s)
        if self._window is None:
            self._window = sorted(
                (row.quarantined_at, row.node) for row in self.node.rows.values() if row.quarantined_at is not None
            )
        window = self._window
        row = self.node.get(node)
        is_in = row is not None and row.quarantined_at is not None and row.quarantined_at > since
        return len(window) - bisect_right(window, since, key=lambda one: one[0]) + (not is_in)

    def empty_window(self) -> None:
        """Let the breaker's window begin anew: by the log's order, as clocks of its partitions need not agree."""
        for row in [row for row in self.node.rows.values() if row.quarantined_at is not None]:
            self.put_node(row._replace(quarantined_at=None))

    # What is still to be assessed, and what a fold has touched.

    def pend(self, node: str, cause: str) -> None:
        """Faults of a node wait to be assessed."""
        if self._pending is not None:
            self._pending[node, cause] = None

    def pending(self) -> dict[FaultKey, None]:
        """What waits to be assessed, and perhaps some that no longer does, the first first."""
        if self._pending is None:
            waiting = [row for row in self.fault.rows.values() if row.state == rows.PENDING]
            waiting.sort(key=lambda row: (row.recorded_at, row.node, row.cause))
            self._pending = {(row.node, row.cause): None for row in waiting}
        return self._pending

    def waiting(self, node: str) -> dict[str, list[rows.NodeFault]]:
        """The faults of a node that wait to be assessed, by the cause of that."""
        found: dict[str, list[rows.NodeFault]] = {}
        for row in self.fault.where("node", node):
            if row.state == rows.PENDING:
                found.setdefault(row.cause, []).append(row)
        return found

    def settle(self, faults: list[rows.NodeFault], state: str) -> None:
        """Faults have been assessed."""
        for row in faults:
            self.fault.put(row._replace(state=state))

    def outdate(self, faults: list[rows.NodeFault]) -> None:
        """Faults lead to nothing any more. Those of a Node that does not exist are forgotten: nobody can look at it."""
        for row in faults:
            if self.exists(row.node):
                self.fault.put(row._replace(state=rows.STALE))
            else:
                self.fault.delete(self.fault.key_of(row))

    def touch(self, node: str, *ended: rows.NodeFault) -> None:
        """A request about the node may be over, or about less: these faults have ended."""
        self._touched.setdefault(node, []).extend(ended)

    def take_touched(self) -> Iterator[tuple[str, list[rows.NodeFault]]]:
        """The nodes that were touched since the last call, each with the faults that have ended."""
        touched, self._touched = self._touched, {}
        return iter(touched.items())

    # What is over, until nothing older is to be expected.

    def note_healthy(self, node: str, checks: list[rows.HealthyCheck]) -> None:
        """Checks of a node are healthy, or cards have left it; the earliest are forgotten beyond the bound."""
        self._note(self.healthy, node, checks)

    def note_cleared(self, node: str, codes: list[rows.HealthyCode]) -> None:
        """Codes of checks of a node are cleared; the earliest are forgotten beyond the bound."""
        self._note(self.healthy_code, node, codes)

    def _note(self, table: Table[_H], node: str, healthy: list[_H]) -> None:
        for row in healthy:
            before = table.get(table.key_of(row))
            if before is None or not is_late(before.healthy_at, row.healthy_at):
                table.put(row)
                self.ends().note(node, row.healthy_at)
        excess = len(table.by["node"].get(node)) - HEALTHY_PER_NODE_MAX
        if excess > 0:
            noted = sorted(table.where("node", node), key=lambda one: (one.healthy_at, one))
            for row in noted[:excess]:
                table.delete(table.key_of(row))

    def ends(self) -> NodeExpiries:
        """The earliest end of requests of each node and of what is healthy again, those of loaded rows included."""
        if self._ends is None:
            self._ends = NodeExpiries()
            for request in self.request.rows.values():
                if request.ended_at is not None:
                    self._ends.note(request.node, request.ended_at)
            for check in self.healthy.rows.values():
                self._ends.note(check.node, check.healthy_at)
            for code in self.healthy_code.rows.values():
                self._ends.note(code.node, code.healthy_at)
        return self._ends

    def forget(self, recorded_at: datetime) -> None:
        """Forget the requests and healthy checks that were over long before a fact that was recorded then."""
        ends = self.ends()
        for node in ends.pop(recorded_at - LATE_MAX):
            for request in self.request.where("node", node):
                if request.ended_at is not None and not ends.keeps(node, request.ended_at):
                    self.request.delete(self.request.key_of(request))
            _forget(self.healthy, node, ends)
            _forget(self.healthy_code, node, ends)


def _forget(table: Table[_H], node: str, ends: NodeExpiries) -> None:
    for row in table.where("node", node):
        if not ends.keeps(node, row.healthy_at):
            table.delete(table.key_of(row))

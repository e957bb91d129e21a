"""The state of the remediation of nodes: which faults are ready for a remedy, and what was done about each. Pure."""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta

import orjson

from gpuledger.domain.fact import TableState
from gpuledger.domain.health.codes import codes_text, with_cleared, without_cleared
from gpuledger.domain.quarantine.rows import is_card
from gpuledger.domain.quarantine.rules import RulesInForce, rules_of
from gpuledger.domain.quarantine.state import FAULTS_PER_NODE_MAX
from gpuledger.domain.remediation import rows
from gpuledger.domain.remediation.rules import RemediesInForce, remedies_of
from gpuledger.domain.table import Table
from gpuledger.domain.tombstones import RowEnds, Tombstones
from gpuledger.events.maintenance import OwnedDrain
from gpuledger.events.remediation import REMEDIATION, Remedy

QUARANTINE_DOCUMENT = "quarantine"
"""The id of the row that has the rules of quarantine."""

FaultKey = tuple[str, str]
"""A node, and the cause by which faults of it are to be assessed."""


class Remediations(TableState):
    """Documents, Nodes, faults and remediations. A fold marks nodes about which something may be decided."""

    def __init__(self) -> None:
        self.document = Table(rows.DOCUMENT)
        self.node = Table(rows.NODE)
        self.quarantined = Table(rows.QUARANTINED, "node")
        self.fault = Table(rows.FAULT, "node")
        self.remediation = Table(rows.REMEDIATION, "node")
        self.attention = Table(rows.ATTENTION_OF, "node")
        self.node_ends = RowEnds(self.node, rows.RemediationNode.ended_at)
        self._ends: Tombstones | None = None
        self._fault_ends: Tombstones | None = None
        self._pending: dict[FaultKey, None] | None = None
        self._touched: dict[str, None] = {}

    def remedies(self) -> RemediesInForce | None:
        """The remedies in force; None before any."""
        row = self.document.get(REMEDIATION)
        return None if row is None else remedies_of(row.document)

    def quarantine_rules(self) -> RulesInForce | None:
        """The rules of quarantine in force; None before any."""
        row = self.document.get(QUARANTINE_DOCUMENT)
        return None if row is None else rules_of(row.document)

    def max_event_age(self) -> timedelta:
        """How long ago a node may have become ready for its remedy; nothing is fresh without remedies."""
        remedies = self.remedies()
        return timedelta(seconds=-1 if remedies is None else remedies.document.max_event_age_s)

    def quarantine_age(self) -> timedelta:
        """How old a report may be to set a node aside."""
        rules = self.quarantine_rules()
        return timedelta(seconds=-1 if rules is None else rules.document.max_event_age_s)

    def labels_of(self, node: str) -> dict[str, str]:
        """The labels of a Node."""
        row = self.node.get(node)
        labels: dict[str, str] = {} if row is None else orjson.loads(row.labels)
        return labels

    def standing(self, node: str) -> list[rows.RemediationFault]:
        """The faults of a node that are not over, by their names."""
        return sorted(row for row in self.fault.where("node", node) if row.state != rows.HEALTHY)

    def has_room(self, node: str) -> bool:
        """Whether a fault more of a node is taken in; of those that are over, the earliest makes room for it."""
        found = self.fault.where("node", node)
        if len(found) < FAULTS_PER_NODE_MAX:
            return True
        over = [row for row in found if row.state == rows.HEALTHY]
        if over:
            self.fault.delete(self.fault.key_of(min(over, key=lambda row: (row.changed_at, row))))
        return bool(over)

    def remedy_of(self, fault: rows.RemediationFault) -> Remedy | None:
        """The next remedy of a fault, by the document in force."""
        remedies = self.remedies()
        if remedies is None:
            return None
        found = remedies.by_name.get(fault.remedy)  # Another document need not have it any more.
        return found or remedies.of_action(fault.action, fault.custom_action)

    def open_about(self, node: str) -> list[rows.Remediation]:
        """The remediations of a node without an outcome, the first first."""
        found = (row for row in self.remediation.where("node", node) if row.is_open())
        return sorted(found, key=lambda row: (row.requested_at, row.intent))

    def attempts(self, node: str, since: datetime) -> int:
        """How many remedies of a node were requested after a time, but for those that were never begun.

        Those before an operator asked for another attempt count no more.
        """
        found = (row for row in self.remediation.where("node", node) if row.reason != rows.RETRIED)
        return sum(row.requested_at > since and row.state != rows.SUPERSEDED for row in found)

    def is_quarantined(self, fault: rows.RemediationFault) -> bool:
        """Whether the node is set aside, and drained where that is wanted, for a ruleset that matches the fault."""
        node = self.node.get(fault.node)
        is_set_aside = node is not None and node.is_aside() and not self.is_released(fault.node, [fault])
        return is_set_aside and all(state == rows.DRAINED for state in self._drains_for(fault))

    def is_requested(self, fault: rows.RemediationFault) -> bool:
        """Whether the node is to be set aside for a fault, and each ruleset that has it drained has requested that."""
        requests = [(name, self.quarantined.get((fault.node, name))) for name in fault.ruleset_names()]
        if all(request is None for _, request in requests):
            return False
        return not any(self._awaits_drain(fault, name, request) for name, request in requests)

    def _awaits_drain(self, fault: rows.RemediationFault, ruleset: str, request: rows.QuarantinedNode | None) -> bool:
        rules = self.quarantine_rules()
        found = None if rules is None else rules.by_name.get(ruleset)
        if found is None or found.drain is None:
            return False
        if request is None:
            return True
        return found.drain_scope == "device" and is_card(fault.entity) and fault.entity not in request.drained_devices()

    def may_be_retried(self, fault: rows.RemediationFault) -> bool:
        """Whether another attempt is all that is missing: its node is set aside for it, and no remedy is under way."""
        done = self.remediation.get(fault.remediation)
        is_over = fault.state == rows.TREATED and (done is None or not done.is_open())
        return (is_over or fault.state in (rows.ATTENTION, rows.STALE)) and self.is_requested(fault)

    def not_drained(self, node: str) -> list[rows.RemediationFault]:
        """The faults that wait for a drain that was given up, be it that of their node or of one of their rulesets."""
        found = self.node.get(node)
        if found is None:
            return []
        waiting = [row for row in self.standing(node) if row.state == rows.WAITING and row.is_accepted]
        given_up = [row for row in waiting if found.is_given_up() or rows.GIVEN_UP in self._drains_for(row)]
        return [row for row in given_up if self.remedy_of(row) is not None and not self.is_released(node, [row])]

    def _drains_for(self, fault: rows.RemediationFault) -> list[str]:
        """How far the drains are of the requests of a fault's rulesets."""
        requests = (self.quarantined.get((fault.node, name)) for name in fault.ruleset_names())
        return [state for one in requests if one is not None and (state := one.drain_state()) is not None]

    def end_drains(self, node: str, state: str, but_for: Iterable[OwnedDrain] = ()) -> None:
        """The drains under way end so of the requests about a node, but for those that these have go on."""
        drains = tuple(but_for)
        for request in self.quarantined.where("node", node):
            if request.drain_state() == rows.DRAINING and not request.is_covered_by(drains):
                self.quarantined.put(request.with_drain(state))

    def end_attention(self, node: str, is_over: Callable[[rows.RemediationAttention], bool]) -> None:
        """Nobody has to look at a node any more because of these."""
        for row in self.attention.where("node", node):
            if is_over(row):
                self.attention.delete(self.attention.key_of(row))

    def is_released(self, node: str, faults: Iterable[rows.RemediationFault]) -> bool:
        """Whether no ruleset has the node set aside for any of the faults."""
        in_force = {row.ruleset for row in self.quarantined.where("node", node)}
        return not any(in_force & set(row.ruleset_names()) for row in faults)

    def faults_of(self, intent: str, node: str) -> list[rows.RemediationFault]:
        """The standing faults that a remediation is for."""
        return [row for row in self.standing(node) if row.remediation == intent]

    # What waits to be assessed, and what a fold has touched.

    def pend(self, fault: rows.RemediationFault) -> None:
        """A fault waits to be assessed."""
        self.fault.put(fault)
        if self._pending is not None:
            self._pending[fault.node, fault.cause] = None

    def pending(self) -> dict[FaultKey, None]:
        """What waits to be assessed, and perhaps some that no longer does, the first first."""
        if self._pending is None:
            waiting = [row for row in self.fault.rows.values() if row.state == rows.PENDING]
            waiting.sort(key=lambda row: (row.recorded_at, row.node, row.cause))
            self._pending = {(row.node, row.cause): None for row in waiting}
        return self._pending

    def waiting(self, node: str, cause: str) -> list[rows.RemediationFault]:
        """The faults of a node that wait to be assessed because of something."""
        return [row for row in self.standing(node) if row.state == rows.PENDING and row.cause == cause]

    def touch(self, node: str) -> None:
        """Something about the node may have to be decided."""
        self._touched[node] = None

    def take_touched(self) -> list[str]:
        """The nodes that were touched since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)

    # What is over, until nothing older is to be expected.

    def clear_fault(self, fault: rows.RemediationFault, codes: Collection[str], at: datetime) -> None:
        """Codes of a fault are cleared, or all where none are named; without any it is over.

        One that is over remembers that too: what was reported before, and is recorded later, counts no more.
        """
        after = without_cleared(fault.code_times(), codes, at)
        cleared = codes_text(with_cleared(fault.cleared_times(), codes, at))
        row = fault.with_codes(after)._replace(cleared=cleared)
        if after or fault.state == rows.HEALTHY:
            self.fault.put(row)
        else:
            self._end_fault(row, at)

    def end_fault(self, fault: rows.RemediationFault, at: datetime) -> None:
        """A fault is over, whatever its codes are."""
        self.clear_fault(fault, (), max(at, fault.changed_at))

    def _end_fault(self, fault: rows.RemediationFault, at: datetime) -> None:
        row = fault._replace(state=rows.HEALTHY, changed_at=max(at, fault.changed_at), is_accepted=False)
        self.fault.put(row)
        self._fault_tombstones().add(self.fault.key_of(row), row.changed_at)

    def end(self, row: rows.Remediation) -> None:
        """A remediation has its outcome."""
        self.remediation.put(row)
        if row.ended_at is not None:
            self._tombstones().add(row.intent, row.ended_at)

    def forget(self, recorded_at: datetime) -> None:
        """Forget what was over long before a fact that was recorded then."""
        for key, ended_at in self._fault_tombstones().pop_expired(recorded_at):
            fault = self.fault.get(key)
            if fault is not None and fault.ended_at() == ended_at:
                self.fault.delete(key)
        for key, ended_at in self._tombstones().pop_expired(recorded_at):
            row = self.remediation.get(key)
            if row is not None and row.ended_at == ended_at:
                self.remediation.delete(key)

    def _tombstones(self) -> Tombstones:
        if self._ends is None:
            self._ends = Tombstones()
            for row in self.remediation.rows.values():
                if row.ended_at is not None:
                    self._ends.add(row.intent, row.ended_at)
        return self._ends

    def _fault_tombstones(self) -> Tombstones:
        if self._fault_ends is None:
            self._fault_ends = Tombstones()
            for row in self.fault.rows.values():
                if (ended_at := row.ended_at()) is not None:
                    self._fault_ends.add(self.fault.key_of(row), ended_at)
        return self._fault_ends

"""Dynamic resource allocation as the ledger tells it: a fold of what watchers said of slices, claims, rules and nodes.

Every object replaces what it said before; objects of different kinds come in any order, and the order between them
changes nothing in what is there now. The past of pools is kept in the order of the log: a fact that is older than the
last one about its pool counts from that one's time on.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.books import EVERYWHERE, Book, Evaluated
from gpuledger.domain.dra.documents import Document, PoolCondition, conditions_of, slice_status
from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId, Holding, Node, PoolId, TaintRule
from gpuledger.domain.dra.verdicts import DeviceState
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.domain.quantities import parse_quantity
from gpuledger.domain.table import Table
from gpuledger.events.claim import Asked, ClaimAllocated, ClaimReleased, ClaimRequested
from gpuledger.events.node import NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import Payload
from gpuledger.events.slice import (
    DeviceClassDefined,
    DeviceClassRemoved,
    SlicePublished,
    SliceWithdrawn,
    TaintRuleLifted,
    TaintRuleSet,
)

PENDING, ALLOCATED = "Pending", "Allocated"
CONDITION_TYPES = ("Complete", "Valid")
_COUNTED = rows.PoolAvailability._fields.index("generation")


class Availability:
    """The tables, and what is computed from them: a book for each pool that was asked about."""

    def __init__(self) -> None:
        self.slice = Table(rows.SLICE, "pool", "node")
        self.claim = Table(rows.CLAIM)
        self.allocation = Table(rows.ALLOCATION, "pool", "claim")
        self.device_class = Table(rows.DEVICE_CLASS)
        self.taint_rule = Table(rows.TAINT_RULE)
        self.node_labels = Table(rows.NODE_LABELS)
        self.condition = Table(rows.CONDITION, "pool")
        self.availability = Table(rows.AVAILABILITY, "pool")
        self._books: dict[PoolId, Book] = {}
        self._open: dict[PoolId, dict[str, rows.PoolAvailability]] = {}
        self._rules: list[TaintRule] | None = None
        self._touched: dict[str, None] = {}

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table."""
        every: tuple[Table[Any], ...] = (
            self.slice, self.claim, self.allocation, self.device_class,
            self.taint_rule, self.node_labels, self.condition, self.availability,
        )  # fmt: skip
        return {table.spec.name: table for table in every}

    def take_touched(self) -> list[str]:
        """The slices whose status may be another since the last call, those that are gone among them."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def touch(self, slices: Iterable[str]) -> None:
        """The status of these slices may be another."""
        self._touched |= dict.fromkeys(slices)

    def pools(self) -> list[PoolId]:
        """Every pool that has a slice, ordered."""
        return sorted({PoolId(row.driver, row.pool) for row in self.slice.rows.values()})

    def book(self, pool: PoolId) -> Book:
        """What is known of a pool."""
        book = self._books.get(pool)
        if book is None:
            book = self._books[pool] = self._opened(pool)
        return book

    def evaluated(self, pool: PoolId, view: str) -> Evaluated:
        """A pool as a node sees it, or the whole cluster (EVERYWHERE)."""
        return self.book(pool).evaluated(view, None if view == EVERYWHERE else self.node(view), self.rules())

    def node(self, name: str) -> Node:
        """A node with its labels; one that is not known has none."""
        row = self.node_labels.get(name)
        return Node(name, {} if row is None else orjson.loads(row.labels))

    def rules(self) -> list[TaintRule]:
        """The taint rules in force."""
        if self._rules is None:
            every = sorted(self.taint_rule.rows.values())
            self._rules = [rule_of(row.name, TaintRuleSet.model_validate(orjson.loads(row.said))) for row in every]
        return self._rules

    def status(self, name: str, *, redacted: bool = False) -> Document | None:
        """The status of a slice; None where there is no such slice."""
        row = self.slice.get(name)
        if row is None:
            return None
        pool, view = PoolId(row.driver, row.pool), row.node or EVERYWHERE
        conditions = [
            PoolCondition(one.type, one.status, one.reason, one.message, one.changed_at)
            for one in (self.condition.get((*pool, view, type_)) for type_ in CONDITION_TYPES)
            if one is not None
        ]
        return slice_status(self.book(pool), self.evaluated(pool, view), name, conditions, redacted=redacted)

    def held(self, claim: str) -> list[rows.DeviceAllocation]:
        """What a claim holds now."""
        return [row for row in self.allocation.where("claim", claim) if row.valid_to is None]

    def open_rows(self, pool: PoolId) -> dict[str, rows.PoolAvailability]:
        """How each view of a pool stands, as far as it was noted; the caller keeps it true."""
        known = self._open.get(pool)
        if known is None:
            every = self.availability.where("pool", pool.name)
            known = {row.node: row for row in every if row.driver == pool.driver and row.valid_to is None}
            self._open[pool] = known
        return known

    def rules_changed(self) -> None:
        """The taint rules are others now."""
        self._rules = None

    def _opened(self, pool: PoolId) -> Book:
        book = Book(pool)
        for row in self.slice.where("pool", pool.name):
            if row.driver == pool.driver:
                book.publish(slice_of(row.name, SlicePublished.model_validate(orjson.loads(row.said))))
        for held in self.allocation.where("pool", pool.name):
            if held.driver == pool.driver and held.valid_to is None:
                book.hold(holding_of(held), ())
        return book


def holding_of(row: rows.DeviceAllocation) -> Holding:
    """The holding that a row tells of."""
    namespace, _, name = row.claim.partition("/")
    consumed = {key: parse_quantity(text) for key, text in orjson.loads(row.consumed).items()} if row.consumed else {}
    pool = PoolId(row.driver, row.pool)
    claim = ClaimId(namespace, name, row.uid)
    return Holding(claim, row.request, pool, row.device, row.share or None, consumed, row.admin_access)


def _packed(said: Payload) -> str:
    return orjson.dumps(said.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_SORT_KEYS).decode()


def _published(state: Availability, fact: Fact, said: SlicePublished) -> None:
    name, at = fact.event.subject, fact.event.time
    pool, before = PoolId(said.driver, said.pool), state.slice.get(name)
    if before is not None and PoolId(before.driver, before.pool) != pool:
        _take_away(state, before, at)
    one = slice_of(name, said)
    state.book(pool).publish(one)
    state.slice.delete(name)
    node = one.reach.node if one.reach else None
    state.slice.put(
        rows.ResourceSlice(
            name, said.uid, *pool, node, said.generation, said.pool_generation, said.slice_count,
            len(said.devices), at, _packed(said),
        )
    )  # fmt: skip
    _pool_changed(state, pool, at)


def _withdrawn(state: Availability, fact: Fact, _said: SliceWithdrawn) -> None:
    row = state.slice.get(fact.event.subject)
    if row is not None:
        _take_away(state, row, fact.event.time)


def _take_away(state: Availability, row: rows.ResourceSlice, at: datetime) -> None:
    pool = PoolId(row.driver, row.pool)
    state.book(pool).withdraw(row.name)
    state.slice.delete(row.name)
    state.touch((row.name,))
    _pool_changed(state, pool, at)


def _pool_changed(state: Availability, pool: PoolId, at: datetime) -> None:
    """Any of a pool's slices may have another status now."""
    state.touch(state.book(pool).slices)
    _record(state, pool, at)


def _claimed(state: Availability, fact: Fact, said: Asked) -> None:
    claim, at = fact.event.subject, fact.event.time
    phase = ALLOCATED if isinstance(said, ClaimAllocated) else PENDING
    before = state.claim.get(claim)
    since = before.since if before is not None and (before.phase, before.uid) == (phase, said.uid) else at
    devices = len(said.results) if isinstance(said, ClaimAllocated) else 0
    state.claim.put(
        rows.ResourceClaim(claim, said.uid, phase, said.owner, len(said.requests), devices, since, _packed(said))
    )
    _hold(state, claim, said.uid, said if isinstance(said, ClaimAllocated) else None, at)


def _released(state: Availability, fact: Fact, _said: ClaimReleased) -> None:
    claim = fact.event.subject
    state.claim.delete(claim)
    _hold(state, claim, "", None, fact.event.time)


def _hold(state: Availability, claim: str, uid: str, said: ClaimAllocated | None, at: datetime) -> None:
    """A claim holds what it says now, and nothing else."""
    namespace, _, name = claim.partition("/")
    wanted = {} if said is None else {_place(one): one for one in holdings_of(ClaimId(namespace, name, uid), said)}
    held = {_place(holding_of(row)): row for row in state.held(claim)}
    changed: dict[PoolId, None] = {}
    for place, row in held.items():
        if place not in wanted:
            holding = holding_of(row)
            state.touch(state.book(holding.pool).release(holding, state.rules()))
            state.allocation.put(row._replace(valid_to=max(at, row.valid_from)))
            changed[holding.pool] = None
    for place, one in wanted.items():
        if place not in held:
            consumed = {key: str(amount) for key, amount in one.consumed.items()}
            state.touch(state.book(one.pool).hold(one, state.rules()))
            state.allocation.put(
                rows.DeviceAllocation(
                    claim, uid, *one.pool, one.device, one.request, one.share or "", at, None,
                    one.has_admin_access, orjson.dumps(consumed).decode() if consumed else "",
                )
            )  # fmt: skip
            changed[one.pool] = None
    for pool in changed:
        _record(state, pool, at)


def _place(one: Holding) -> tuple[object, ...]:
    return one.claim.uid, one.pool, one.device, one.request, one.share, one.has_admin_access, _amounts(one)


def _amounts(one: Holding) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount.nanos) for name, amount in one.consumed.items()))


def _class_defined(state: Availability, fact: Fact, said: DeviceClassDefined) -> None:
    state.device_class.put(rows.DeviceClass(fact.event.subject, _packed(said)))


def _class_removed(state: Availability, fact: Fact, _said: DeviceClassRemoved) -> None:
    state.device_class.delete(fact.event.subject)


def _rule_set(state: Availability, fact: Fact, said: TaintRuleSet) -> None:
    before = state.taint_rule.get(fact.event.subject)
    touched = [] if before is None else [rule_of(before.name, TaintRuleSet.model_validate(orjson.loads(before.said)))]
    state.taint_rule.put(rows.DeviceTaintRule(fact.event.subject, _packed(said)))
    _retaint(state, [*touched, rule_of(fact.event.subject, said)], fact.event.time)


def _rule_lifted(state: Availability, fact: Fact, _said: TaintRuleLifted) -> None:
    row = state.taint_rule.get(fact.event.subject)
    if row is not None:
        state.taint_rule.delete(row.name)
        _retaint(state, [rule_of(row.name, TaintRuleSet.model_validate(orjson.loads(row.said)))], fact.event.time)


def _retaint(state: Availability, rules: list[TaintRule], at: datetime) -> None:
    """Look again at the pools that a rule may be about."""
    state.rules_changed()
    for pool in state.pools():
        if any(rule.driver in (None, pool.driver) and rule.pool in (None, pool.name) for rule in rules):
            state.book(pool).retaint()
            _pool_changed(state, pool, at)


def _labelled(state: Availability, fact: Fact, said: NodeLabelled) -> None:
    labels = orjson.dumps(said.labels, option=orjson.OPT_SORT_KEYS).decode()
    state.node_labels.put(rows.NodeLabels(fact.event.subject, labels))
    _node_changed(state, fact)


def _unlabelled(state: Availability, fact: Fact, _said: NodeUnlabelled) -> None:
    state.node_labels.delete(fact.event.subject)
    _node_changed(state, fact)


def _node_changed(state: Availability, fact: Fact) -> None:
    """Only pools with slices of the node itself look from there, and only where others are selected by labels."""
    for pool in _pools_of(state, fact.event.subject):
        book = state.book(pool)
        if any(one.reach is None or one.reach.terms for one in book.slices.values()):
            book.retaint()
            _pool_changed(state, pool, fact.event.time)


def _pools_of(state: Availability, node: str) -> list[PoolId]:
    return sorted({PoolId(row.driver, row.pool) for row in state.slice.where("node", node)})


def _record(state: Availability, pool: PoolId, at: datetime) -> None:
    """Note how every view of a pool stands now, where that is new; views without slices end."""
    open_, views = state.open_rows(pool), state.book(pool).views()
    for view in views:
        evaluated = state.evaluated(pool, view)
        _note_conditions(state, pool, view, evaluated, at)
        _note_counts(state, pool, _counted(pool, view, evaluated, at))
    for node in [node for node in open_ if node not in views]:
        _end(state, open_.pop(node), at)
        for type_ in CONDITION_TYPES:
            state.condition.delete((*pool, node, type_))


def _note_conditions(state: Availability, pool: PoolId, view: str, evaluated: Evaluated, at: datetime) -> None:
    for type_, status, reason, message in conditions_of(evaluated.view):
        before = state.condition.get((*pool, view, type_))
        since = at if before is None else before.changed_at if before.status == status else max(at, before.changed_at)
        row = rows.PoolCondition(*pool, view, type_, status, reason, message, since)
        if row != before:
            state.condition.put(row)


def _counted(pool: PoolId, view: str, evaluated: Evaluated, at: datetime) -> rows.PoolAvailability:
    counts, seen = evaluated.counts, evaluated.view
    return rows.PoolAvailability(
        *pool, view, at, None, seen.generation, seen.is_complete, seen.is_valid,
        counts.total(), evaluated.allocated, counts[DeviceState.AVAILABLE],
        counts[DeviceState.PARTIAL], counts[DeviceState.UNAVAILABLE],
    )  # fmt: skip


def _note_counts(state: Availability, pool: PoolId, now: rows.PoolAvailability) -> None:
    """Begin another row where something changed; of one moment the last one counts."""
    open_ = state.open_rows(pool)
    before = open_.get(now.node)
    if before is not None:
        if before[_COUNTED:] == now[_COUNTED:]:
            return
        now = now._replace(valid_from=_end(state, before, now.valid_from))
    open_[now.node] = now
    state.availability.put(now)


def _end(state: Availability, row: rows.PoolAvailability, at: datetime) -> datetime:
    """End a row, not before it began; one that would have lasted no time never was. Returns when it ended."""
    ends = max(row.valid_from, at)
    if ends == row.valid_from:
        state.availability.delete((row.driver, row.pool, row.node, row.valid_from))
    else:
        state.availability.put(row._replace(valid_to=ends))
    return ends


def _requested(state: Availability, fact: Fact, said: ClaimRequested) -> None:
    _claimed(state, fact, said)


def _allocated(state: Availability, fact: Fact, said: ClaimAllocated) -> None:
    _claimed(state, fact, said)


HANDLERS: Handlers = {
    SlicePublished: _published,
    SliceWithdrawn: _withdrawn,
    ClaimRequested: _requested,
    ClaimAllocated: _allocated,
    ClaimReleased: _released,
    DeviceClassDefined: _class_defined,
    DeviceClassRemoved: _class_removed,
    TaintRuleSet: _rule_set,
    TaintRuleLifted: _rule_lifted,
    NodeLabelled: _labelled,
    NodeUnlabelled: _unlabelled,
}


def views(state: Availability) -> Iterator[tuple[PoolId, str]]:
    """Every pool with every view of it."""
    for pool in state.pools():
        for view in state.book(pool).views():
            yield pool, view

"""The state of the `availability` projection: its tables, and an index of each pool that is computed from them.

A fold changes the index and the table together, and then calls `record` for the pool, which brings its history up to
date.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.evaluation import PoolEvaluation
from gpuledger.domain.dra.facts import amounts, rule_of, slice_of
from gpuledger.domain.dra.history import PoolHistory
from gpuledger.domain.dra.objects import ClaimId, Holding, LabelledNode, PoolId, TaintRule
from gpuledger.domain.dra.pool_index import EVERYWHERE, PoolIndex
from gpuledger.domain.dra.status import Document, slice_status
from gpuledger.domain.fact import TableState
from gpuledger.domain.table import Table
from gpuledger.events.slice import SlicePublished, TaintRuleSet


class TaintRules:
    """The taint rules in force, indexed by the pool that they name, so that a pool sees only the rules about it."""

    def __init__(self, rules: Iterable[TaintRule]) -> None:
        self._by_name: dict[str, TaintRule] = {}
        self._by_pool: dict[str | None, dict[str, TaintRule]] = {}
        for one in rules:
            self.put(one)

    def get(self, name: str) -> TaintRule | None:
        """The rule of this name."""
        return self._by_name.get(name)

    def about(self, pool: PoolId) -> list[TaintRule]:
        """The rules about devices of the pool, ordered by name."""
        if not self._by_name:
            return []
        named = {**self._by_pool.get(None, {}), **self._by_pool.get(pool.name, {})}
        return [one for _, one in sorted(named.items()) if one.driver in (None, pool.driver)]

    def put(self, rule: TaintRule) -> None:
        """Add or replace a rule."""
        self.drop(rule.name)
        self._by_name[rule.name] = rule
        self._by_pool.setdefault(rule.pool, {})[rule.name] = rule

    def drop(self, name: str) -> None:
        """Remove a rule."""
        rule = self._by_name.pop(name, None)
        if rule is not None:
            named = self._by_pool[rule.pool]
            del named[name]
            if not named:
                del self._by_pool[rule.pool]


class Availability(TableState):
    """The tables, and an index of each pool that was read."""

    def __init__(self) -> None:
        self.history = PoolHistory()
        self.slice = Table(rows.SLICE, "pool", "node")
        self.claim = Table(rows.CLAIM)
        self.allocation = Table(rows.ALLOCATION, "pool", "claim")
        self.device_class = Table(rows.DEVICE_CLASS)
        self.taint_rule = Table(rows.TAINT_RULE)
        self.node_labels = Table(rows.NODE_LABELS)
        self.condition = self.history.condition
        self.availability = self.history.availability
        self._indexes: dict[PoolId, PoolIndex] = {}
        self._rules: TaintRules | None = None
        self._touched: dict[str, None] | None = None

    def take_touched(self) -> list[str]:
        """The slices whose status may have changed since the last call, including those that are gone.

        The first call returns every slice; before it nothing is tracked, because nobody may ever call.
        """
        touched, self._touched = self._touched, {}
        return list(self.slice.rows if touched is None else touched)

    def touch(self, slices: Iterable[str]) -> None:
        """Mark these slices: their status may have changed."""
        if self._touched is not None:
            self._touched |= dict.fromkeys(slices)

    def pools(self) -> list[PoolId]:
        """Every pool that has a slice, ordered."""
        return pools_of(self.slice.rows.values())

    def index(self, pool: PoolId) -> PoolIndex:
        """The index of a pool."""
        index = self._indexes.get(pool)
        if index is None:
            index = self._indexes[pool] = self._opened(pool)
        return index

    def evaluation(self, pool: PoolId, view: str) -> PoolEvaluation:
        """The evaluation of a pool from a node's view, or the whole cluster's (EVERYWHERE)."""
        node = None if view == EVERYWHERE else self.node(view)
        return self.index(pool).evaluation(view, node, self.rules.about(pool))

    def node(self, name: str) -> LabelledNode:
        """A node with its labels; an unknown one has none."""
        row = self.node_labels.get(name)
        return LabelledNode(name, {} if row is None else orjson.loads(row.labels))

    @property
    def rules(self) -> TaintRules:
        """The taint rules in force."""
        if self._rules is None:
            self._rules = TaintRules(_rule_of(row) for row in self.taint_rule.rows.values())
        return self._rules

    def status(self, name: str, *, redacted: bool = False) -> Document | None:
        """The status of a slice; None where there is no such slice."""
        row = self.slice.get(name)
        if row is None:
            return None
        pool, view = PoolId(row.driver, row.pool), row.node or EVERYWHERE
        conditions = self.history.conditions(pool, view)
        return slice_status(self.index(pool), self.evaluation(pool, view), name, conditions, redacted=redacted)

    def held(self, claim: str) -> list[rows.DeviceAllocation]:
        """The allocations of a claim that are in force."""
        return [row for row in self.allocation.where("claim", claim) if row.valid_to is None]

    def record(self, pool: PoolId, at: datetime) -> None:
        """Record the changed views of a pool in its history, and drop the index of a pool that is gone."""
        index = self.index(pool)
        for view in index.take_changed():
            if index.has_view(view):
                self.history.record(view, self.evaluation(pool, view), at)
            else:
                self.history.end(pool, view, at)
        self.touch(index.take_touched())
        if not index:
            self.history.forget(pool)
            del self._indexes[pool]

    def _opened(self, pool: PoolId) -> PoolIndex:
        index = PoolIndex(pool)
        for row in self.slice.where("pool", pool.name):
            if row.driver == pool.driver:
                index.publish(slice_of(row.name, SlicePublished.model_validate(orjson.loads(row.payload))))
        for held in self.allocation.where("pool", pool.name):
            if held.driver == pool.driver and held.valid_to is None:
                index.hold(holding_of(held), ())
        return index


def holding_of(row: rows.DeviceAllocation) -> Holding:
    """The holding of a row."""
    namespace, _, name = row.claim.partition("/")
    consumed = amounts(orjson.loads(row.consumed)) if row.consumed else {}
    claim, pool = ClaimId(namespace, name, row.uid), PoolId(row.driver, row.pool)
    return Holding(claim, row.request, pool, row.device, row.share or None, consumed, row.admin_access)


def views(state: Availability) -> Iterator[tuple[PoolId, str]]:
    """Every pool with every view of it."""
    for pool in state.pools():
        for view in state.index(pool).views():
            yield pool, view


def _rule_of(row: rows.DeviceTaintRule) -> TaintRule:
    return rule_of(row.name, TaintRuleSet.model_validate(orjson.loads(row.payload)))


def pools_of(slices: Iterable[rows.ResourceSlice]) -> list[PoolId]:
    """The pools of slices, ordered."""
    return sorted({PoolId(row.driver, row.pool) for row in slices})

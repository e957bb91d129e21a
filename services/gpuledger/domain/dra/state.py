"""What is known of dynamic resource allocation: tables, and what is computed from them, pool by pool.

Whoever folds facts into it tells the book of a pool and the table, and then has the pool recorded.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.evaluation import Evaluated
from gpuledger.domain.dra.facts import amounts, rule_of, slice_of
from gpuledger.domain.dra.history import PoolHistory
from gpuledger.domain.dra.objects import ClaimId, Holding, Node, PoolId, TaintRule
from gpuledger.domain.dra.pool_index import EVERYWHERE, Book
from gpuledger.domain.dra.status import Document, slice_status
from gpuledger.domain.dra.taint_rules import TaintRules
from gpuledger.domain.table import Table
from gpuledger.events.slice import SlicePublished, TaintRuleSet


class Availability:
    """The tables, and what is computed from them: a book for each pool that was asked about."""

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
        self._books: dict[PoolId, Book] = {}
        self._rules: TaintRules | None = None
        self._touched: dict[str, None] | None = None

    def tables(self) -> Mapping[str, Table[Any]]:
        """Every table."""
        every: tuple[Table[Any], ...] = (
            self.slice, self.claim, self.allocation, self.device_class,
            self.taint_rule, self.node_labels, self.condition, self.availability,
        )  # fmt: skip
        return {table.spec.name: table for table in every}

    def take_touched(self) -> list[str]:
        """The slices whose status may be another since the last call, those that are gone among them.

        The first call names every slice; before it nothing is noted, because nobody may ever ask.
        """
        touched, self._touched = self._touched, {}
        return list(self.slice.rows if touched is None else touched)

    def touch(self, slices: Iterable[str]) -> None:
        """The status of these slices may be another."""
        if self._touched is not None:
            self._touched |= dict.fromkeys(slices)

    def pools(self) -> list[PoolId]:
        """Every pool that has a slice, ordered."""
        return pools_of(self.slice.rows.values())

    def book(self, pool: PoolId) -> Book:
        """What is known of a pool."""
        book = self._books.get(pool)
        if book is None:
            book = self._books[pool] = self._opened(pool)
        return book

    def evaluated(self, pool: PoolId, view: str) -> Evaluated:
        """A pool as a node sees it, or the whole cluster (EVERYWHERE)."""
        node = None if view == EVERYWHERE else self.node(view)
        return self.book(pool).evaluated(view, node, self.rules.about(pool))

    def node(self, name: str) -> Node:
        """A node with its labels; one that is not known has none."""
        row = self.node_labels.get(name)
        return Node(name, {} if row is None else orjson.loads(row.labels))

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
        return slice_status(self.book(pool), self.evaluated(pool, view), name, conditions, redacted=redacted)

    def held(self, claim: str) -> list[rows.DeviceAllocation]:
        """What a claim holds now."""
        return [row for row in self.allocation.where("claim", claim) if row.valid_to is None]

    def record(self, pool: PoolId, at: datetime) -> None:
        """A pool changed: note how its views stand where they do so otherwise now, and forget a pool that is gone."""
        book = self.book(pool)
        for view in book.take_changed():
            if book.has_view(view):
                self.history.note(view, self.evaluated(pool, view), at)
            else:
                self.history.end(pool, view, at)
        self.touch(book.take_touched())
        if not book:
            self.history.forget(pool)
            del self._books[pool]

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
    consumed = amounts(orjson.loads(row.consumed)) if row.consumed else {}
    claim, pool = ClaimId(namespace, name, row.uid), PoolId(row.driver, row.pool)
    return Holding(claim, row.request, pool, row.device, row.share or None, consumed, row.admin_access)


def views(state: Availability) -> Iterator[tuple[PoolId, str]]:
    """Every pool with every view of it."""
    for pool in state.pools():
        for view in state.book(pool).views():
            yield pool, view


def _rule_of(row: rows.DeviceTaintRule) -> TaintRule:
    return rule_of(row.name, TaintRuleSet.model_validate(orjson.loads(row.said)))


def pools_of(slices: Iterable[rows.ResourceSlice]) -> list[PoolId]:
    """The pools of slices, ordered."""
    return sorted({PoolId(row.driver, row.pool) for row in slices})

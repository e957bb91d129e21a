"""Decides the rollout of machine configuration, from what a fact has touched: nodes, and pools as a whole. Pure.

Nodes first, each as far as it gets; then, pool by pool, who begins within the budget, what is withdrawn, and the pool's
state. Every decision is the difference from the last one about the same thing, and is folded before the next is made.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from gpuledger.deciders.rollout.budget import max_unavailable
from gpuledger.deciders.rollout.counts import Counts, counts_of
from gpuledger.deciders.rollout.drains import requests_for
from gpuledger.deciders.rollout.order import order_of
from gpuledger.deciders.rollout.plan import NodePlan, begun, next_plan, plan_of, view_of
from gpuledger.deciders.rollout.revisions import render, withdrawn
from gpuledger.deciders.rollout.status import differs, status_of
from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.machineconfig.state import Rollout, Touched
from gpuledger.events.machine_config import MachineConfigPoolWithdrawn, NodeConfigChanged
from gpuledger.events.payload import Payload, truncated
from gpuledger.projection.definition import Causation, Decision

ROUNDS_MAX: Final = 8
"""How often decisions may lead to others: a node lets go of a revision, which its pool then withdraws."""


class Deciding:
    """The decisions that follow from one fact, at its time or later."""

    def __init__(self, state: Rollout, fact: Fact) -> None:
        self._state = state
        self._causation = Causation(fact, counted_as_recorded(fact.event, fact.recorded_ns))

    @property
    def at(self) -> datetime:
        """The time of the next decision."""
        return self._causation.time

    def touched(self) -> Iterator[Decision]:
        """What follows for all that the fact has touched, and for what these decisions touch."""
        for _ in range(ROUNDS_MAX):
            touched = self._state.take_touched()
            if not any(touched):
                return
            yield from self._round(touched)

    def _round(self, touched: Touched) -> Iterator[Decision]:
        state = self._state
        for pool in touched.pools:
            yield from self._rendered(pool)
        members = {node for pool in touched.pools for node in state.membership.members(pool)}
        for node in sorted(members.union(touched.nodes)):
            yield from self._node(node)
        pools = {pool for node in touched.nodes for pool in state.membership.pools_of(node)}
        for pool in sorted(pools.union(touched.pools, touched.counted)):
            yield from self.pool(pool)

    def node(self, node: str, plan: NodePlan) -> Iterator[Decision]:
        """Have a node's plan be this one."""
        row = self._state.node.get(node)
        for data in requests_for(self._state, node, plan):
            yield self.about(node, data)
        if row is not None and row.uid is not None and plan != plan_of(row):
            yield self.about(node, _changed(row.uid, plan))

    def pool(self, pool: str) -> Iterator[Decision]:
        """Who begins, what is withdrawn, and the state of a pool."""
        state, row = self._state, self._state.pool.get(pool)
        target = state.target(pool)
        counts = None if row is None else counts_of(state, pool, target)
        if row is not None and counts is not None and counts.waiting:
            yield from self._begin(pool, counts)
            counts = counts_of(state, pool, target)
        for gone in withdrawn(state, pool):
            yield self._about_pool(pool, gone)
        before = state.status.get(pool)
        if row is not None and counts is not None:
            status = status_of(state, row, target, counts)
            if differs(before, status):
                yield self._about_pool(pool, status)
        elif before is not None:
            yield self._about_pool(pool, MachineConfigPoolWithdrawn())

    def rendered(self, pool: str) -> Iterator[Decision]:
        """Render a pool."""
        row = self._state.pool.get(pool)
        if row is not None:
            for data in render(self._state, row):
                yield self._about_pool(pool, data)

    def about(self, node: str, data: Payload) -> Decision:
        """A decision about a node, no earlier than the last one."""
        row, held = self._state.node.get(node), self._state.maintenance.get(node)
        times = [row and row.decided_at, held and held.requested_at, held and held.released_at]
        return self._causation.decision(node, data, max((one for one in times if one is not None), default=None))

    def _rendered(self, pool: str) -> Iterator[Decision]:
        row, definition = self._state.pool.get(pool), self._state.definition(pool)
        if row is not None and definition is not None and row.waits_since is not None and not definition.debounce_s:
            yield from self.rendered(pool)

    def _node(self, node: str) -> Iterator[Decision]:
        yield from self.node(node, next_plan(view_of(self._state, node, self.at)))

    def _begin(self, pool: str, counts: Counts) -> Iterator[Decision]:
        """The updates that begin: as many as may be unavailable, in the pool's order."""
        state, definition = self._state, self._state.definition(pool)
        assert definition is not None, "no node waits for a pool that is gone"
        most, busy = max_unavailable(definition.max_unavailable, counts.machines), counts.unavailable
        waiting = counts.waiting
        if len(busy) >= most:  # Who is unavailable already takes no other place.
            waiting = [row for row in waiting if row.node in busy] if len(busy) == most else []
        for row in sorted(waiting, key=lambda row: order_of(state, row, prefers_idle=definition.prefers_idle)):
            if row.node in busy or len(busy) < most:
                busy.add(row.node)
                yield from self.node(row.node, begun(state, view_of(state, row.node, self.at)))

    def _about_pool(self, pool: str, data: Payload) -> Decision:
        before = self._state.status.get(pool)
        return self._causation.decision(pool, data, before and before.changed_at)


def on_fact(state: Rollout, fact: Fact) -> Iterator[Decision]:
    """The decisions that follow from a fact that was just folded."""
    yield from Deciding(state, fact).touched()


def _changed(uid: str, plan: NodePlan) -> NodeConfigChanged:
    return NodeConfigChanged(
        uid=uid,
        pool=plan.pool,
        desired_revision=plan.desired,
        desired_set_at=plan.desired_set_at,
        cordoned=plan.cordoned,
        drain_started_at=plan.drain_started_at,
        drain_retries=plan.drain_retries,
        phase=plan.phase,
        reason=plan.reason or None,
        message=truncated(plan.message),
    )

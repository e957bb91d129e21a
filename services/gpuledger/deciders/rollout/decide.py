"""Decides the rollout of machine configuration, from what a fact has touched: nodes, and pools as a whole. Pure.

Nodes first, each as far as it gets; then, pool by pool, who begins within the budget, what is withdrawn, and the pool's
state. Every decision is the difference from the last one about the same thing, and is folded before the next is made.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.deciders.rollout.budget import max_unavailable, unavailable
from gpuledger.deciders.rollout.drains import requests_for
from gpuledger.deciders.rollout.order import order_of
from gpuledger.deciders.rollout.plan import NodePlan, begun, is_waiting, next_plan, plan_of, view_of
from gpuledger.deciders.rollout.revisions import render, withdrawn
from gpuledger.deciders.rollout.status import differs, status_of
from gpuledger.domain.fact import Fact, counted_as_recorded
from gpuledger.domain.machineconfig.state import Rollout
from gpuledger.events.machine_config import MachineConfigPoolWithdrawn, NodeConfigChanged
from gpuledger.events.payload import Payload, truncated
from gpuledger.projection.definition import Causation, Decision


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
        """What follows for all that the fact has touched."""
        state = self._state
        touched = state.take_touched()
        for pool in touched.pools:
            yield from self._rendered(pool)
        members = {node for pool in touched.pools for node in state.membership.members(pool)}
        for node in sorted(members.union(touched.nodes)):
            yield from self._node(node)
        pools = {pool for node in touched.nodes for pool in state.membership.pools_of(node)}
        for pool in sorted(pools.union(touched.pools)):
            yield from self.pool(pool)
        state.take_touched()  # Decisions touch what they are about, and that is decided.

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
        if row is not None:
            yield from self._begin(pool)
        for gone in withdrawn(state, pool):
            yield self._about_pool(pool, gone)
        before = state.status.get(pool)
        if row is None:
            if before is not None:
                yield self._about_pool(pool, MachineConfigPoolWithdrawn())
            return
        status = status_of(state, row)
        if differs(before, status):
            yield self._about_pool(pool, status)

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

    def _begin(self, pool: str) -> Iterator[Decision]:
        """The updates that begin: as many as may be unavailable, in the pool's order."""
        state, definition = self._state, self._state.definition(pool)
        if definition is None or definition.paused:
            return
        members = state.membership.members(pool)
        most, busy = max_unavailable(definition.max_unavailable, len(members)), unavailable(state, pool)
        if len(busy) > most:
            return
        views = [view_of(state, node, self.at) for node in members]
        waiting = [view for view in views if is_waiting(view)]
        waiting.sort(key=lambda view: order_of(state, view.row, prefers_idle=definition.prefers_idle))
        for view in waiting:
            node = view.row.node
            if len(busy | {node}) <= most:
                busy.add(node)
                yield from self.node(node, begun(state, view))

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

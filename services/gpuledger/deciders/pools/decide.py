"""What the `pools` service decides: which pool each device belongs to, what pools offer, and what agents do.

Pure. A fact leads to another look at the devices and pools that it touched, and at no others; only differences are
decided. Nothing is decided while the module is disabled or Node Feature Discovery is missing.
"""

from collections.abc import Iterator
from datetime import datetime

from gpuledger.deciders.pools.assignment import next_step
from gpuledger.deciders.pools.conditions import is_empty, pool_change
from gpuledger.deciders.pools.orders import wanted_change
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.ids import derived_id
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolReleased
from gpuledger.projection.definition import Decision

STEPS_MAX = 4
"""How many steps a device takes at most at once: released, taken by the next pool, and what follows from that."""


class _Causes:
    """What led to decisions. One that follows from another of the same kind about the same thing names that one."""

    def __init__(self, fact: Fact) -> None:
        self._event = fact.event
        self._time = fact.event.time
        self._last: dict[tuple[str, str], str] = {}

    def decision(self, subject: str, data: Payload, not_before: datetime | None) -> Decision:
        """A decision, at a time that is never before an earlier one about the same thing, or one that led to it."""
        key = (data.TYPE, subject)
        before = self._last.get(key)
        cause = self._last[key] = self._event.id if before is None else derived_id(before, *key)
        self._time = self._time if not_before is None else max(self._time, not_before)
        return Decision(cause, self._event.correlation_id or self._event.id, subject, self._time, data)


def on_fact(state: PoolFacts, fact: Fact) -> Iterator[Decision]:
    """What follows from a fact that was just folded. Each decision is folded before the next one is asked for."""
    if not state.is_in_force():
        state.take_all()
        return
    causes = _Causes(fact)
    while devices := state.take_devices():
        for device in devices:
            yield from _on_device(state, causes, device)
    for pool in state.take_pools():
        yield from _on_pool(state, causes, pool)
    for node in state.take_lists():
        yield from _on_node(state, causes, node)


def _on_device(state: PoolFacts, causes: _Causes, device: str) -> Iterator[Decision]:
    for _ in range(STEPS_MAX):
        step = next_step(state, device)
        if step is None:
            return
        known = state.assignment.get(device)
        yield causes.decision(device, step, None if known is None else known.changed_at)


def _on_pool(state: PoolFacts, causes: _Causes, pool: str) -> Iterator[Decision]:
    row = state.pool.get(pool)
    if row is None:
        return
    known = state.total.get(pool)
    changed_at = None if known is None else known.changed_at
    change = pool_change(state, row)
    if change is not None:
        yield causes.decision(pool, change, changed_at)
    if row.deleting and not row.released and is_empty(state, pool):
        yield causes.decision(pool, PoolReleased(), changed_at)


def _on_node(state: PoolFacts, causes: _Causes, node: str) -> Iterator[Decision]:
    change, known = wanted_change(state, node), state.wanted.get(node)
    if change is not None:
        yield causes.decision(node, change, None if known is None else known.changed_at)

"""Decides which pool each device belongs to, what pools offer, and the orders of nodes' agents. Pure.

The decider checks the devices, pools and nodes that a fact touched, and no others, and decides only differences. It
decides nothing while the module is disabled, or nothing tells which nodes have GPUs.
"""

from collections.abc import Iterator

from gpuledger.deciders.pools.assignment import cards_left, next_step
from gpuledger.deciders.pools.conditions import is_empty, pool_change
from gpuledger.deciders.pools.orders import orders_change
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.pool import PoolReleased
from gpuledger.projection.definition import Causation, Decision

STEPS_MAX = 4
"""How many steps a device takes at most at once: released, taken by the next pool, and what follows from that."""


def on_fact(state: PoolFacts, fact: Fact) -> Iterator[Decision]:
    """The decisions that follow from a fact that was just folded. The caller folds each before it takes the next."""
    if not state.is_in_force():
        state.take_all()
        return
    causation = Causation(fact)
    while devices := state.take_devices():
        for device in devices:
            yield from _on_device(state, causation, device)
    for pool in state.take_pools():
        yield from _on_pool(state, causation, pool)
    for node in state.take_nodes():
        yield from _on_node(state, causation, node)


def _on_device(state: PoolFacts, causation: Causation, device: str) -> Iterator[Decision]:
    for _ in range(STEPS_MAX):
        step = next_step(state, device)
        if step is None:
            return
        current = state.assignment.get(device)
        yield causation.decision(device, step, current and current.changed_at)


def _on_pool(state: PoolFacts, causation: Causation, pool: str) -> Iterator[Decision]:
    row, current = state.pool.get(pool), state.total.get(pool)
    if row is None:
        return
    if (change := pool_change(state, row)) is not None:
        yield causation.decision(pool, change, current and current.changed_at)
    if row.deleting and not row.released and is_empty(state, pool):
        yield causation.decision(pool, PoolReleased(), current and current.changed_at)


def _on_node(state: PoolFacts, causation: Causation, node: str) -> Iterator[Decision]:
    change, current = orders_change(state, node), state.orders.get(node)
    if change is not None:
        yield causation.decision(node, change, current and current.changed_at)
    if (left := cards_left(state, node)) is not None:
        yield causation.decision(node, left)

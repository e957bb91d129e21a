"""However facts, services and people interleave, no more nodes are unavailable than may be, and none is stranded."""

import pytest

from gpuledger.domain.machineconfig.state import IDLE
from gpuledger.domain.maintenance.state import Maintenance
from support.events import rows_of
from support.rollout import new_fold
from support.rollout_world import World

STEPS = 250
"""How many things happen in a story, before everybody is left alone."""

SEEDS_SHORT, SEEDS_LONG = 40, 1500
"""How many stories `make test` plays, and how many more `make test-long`."""

SEEDS_PER_TEST = 50

FOUND = (44, 64, 126, 170, 187, 277, 431, 432, 439, 483, 701, 813, 911, 1374, 1486, 1858, 2751, 3012)
"""Seeds of stories that once went wrong."""


def check_end(world: World) -> None:
    """Every node has what it is to have and is given back, in pools that are not paused; in paused ones, given back."""
    state = world.state
    for name, machine in world.machines.items():
        assert not machine.cordoned_by_us, name
        row = state.node.get(name)
        if not machine.exists or row is None:
            continue
        held = state.maintenance.get(name)
        assert held is None or (held.requested_at is None and not held.may_be_cordoned), held
        assert row.phase == IDLE, row
        definition = None if row.pool is None else state.definition(row.pool)
        if definition is None or row.pool is None:
            continue
        target = state.target(row.pool)
        if not definition.paused and target is not None:
            assert row.current_revision == row.desired_revision == machine.current == target, row
        maintenance = world.maintenance.fold.state
        assert isinstance(maintenance, Maintenance)
        assert maintenance.requests_about(name) == []


def check_history(world: World) -> None:
    """What is in use is there, and beyond the limit nothing else."""
    state = world.state
    in_use = {one for row in state.node.rows.values() for one in (row.current_revision, row.desired_revision) if one}
    for pool in state.pool.rows:
        rows = sorted(state.rendered.where("pool", pool), key=lambda row: -row.place)
        definition, target = state.definition(pool), state.target(pool)
        assert definition is not None
        surplus = [row.name for row in rows[definition.history_limit :] if definition.history_limit]
        assert set(surplus) <= in_use | {target}, (pool, surplus)
    for row in state.node.rows.values():
        if row.pool is not None and row.desired_revision is not None and row.decided_pool == row.pool:
            assert row.desired_revision in state.rendered.rows, row


def check_replay(world: World) -> None:
    """A fold of the whole log has the same rows, and decides nothing else."""
    again = new_fold()
    again.apply_all(world.log)
    assert rows_of(again) == rows_of(world.rollout.fold)
    assert not again.outstanding()


def play(seed: int) -> World:
    world = World(seed)
    world.run(STEPS)
    world.settle()
    check_end(world)
    check_history(world)
    check_replay(world)
    return world


@pytest.mark.parametrize("seed", sorted({*range(SEEDS_SHORT), *FOUND}))
def test_a_rollout_keeps_within_its_budget_and_strands_no_node(seed: int) -> None:
    play(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS_SHORT, SEEDS_SHORT + SEEDS_LONG, SEEDS_PER_TEST))
def test_more_rollouts_do(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        play(seed)

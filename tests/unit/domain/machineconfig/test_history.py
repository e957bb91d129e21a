"""Rollouts of pools and updates of nodes as rows: when each began and ended, how, and what came in between."""

from typing import Any

import pytest

from gpuledger.domain.machineconfig.history_rows import ConfigRollout, ConfigUpdate, ConfigUpdates
from gpuledger.events.envelope import Decoded
from gpuledger.events.machine_config import MachineConfigPoolWithdrawn, NodeMachineGone
from gpuledger.readmodels.projections import UpdatesProjection
from support.config_rollouts import NEW, NEWER, OLD, POOL, changed, decided, drain_failed, phase
from support.events import event, folded, hour, log_of
from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import RolloutLog

DRAINING, APPLYING, IDLE = phase("Draining"), phase("Applying", NEW), phase("Idle", NEW)
FAILED = phase("Failed", NEW, message="nothing within 600 s")


def state_of(events: list[Decoded]) -> ConfigUpdates:
    state = folded(UpdatesProjection(), log_of(events)).state
    assert isinstance(state, ConfigUpdates)
    return state


def rollouts(events: list[Decoded]) -> list[ConfigRollout]:
    return list(state_of(events).rollout.rows.values())


def updates(events: list[Decoded]) -> list[ConfigUpdate]:
    return list(state_of(events).update.rows.values())


def test_a_rollout_lasts_until_all_nodes_have_the_revision() -> None:
    (row,) = rollouts(
        decided(
            (POOL, 1, changed(NEW, 0)),
            (POOL, 2, changed(NEW, 1, unavailable=2)),
            (POOL, 3, changed(NEW, 2, unavailable=1)),
            (POOL, 4, changed(NEW, 3)),
            (POOL, 5, changed(NEW, 3)),
        )
    )
    assert (row.revision, row.previous, row.begun_at, row.ended_at) == (NEW, OLD, hour(1), hour(4))
    assert (row.nodes, row.machines, row.unavailable_max, row.outcome) == (3, 3, 2, "Complete")


def test_another_target_supersedes_a_rollout_and_begins_the_next() -> None:
    first, second = rollouts(decided((POOL, 1, changed(NEW, 1)), (POOL, 2, changed(NEWER, 0))))
    assert (first.ended_at, first.outcome) == (hour(2), "Superseded")
    assert (second.revision, second.begun_at, second.ended_at) == (NEWER, hour(2), None)


def test_a_pool_whose_nodes_all_have_the_target_rolls_nothing_out() -> None:
    assert rollouts(decided((POOL, 1, changed(NEW, 3)), (POOL, 2, changed(None, 0)))) == []


def test_a_node_that_comes_is_a_rollout_of_its_own() -> None:
    rows = rollouts(
        decided((POOL, 1, changed(NEW, 3)), (POOL, 2, changed(NEW, 3, of=4)), (POOL, 3, changed(NEW, 4, of=4)))
    )
    assert [(row.nodes, row.outcome) for row in rows] == [(1, "Complete")]


def test_a_pool_that_goes_ends_its_rollout() -> None:
    (row,) = rollouts(decided((POOL, 1, changed(NEW, 0)), (POOL, 2, MachineConfigPoolWithdrawn())))
    assert (row.outcome, row.ended_at) == ("Withdrawn", hour(2))


def test_an_update_is_drained_applied_and_given_back() -> None:
    (row,) = updates(decided(("n1", 1, DRAINING), ("n1", 2, APPLYING), ("n1", 3, APPLYING), ("n1", 4, IDLE)))
    assert (row.begun_at, row.applying_at, row.ended_at) == (hour(1), hour(2), hour(4))
    assert (row.pool, row.revision, row.drained, row.outcome) == (POOL, NEW, True, "Updated")


@pytest.mark.parametrize(
    ("phases", "outcome", "drained"),
    [
        ((DRAINING, IDLE), "Returned", True),
        ((APPLYING, IDLE), "Updated", False),
        ((APPLYING, FAILED, IDLE), "Updated", False),
        ((DRAINING, phase("Idle", pool=None)), "Left", True),
        ((DRAINING, APPLYING, phase("Idle", pool="other")), "Left", True),
        ((DRAINING,), None, True),
    ],
)
def test_outcomes_of_an_update(phases: tuple[Any, ...], outcome: str | None, drained: bool) -> None:
    (row,) = updates(decided(*(("n1", at, one) for at, one in enumerate(phases))))
    assert (row.outcome, row.drained, row.ended_at is None) == (outcome, drained, outcome is None)


def test_an_update_ends_with_its_node() -> None:
    gone = event(NodeMachineGone(), "n1", number=9, at=3, source="/watchers/nodes")
    (row,) = updates([*decided(("n1", 1, DRAINING), ("n1", 2, APPLYING)), gone])
    assert (row.outcome, row.ended_at) == ("Left", hour(3))
    assert updates([gone]) == []


def test_a_failure_is_counted_once_and_recovers() -> None:
    (row,) = updates(
        decided(("n1", 1, APPLYING), ("n1", 2, FAILED), ("n1", 3, FAILED), ("n1", 4, APPLYING), ("n1", 5, FAILED))
    )
    assert (row.failures, row.failed_at, row.reason) == (2, hour(5), "ApplyTimeout")
    assert row.message == "nothing within 600 s"


def test_drains_that_do_not_finish_are_counted_with_their_update() -> None:
    (row,) = updates(
        decided(
            ("n1", 0, drain_failed(1)),
            ("n1", 1, DRAINING),
            ("n1", 2, drain_failed(1)),
            ("n1", 3, drain_failed(2, is_stuck=True)),
            ("n1", 4, drain_failed(3)),
        )
    )
    assert (row.drains_failed, row.is_stuck) == (3, True)


def test_a_node_is_updated_again_and_nodes_do_not_meet() -> None:
    rows = updates(
        decided(
            ("n1", 1, DRAINING), ("n2", 1, APPLYING), ("n1", 2, IDLE), ("n1", 3, DRAINING), ("n2", 3, IDLE),
            ("n1", 4, APPLYING),
        )
    )  # fmt: skip
    assert sorted((row.node, row.begun_at, row.outcome) for row in rows) == [
        ("n1", hour(1), "Returned"),
        ("n1", hour(3), None),
        ("n2", hour(1), "Updated"),
    ]


def test_what_the_service_decides_becomes_rows() -> None:
    """A node is drained, fails to apply, and gets there after all; then the other one."""
    log = RolloutLog(runs_on="elsewhere")
    for node in ("n1", "n2"):
        log.node(node, 1)
    base = machine_config(config_file("/etc/motd", "hello\n"), uid="base")
    log.record("base", base, 2)
    log.record(POOL, config_pool(debounce_s=0, max_unavailable="100%"), 3)
    for node in ("n1", "n2"):
        log.reports(node, 4)
    log.record(POOL, config_pool(debounce_s=0), 5)
    log.record("base", base.model_copy(update={"reboot_required": True}), 10)
    for at, node in enumerate(("n1", "n2"), 2):
        log.drained(node, at * 10)
        log.reports(node, at * 10 + 1, state="error", current_revision=None, error="EIO")
        log.reports(node, at * 10 + 2)
        log.isolated(node, at * 10 + 3, unschedulable=False)
    state = folded(UpdatesProjection(), log.messages()).state
    assert isinstance(state, ConfigUpdates)
    first, second = sorted(state.rollout.rows.values(), key=lambda row: row.begun_at)
    assert ([first.outcome, second.outcome], second.previous) == (["Complete", "Complete"], first.revision)
    assert (second.nodes, second.unavailable_max, second.max_unavailable) == (2, 1, 1)
    drained = [row for row in state.update.rows.values() if row.drained]
    assert [(row.node, row.outcome, row.failures, row.reason) for row in drained] == [
        ("n1", "Updated", 1, "ApplyFailed"),
        ("n2", "Updated", 1, "ApplyFailed"),
    ]
    assert all(row.ended_at and row.applying_at and row.begun_at < row.applying_at < row.ended_at for row in drained)

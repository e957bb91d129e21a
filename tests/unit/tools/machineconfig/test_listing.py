"""What lists and progress make of the rows of machine configuration."""

from typing import Any

import pytest

from gpuledger.events.machine_config import ConfigFile, ConfigUnit
from gpuledger.tools.errors import RequestError
from gpuledger.tools.machineconfig.listing import config_rows, history_rows, node_rows, pool_rows, rendered_rows
from gpuledger.tools.machineconfig.pool_changes import rollback_target
from gpuledger.tools.machineconfig.progress import changes, progress_document, progress_of
from gpuledger.tools.machineconfig.tables import ConfigTables
from support.config_rollouts import NEW, NEWER, OLD, POOL, changed, rendered
from support.config_tables import config_row, node_row, pool_row, rendered_row, status_row, tables_of
from support.events import hour

HISTORY = (rendered_row(rendered(OLD, "base"), 1), rendered_row(rendered(NEW, "base", "sysctl"), 2))
DONE, BEHIND = node_row("n1", NEW), node_row("n2", OLD)
DRAINS = node_row("n3", OLD, phase="Draining", cordoned=True, drain_retries=2, drain_started_at=hour(1))
FAILED = node_row("n4", OLD, phase="Failed", desired_revision=NEW, message="no space left", labels='{"x":"y"}')


def fleet(*nodes: Any, **pool: Any) -> ConfigTables:
    status = changed(NEW, sum(one.current_revision == NEW for one in nodes), len(nodes), unavailable=1)
    return tables_of(
        configs=(config_row("base"), config_row("sysctl", files=(ConfigFile(path="/etc/a", hash="0" * 64),))),
        pools=(pool_row(**pool),),
        rendered=HISTORY,
        statuses=(status_row(status),),
        nodes=nodes,
    )


def test_a_config_says_which_pools_it_went_into() -> None:
    units = (ConfigUnit(name="tuned.service"),)
    tables = fleet(DONE)._replace(configs={"other": config_row("other", units=units), **fleet().configs})
    rows = {row["name"]: row for row in config_rows(tables)}
    assert {name: row["pools"] for name, row in rows.items()} == {"base": [POOL], "other": [], "sysctl": [POOL]}
    assert (rows["sysctl"]["files"], rows["other"]["units"]) == (["/etc/a"], ["tuned.service"])


def test_a_pool_has_its_counters_and_conditions() -> None:
    (row,) = pool_rows(fleet(DONE, BEHIND))
    assert (row["target"], row["config"], row["updated"], row["updating"]) == (NEW, OLD, "False", "True")
    assert (row["machines"], row["updated_machines"], row["unavailable"]) == (2, 1, 1)


def test_a_pool_that_nobody_decided_on_is_there() -> None:
    (row,) = pool_rows(tables_of(pools=(pool_row(),)))
    assert (row["updated"], row["degraded"], row["machines"]) == ("Unknown", "Unknown", None)


def test_rendered_configs_say_who_has_them() -> None:
    rows = list(history_rows(fleet(DONE, BEHIND, DRAINS), POOL))
    assert [(row["name"], row["role"], row["nodes"]) for row in rows] == [(NEW, "target", 1), (OLD, None, 2)]
    assert rows[0]["sources"] == ["base", "sysctl"]
    assert list(rendered_rows(fleet(DONE, BEHIND, DRAINS))) == rows
    assert next(history_rows(fleet(pinned_revision=NEW), POOL))["role"] == "pinned"


def test_nodes_in_trouble_come_first() -> None:
    assert [row["node"] for row in node_rows(fleet(DONE, BEHIND, DRAINS, FAILED), POOL)] == ["n4", "n3", "n2", "n1"]


def test_nodes_of_another_pool_and_nodes_that_are_gone_are_left_out() -> None:
    others = (node_row("n8", pool="cpu", decided_pool="cpu"), node_row("n9", uid=None))
    assert [row["node"] for row in node_rows(fleet(DONE, *others), POOL)] == ["n1"]


def test_progress_counts_each_node_once() -> None:
    found = progress_document(progress_of(fleet(DONE, BEHIND, DRAINS, FAILED), POOL))
    assert (found["nodes"], found["updated"], found["waiting"], found["done"]) == (4, 1, ["n2"], False)
    assert [row["node"] for row in (*found["inFlight"], *found["failed"])] == ["n3", "n4"]
    assert found["holds"] == ["1 node waits: 1 of at most 1 are unavailable."]


def test_a_node_that_has_the_target_and_is_not_given_back_is_not_done() -> None:
    found = progress_of(fleet(DONE, node_row("n2", NEW, phase="Applying")), POOL)
    assert (found.updated, found.is_done) == (1, False)
    tables = fleet(DONE, node_row("n2", NEW))
    assert progress_of(tables, POOL).is_done
    waits = tables.pools[POOL]._replace(waits_since=hour(2))
    looks = progress_of(tables._replace(pools={POOL: waits}), POOL)
    assert not looks.is_done
    assert "waits for further changes" in next(looks.holds())


def test_a_paused_pool_says_so_and_how_to_go_on() -> None:
    (hold,) = progress_of(fleet(BEHIND, paused=True), POOL).holds()
    assert "gpuledger config resume gpu" in hold


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (BEHIND, DRAINS._replace(node="n2", drain_retries=0), ["n2: cordoned, drains"]),
        (DRAINS, DRAINS._replace(drain_retries=3), ["n3: the drain has not finished, attempt 3"]),
        (DRAINS, DRAINS._replace(phase="Applying", desired_revision=NEW), [f"n3: applies {NEW}"]),
        (DRAINS, DRAINS._replace(phase="Idle"), [f"n3: is given back, has {OLD}"]),
        (FAILED._replace(phase="Applying"), FAILED, ["n4: failed: no space left"]),
        (FAILED, FAILED._replace(phase="Idle", current_revision=NEW), [f"n4: is done, has {NEW}"]),
        (BEHIND, BEHIND._replace(agent_state="error", last_error="EIO"), ["n2: agent is error: EIO"]),
        (BEHIND, BEHIND, []),
    ],
)
def test_what_changed_is_a_line(before: Any, after: Any, says: list[str]) -> None:
    looks = (progress_of(fleet(DONE, one), POOL) for one in (before, after))
    assert [line for line in changes(*looks) if not line.startswith("1 node waits")] == says


def test_changes_of_the_pool_are_lines_too() -> None:
    before = progress_of(fleet(DONE, BEHIND), POOL)
    after = progress_of(fleet(DONE, node_row("n5", OLD), paused=True), POOL)
    lines = list(changes(before, after))
    assert lines[:3] == ["gpu: paused", "n5: is of this pool now", "n2: is no longer of this pool"]
    assert progress_of(fleet(DONE, BEHIND), POOL).holds() is not None


def test_a_rollback_goes_to_what_was_requested_else_to_what_worked_last() -> None:
    tables = fleet(DONE)
    assert rollback_target(tables, POOL, None).name == OLD
    assert rollback_target(tables, POOL, NEW.rpartition("-")[2]).name == NEW
    newer = tables._replace(rendered={**tables.rendered, NEWER: rendered_row(rendered(NEWER), 3)})
    status = status_row(changed(NEWER, 0).model_copy(update={"last_successful_revision": OLD}))
    assert rollback_target(newer._replace(statuses={POOL: status}), POOL, None).name == OLD
    status = status_row(changed(NEWER, 3).model_copy(update={"last_successful_revision": NEWER}))
    assert rollback_target(newer._replace(statuses={POOL: status}), POOL, None).name == NEW


@pytest.mark.parametrize(
    ("tables", "to", "says"),
    [
        (fleet()._replace(rendered={}, statuses={}), None, "Nothing has been rendered"),
        (fleet()._replace(rendered={NEW: HISTORY[1]}), None, "no rendered configuration before"),
        (fleet(), "nothing", f"no rendered configuration 'nothing'. It has {NEW}, {OLD}"),
        (tables_of(), None, "was not found"),
    ],
)
def test_a_rollback_to_nowhere_is_refused(tables: ConfigTables, to: str | None, says: str) -> None:
    with pytest.raises(RequestError) as refused:
        rollback_target(tables, POOL, to)
    assert says in str(refused.value)

"""What the preparation decides: phases and states by every way that leads to them, and whose facts count."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from gpuledger.domain.bootstrap.observations import heartbeat_times
from gpuledger.events.device import DeviceHealthChanged, DeviceWithdrawn
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeBootstrapWithdrawn, NodeInventoryWithdrawn
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from support.bootstrap import (
    MODULE,
    NODE,
    Prepared,
    Step,
    all_ready,
    cards,
    components,
    described,
    detected,
    heartbeat,
    inventory,
    prepared,
    ready,
    second,
    steps,
)

DRIVER_FAILS = "failing:driver-validation"
UNFIT = DeviceHealthChanged(healthy=False, kind="XID 79", message="The GPU has fallen off the bus.")
FIT = DeviceHealthChanged(healthy=True)


class Edge(NamedTuple):
    """A node that is there, one more fact, and the phases and states that are come into."""

    begin: Callable[[], Prepared]
    at: float
    subject: str
    data: Payload
    steps: list[Step]


def beat(node: Prepared, *times: float) -> None:
    for time in times:
        node.record(time, NODE, heartbeat())


def both(phase: str, state: str) -> list[Step]:
    return [(NODE, phase), ("d1", state)]


AGAIN = [(NODE, "Validating"), ("d1", "Validating"), (NODE, "Ready"), ("d1", "Ready")]


def failed_before_ready() -> Prepared:
    return prepared("d1", facts=all_ready(validator=DRIVER_FAILS), heartbeat_count=0)


def failed_after_ready() -> Prepared:
    node = ready("d1")
    node.record(10, NODE, all_ready(validator=DRIVER_FAILS))
    return node


def disabled() -> Prepared:
    node = ready("d1")
    node.record(10, NODE, inventory(managed=False))
    return node


def on_the_way(**pods: str) -> Prepared:
    return prepared("d1", facts=components(**pods), heartbeat_count=0)


def almost() -> Prepared:
    return prepared("d1", facts=all_ready(), heartbeat_count=2)


def without_gfd() -> Prepared:
    node = prepared("d1", facts=all_ready(gfd="waiting"))
    node.record(6, MODULE, SettingsChanged(gfd_enabled=False))
    return node


EDGES = {
    "Validating to GFD": Edge(on_the_way, 9, NODE, components(validator="ready"), [(NODE, "GFD")]),
    "Validating to Monitoring": Edge(on_the_way, 9, NODE, all_ready(), [(NODE, "Monitoring")]),
    "Validating to failed by the driver": Edge(
        on_the_way, 9, NODE, components(validator=DRIVER_FAILS), both("ValidatingFailed", "Faulted")
    ),
    "Validating to failed by the toolkit": Edge(
        on_the_way, 9, NODE, components(validator="failing:cuda-validation"), both("ValidatingFailed", "Faulted")
    ),
    "GFD to Monitoring": Edge(
        lambda: on_the_way(validator="ready"), 9, NODE, all_ready(dcgm="waiting"), [(NODE, "Monitoring")]
    ),
    "GFD to failed": Edge(
        lambda: on_the_way(validator="ready"), 9, NODE, all_ready(gfd="failing"), both("ValidatingFailed", "Faulted")
    ),
    "Monitoring to Ready": Edge(almost, 9, NODE, heartbeat(), both("Ready", "Ready")),
    "Monitoring to failed by DCGM": Edge(
        almost, 9, NODE, all_ready(dcgm="failing"), both("ValidatingFailed", "Faulted")
    ),
    "Monitoring to failed by the exporter": Edge(
        almost, 9, NODE, all_ready(dcgm_exporter="failing"), both("ValidatingFailed", "Faulted")
    ),
    "Monitoring stays when a heartbeat is lost": Edge(almost, 9, NODE, heartbeat(fresh=False), [(NODE, "Monitoring")]),
    "Ready to failed by a heartbeat": Edge(
        lambda: ready("d1"), 9, NODE, heartbeat(fresh=False), both("ValidatingFailed", "Faulted")
    ),
    "Ready to failed by a pod of GFD that waits": Edge(
        lambda: ready("d1"), 9, NODE, all_ready(gfd="waiting"), both("ValidatingFailed", "Faulted")
    ),
    "Ready stays when a pod of DCGM is gone": Edge(
        lambda: ready("d1"), 9, NODE, components(validator="ready", gfd="ready", dcgm_exporter="ready"), []
    ),
    "Ready to failed by a pod of the exporter that is gone": Edge(
        lambda: ready("d1"), 9, NODE, components(validator="ready", gfd="ready", dcgm="ready"),
        both("ValidatingFailed", "Faulted"),
    ),
    "Ready to failed by an incomplete inventory": Edge(
        lambda: ready("d1"), 9, NODE, inventory(complete=False), both("ValidatingFailed", "Faulted")
    ),
    "Ready stays when the validator restarts": Edge(lambda: ready("d1"), 9, NODE, all_ready(validator="waiting"), []),
    "Ready to Disabled": Edge(lambda: ready("d1"), 9, NODE, inventory(managed=False), both("Disabled", "Discovered")),
    "Ready to GFD when that is switched on": Edge(
        without_gfd, 9, MODULE, SettingsChanged(), [(NODE, "Validating"), *both("GFD", "Validating")]
    ),
    "failed before Ready, then fine, to Monitoring": Edge(
        failed_before_ready, 9, NODE, all_ready(), [*both("Validating", "Validating"), (NODE, "Monitoring")]
    ),
    "failed after Ready, then fine, to Ready": Edge(failed_after_ready, 11, NODE, all_ready(), AGAIN),
    "failed after Ready stays while something lost is not back": Edge(
        failed_after_ready, 11, NODE, all_ready(gfd="waiting"), [(NODE, "ValidatingFailed")]
    ),
    "failed to Disabled": Edge(
        failed_after_ready, 11, NODE, inventory(managed=False), both("Disabled", "Discovered")
    ),
    "Disabled to Ready, where everything kept running": Edge(disabled, 11, NODE, inventory(), AGAIN),
    "Disabled stays, whatever fails": Edge(disabled, 11, NODE, components(validator="failing", gfd="failing"), []),
    "a new device on a node that is Ready": Edge(
        lambda: ready("d1"), 9, "d2", detected("GPU-d2"),
        [(NODE, "Validating"), ("d2", "Validating"), (NODE, "Ready"), ("d2", "Ready")],
    ),
    "a new device on a node that is on the way": Edge(almost, 9, "d2", detected("GPU-d2"), [("d2", "Validating")]),
    "a new device on a node that failed": Edge(
        failed_after_ready, 11, "d2", detected("GPU-d2"), [("d2", "Validating"), ("d2", "Faulted")]
    ),
    "a new device on a node that is not managed": Edge(disabled, 11, "d2", detected("GPU-d2"), [("d2", "Discovered")]),
    "a device that is gone": Edge(lambda: ready("d1", "d2"), 9, "d2", DeviceWithdrawn(), []),
    "a card that fails": Edge(lambda: ready("d1"), 9, "GPU-d1", UNFIT, [(NODE, "Ready"), ("d1", "Faulted")]),
    "a card that the agent misses": Edge(
        lambda: ready("d1"), 9, "d1", described(missing=True), [(NODE, "Ready"), ("d1", "Faulted")]
    ),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES.keys())
def test_edge(edge: Edge) -> None:
    assert steps(edge.begin().record(edge.at, edge.subject, edge.data)) == edge.steps


def test_a_node_begins_with_validating() -> None:
    node = Prepared()
    assert node.record(1, "d1", detected("GPU-1")) == []
    assert steps(node.record(2, NODE, inventory())) == [(NODE, "Validating"), ("d1", "Validating")]
    assert node.device("d1") == ("Validating", "NodeValidating")


def test_a_node_where_everything_runs_already_passes_through_validating() -> None:
    node = Prepared()
    node.record(1, NODE, all_ready())
    beat(node, 2, 3, 4)
    node.record(5, "d1", detected("GPU-1"))
    assert steps(node.record(5, NODE, inventory())) == AGAIN
    assert node.conditions()["ReadyForPooling"] == ("True", "ReadyForPooling")


def test_what_went_while_a_node_was_not_managed_was_not_lost() -> None:
    node = disabled()
    node.record(20, NODE, components())
    assert steps(node.record(30, NODE, inventory())) == both("Validating", "Validating")
    node.record(31, NODE, all_ready())
    assert node.phase() == "Monitoring"
    beat(node, 32, 33, 34)
    assert node.phase() == "Ready"


def test_a_component_that_went_while_a_node_was_not_managed_just_starts() -> None:
    node = disabled()
    node.record(20, NODE, all_ready(gfd="waiting"))
    node.record(30, NODE, inventory())
    assert node.phase() == "GFD"


def test_the_latest_looks_are_kept_in_the_order_of_their_times() -> None:
    node = prepared("d1", heartbeat_count=0)
    beat(node, *range(20, 31), 15, 25)
    assert heartbeat_times(node.state.node.rows[NODE]) == [second(time) for time in range(21, 31)]


def test_nothing_is_decided_while_the_module_is_disabled_or_its_prerequisite_is_not_met() -> None:
    node = ready("d1")
    node.record(10, MODULE, SettingsChanged(enabled=False))
    assert node.record(11, NODE, heartbeat(fresh=False)) == []
    assert steps(node.record(12, MODULE, SettingsChanged())) == [
        (NODE, "Validating"),
        (NODE, "Monitoring"),
        ("d1", "Validating"),
    ]
    node.record(13, MODULE, ModulePrerequisiteChanged(met=False, reason="Told"))
    assert [node.record(time, NODE, heartbeat()) for time in (14, 15, 16)] == [[], [], []]
    assert steps(node.record(17, MODULE, ModulePrerequisiteChanged(met=True, reason="Told"))) == both("Ready", "Ready")


def test_a_node_that_is_gone_is_forgotten() -> None:
    node = ready("d1")
    node.record(8, NODE, all_ready(validator="waiting"))
    assert node.wait(9) == []
    node.record(9, "GPU-d1", UNFIT)
    node.record(10, "d1", DeviceWithdrawn())
    (decided,) = node.record(11, NODE, NodeInventoryWithdrawn())
    assert isinstance(decided.data, NodeBootstrapWithdrawn)
    assert node.record(12, NODE, components()) == []
    left = {name: len(table.rows) for name, table in node.state.tables().items() if table.rows}
    assert left == {"bootstrap_settings": 1}
    assert node.record(13, NODE, components()) == []
    assert node.wait(10_000) == []


def test_facts_about_a_node_that_was_gone_belong_to_its_next_life() -> None:
    node = ready("d1")
    node.record(11, NODE, components())
    node.record(20, NODE, all_ready())
    node.record(21, NODE, heartbeat())
    go(node, 12)
    come_back(node, 22)
    assert node.phase() == "Monitoring"
    beat(node, 23, 24)
    assert node.phase() == "Ready"


def test_heartbeats_after_a_node_was_gone_belong_to_its_next_life_and_earlier_ones_do_not() -> None:
    node = ready("d1")
    node.record(11, NODE, components())
    node.record(21, NODE, heartbeat())
    go(node, 12)
    assert heartbeat_times(node.state.node.rows[NODE]) == [second(21)]


def go(node: Prepared, at: float) -> None:
    node.record(at, "d1", DeviceWithdrawn())
    node.record(at, NODE, NodeInventoryWithdrawn())


def come_back(node: Prepared, at: float) -> list[Step]:
    recorded = [*node.record(at, "d1", detected("GPU-d1")), *node.record(at, NODE, inventory())]
    return steps(recorded)


def test_a_node_that_is_made_anew_around_pods_that_stay_is_as_it_was() -> None:
    node = ready("d1")
    node.record(9, "GPU-d1", UNFIT)
    go(node, 10)
    assert node.phase() is None
    assert come_back(node, 11) == [(NODE, "Validating"), (NODE, "Ready"), ("d1", "Validating"), ("d1", "Faulted")]
    node.record(12, NODE, heartbeat(fresh=False))
    assert node.phase() == "ValidatingFailed"


def test_a_node_that_comes_back_after_its_pods_went_is_prepared_from_nothing() -> None:
    node = ready("d1")
    node.record(9, "GPU-d1", UNFIT)
    go(node, 10)
    node.record(11, NODE, components())
    assert come_back(node, 12) == both("Validating", "Validating")
    node.record(13, NODE, all_ready())
    assert node.conditions()["MonitoringMissing"] == ("True", "HeartbeatMissing")


def test_an_agent_reports_on_its_own_node_only() -> None:
    node = ready("d1")
    assert node.record(10, NODE, heartbeat(fresh=False), source="/nodes/w2/agent") == []
    assert node.record(10, "GPU-d1", UNFIT, source="/nodes/w2/agent") == []
    assert node.record(10, NODE, heartbeat(fresh=False), source="/services/pools") == []
    assert node.record(10, NODE, cards(driver=False), source="/nodes/w2/agent") == []
    assert node.device("d1") == ("Ready", "Validated")


def test_a_node_whose_agent_finds_no_driver_fails_until_it_finds_one() -> None:
    node = ready("d1")
    assert node.record(10, NODE, cards()) == []
    assert steps(node.record(11, NODE, cards(driver=False))) == both("ValidatingFailed", "Faulted")
    assert node.record(12, NODE, cards(driver=False)) == []
    assert steps(node.record(13, NODE, cards())) == AGAIN


def test_the_agents_report_on_the_driver_is_forgotten_with_its_node() -> None:
    node = ready("d1")
    node.record(9, NODE, cards(driver=False))
    node.record(9, NODE, components())
    go(node, 10)
    assert (NODE in node.state.node.rows, come_back(node, 12)) == (False, both("Validating", "Validating"))


def test_a_new_agents_report_on_the_driver_holds_when_the_nodes_end_is_recorded_later() -> None:
    node = ready("d1")
    node.record(9, NODE, components())
    node.record(11, NODE, cards(driver=False))
    go(node, 10)
    assert come_back(node, 12)[-1] == ("d1", "Faulted")


def test_a_component_is_ready_when_one_of_its_pods_is() -> None:
    node = prepared("d1", facts=all_ready())
    pods = all_ready().pods
    old = pods[0].model_copy(update={"pod": "a-old-one", "ready": False, "failing": True})
    assert steps(node.record(9, NODE, all_ready().model_copy(update={"pods": (old, *pods)}))) == []


def test_a_late_fact_changes_nothing_that_is_newer() -> None:
    node = ready("d1")
    assert steps(node.record(1.5, NODE, components(validator="failing", gfd="failing"))) == []
    assert steps(node.record(2.5, NODE, heartbeat(fresh=False))) == []
    assert node.phase() == "Ready"


def test_no_decision_has_a_time_before_an_earlier_one_about_its_node() -> None:
    node = ready("d1")
    node.record(100, NODE, heartbeat(fresh=False))
    decided = node.record(50, "GPU-d1", UNFIT)
    assert {one.time for one in decided} == {second(100)}


def test_each_of_several_decisions_about_a_subject_has_its_own_id_and_cause() -> None:
    node = failed_after_ready()
    decided = [one for one in node.record(11, NODE, all_ready()) if one.subject == NODE]
    assert decided[1].causation_id == decided[0].id
    assert len({one.id for one in decided}) == len(decided) == 2


def test_a_change_of_one_node_evaluates_no_other() -> None:
    node = ready("d1")
    node.record(10, "d9", detected("GPU-9", "w9"))
    node.record(10, "w9", inventory())
    looked_at: list[str] = []
    where = node.state.device.where

    def noting(column: str, value: object) -> list[object]:
        looked_at.append(str(value))
        return list(where(column, value))

    node.state.device.where = noting  # type: ignore[method-assign, assignment]
    node.record(11, NODE, heartbeat(fresh=False))
    assert set(looked_at) == {NODE}

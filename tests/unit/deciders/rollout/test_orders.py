"""Which of several orders to a node the reports of its agent answer."""

from datetime import timedelta
from typing import Any

from support.machine_configs import config_file, config_pool, machine_config
from support.rollout import RolloutLog, machine, phases


def drained() -> RolloutLog:
    """A pool whose one node is to have a first configuration from second 20 on."""
    log = RolloutLog()
    log.record("worker", config_pool(debounce_s=0), 0)
    log.node("n1", 1, current_revision="rendered-worker-old", agent_state="done")
    change(log, "1\n", 10)
    log.drained("n1", 20)
    return log


def change(log: RolloutLog, content: str, at_s: float) -> list[Any]:
    """Another content of the configuration; what is decided then."""
    return log.record("sysctl", machine_config(config_file(content=content)), at_s)


def test_an_agent_that_was_to_have_something_else_meanwhile_has_to_report_again() -> None:
    log = drained()
    log.reports("n1", 21)
    log.isolated("n1", 22, unschedulable=False)
    change(log, "2\n", 23)
    log.drained("n1", 24)
    change(log, "1\n", 25)
    assert log.row("n1").phase == "Applying"
    assert phases(log.reports("n1", 26)) == [("n1", "Idle")]


def test_a_report_about_an_earlier_order_of_the_same_revision_answers_nothing() -> None:
    log = drained()
    orders = []
    orders.append(log.row("n1").desired_set_at)
    log.reports("n1", 21, desired_set_at=orders[0])
    log.isolated("n1", 22, unschedulable=False)
    change(log, "2\n", 23)
    log.drained("n1", 24)
    orders.append(log.row("n1").desired_set_at)
    change(log, "1\n", 25)
    orders.append(log.row("n1").desired_set_at)
    assert not phases(log.reports("n1", 26, desired_set_at=orders[0]))
    assert not phases(log.reports("n1", 27, desired_set_at=orders[1]))
    assert phases(log.reports("n1", 28, desired_set_at=orders[2])) == [("n1", "Idle")]
    assert log.row("n1").is_confirmed()


def test_a_report_about_the_last_order_answers_it_whatever_the_clock_of_the_node_says() -> None:
    log = drained()
    change(log, "2\n", 23)
    order = log.row("n1").desired_set_at
    assert phases(log.reports("n1", 22, recorded_s=24, desired_set_at=order)) == [("n1", "Idle")]


def test_annotations_that_come_after_the_report_of_the_end_begin_nothing_anew() -> None:
    log = drained()
    before: dict[str, Any] = {"current_revision": "rendered-worker-old", "agent_state": "applying"}
    log.reports("n1", 21, state="applying", current_revision="rendered-worker-old")
    assert phases(log.reports("n1", 22)) == [("n1", "Idle")]
    assert log.record("n1", machine("n1", **before), 23) == []
    assert (log.row("n1").agent_state, log.status("worker").ready_count) == ("done", 1)
    assert phases(log.record("n1", machine("n1", **before, reboot_pending=True), 60)) == [("n1", "Applying")]


def test_two_orders_at_one_time_are_told_apart() -> None:
    log = drained()
    first = log.row("n1").desired_set_at
    assert first is not None
    change(log, "2\n", 20)
    assert log.row("n1").desired_set_at == first + timedelta(microseconds=1)

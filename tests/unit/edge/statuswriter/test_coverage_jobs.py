"""When a waiting Job is started, and what is announced of one that ended."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.kube.events import NOTE_BYTES_MAX
from gpuledger.edge.statuswriter.desired.coverage_jobs import (
    CoverageJob,
    coverage_job,
    job_to_start,
    nodes_to_check,
    results,
)
from gpuledger.edge.statuswriter.events.series import series_name
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeInventoryChanged, NodeObserved
from gpuledger.events.settings import SettingsChanged
from support.gpu_states import INCOMPLETE, desired_state
from support.inventory import MODULE

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
HOURS = st.integers(0, 200)
WAITING = CoverageJob("gpus", "waits", "7", True, None, None, False)


def hour(number: float) -> datetime:
    return START + timedelta(hours=number)


def ended(name: str, started: float, *, passed: bool = False) -> CoverageJob:
    return CoverageJob("gpus", name, "5", False, hour(started), hour(started + 0.1), passed)


def starts(jobs: list[CoverageJob], overdue: dict[str, float], now: float) -> str | None:
    found = job_to_start(jobs, {node: hour(at) for node, at in overdue.items()}, hour(now), DAY)
    return None if found is None else found.name


@pytest.mark.parametrize(
    ("jobs", "overdue", "now", "name"),
    [
        ([WAITING], {"a": 1}, 2, "waits"),
        ([WAITING], {}, 2, None),
        ([], {"a": 1}, 2, None),
        ([ended("old", 0), WAITING], {"a": 1}, 2, "waits"),
        ([ended("old", 1.5), WAITING], {"a": 1}, 2, None),
        ([ended("old", 1.5), WAITING], {"a": 1, "b": 1.7}, 2, "waits"),
        ([ended("old", 1.5), WAITING], {"a": 1}, 25.4, None),
        ([ended("old", 1.5), WAITING], {"a": 1}, 25.5, "waits"),
        ([ended("older", 0), ended("old", 1.5), WAITING], {"a": 1}, 2, None),
        ([CoverageJob("gpus", "runs", "5", False, hour(1), None, False), WAITING], {"a": 1.5}, 2, None),
        ([CoverageJob("gpus", "begins", "5", False, None, None, False), WAITING], {"a": 1.5}, 2, None),
    ],
)
def test_a_job_is_started_for_what_no_earlier_one_can_have_seen(
    jobs: list[CoverageJob], overdue: dict[str, float], now: float, name: str | None
) -> None:
    assert starts(jobs, overdue, now) == name


@given(st.lists(HOURS, min_size=1, max_size=5), st.lists(HOURS, max_size=5), HOURS)
def test_what_was_started_is_not_started_again_for_the_same(since: list[int], runs: list[int], now: int) -> None:
    overdue = {str(at): float(at) for at in since}
    jobs = [ended(f"old-{at}", at) for at in runs]
    if starts([*jobs, WAITING], overdue, now) is None:
        return
    begins = WAITING._replace(is_suspended=False)
    assert starts([*jobs, begins, WAITING._replace(name="next")], overdue, now) is None
    latest = float(max(now, *since))
    assert starts([*jobs, ended("waits", latest), WAITING._replace(name="next")], overdue, latest + 23) is None
    assert starts([*jobs, ended("waits", latest), WAITING._replace(name="next")], overdue, latest + 24) == "next"


def job(**status: Any) -> dict[str, Any]:
    """As a controller keeps it."""
    metadata = {"namespace": "gpus", "name": "j", "resourceVersion": "3"}
    return {"metadata": metadata, "spec": {"suspend": not status}, "status": status}


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T02:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "ends", "passed"),
    [
        ([], False, False),
        ([condition("Suspended", "False"), condition("FailureTarget")], False, False),
        ([condition("FailureTarget"), condition("Failed")], True, False),
        ([condition("SuccessCriteriaMet"), condition("Complete")], True, True),
    ],
)
def test_the_state_of_a_job_is_in_its_conditions(conditions: list[Any], ends: bool, passed: bool) -> None:
    read = coverage_job(job(startTime="2026-01-01T01:00:00Z", conditions=conditions))
    assert (read.started_at, read.ended_at is not None, read.has_passed) == (hour(1), ends, passed)
    assert (read.waits, read.runs) == (False, not ends)
    assert not ends or read.ended_at == hour(2)


def test_a_suspended_job_waits() -> None:
    read = coverage_job(job())
    assert (read.waits, read.runs, read.started_at) == (True, False, None)
    assert read == CoverageJob("gpus", "j", "3", True, None, None, False)


def test_what_ended_is_announced_of_the_nodes_that_it_was_to_check() -> None:
    overdue = {"before": hour(1), "after": hour(3), "also": hour(2)}
    found = list(results(ended("j", 2), overdue))
    assert [one.key.name for one in found] == ["also", "before"]
    assert all(one.is_warning and one.happened_at == hour(2.1) for one in found)
    assert found[0].note.endswith("`kubectl --namespace gpus logs job/j`.")
    assert "labels that differ" in found[0].note
    (passed,) = results(ended("j", 2, passed=True), {"before": hour(1)})
    assert (passed.is_warning, "found every label" in passed.note) == (False, True)
    assert list(results(WAITING, overdue)) == []
    again = list(results(ended("j", 2), overdue))
    assert [series_name(one, 600.0) for one in again] == [series_name(one, 600.0) for one in found]
    assert series_name(found[0], 600.0) != series_name(next(results(ended("k", 2), overdue)), 600.0)
    long = ended("j" * 63, 2)._replace(namespace="n" * 63)
    assert len(next(results(long, overdue)).note.encode()) < NOTE_BYTES_MAX


IS_INCOMPLETE = ("w1", NodeInventoryChanged(present=True, conditions=(INCOMPLETE,)))


def test_a_node_is_overdue_after_a_while_and_anew_when_what_is_recorded_of_it_changes() -> None:
    state = desired_state(("w1", NodeObserved(uid="u")), IS_INCOMPLETE)
    began = state.coverage.incomplete.rows["w1"].at
    after = timedelta(minutes=5)
    assert state.coverage.overdue(began + timedelta(minutes=4), after) == {}
    assert state.coverage.overdue(began + after, after) == {"w1": began + after}
    label = {"gpu.deckhouse.io/device-count": "3"}
    changed = desired_state(("w1", NodeObserved(uid="u")), IS_INCOMPLETE, ("w1", NodeObserved(uid="u", labels=label)))
    assert changed.coverage.overdue(began + DAY, after) == {"w1": changed.coverage.changed.rows["w1"].at}


@pytest.mark.parametrize(
    ("fact", "is_checked"),
    [
        (None, True),
        (ModulePrerequisiteChanged(met=True, reason="PrerequisitesMet"), True),
        (ModulePrerequisiteChanged(met=True, reason="NodesSurveyedByAgents"), False),
        (ModulePrerequisiteChanged(met=False, reason="NodeFeatureDiscoveryMissing"), False),
        (SettingsChanged(enabled=False), False),
        (SettingsChanged(), True),
    ],
)
def test_nodes_are_checked_where_node_feature_discovery_labels_them(fact: Any, is_checked: bool) -> None:
    facts = [IS_INCOMPLETE] if fact is None else [(MODULE, fact), IS_INCOMPLETE]
    found = nodes_to_check(desired_state(*facts), START + DAY, timedelta(minutes=5))
    assert set(found) == ({"w1"} if is_checked else set())

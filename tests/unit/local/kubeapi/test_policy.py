"""Disruption budgets, and evictions under them."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.policy import Eviction, PdbStrategy, budget_status, evicted

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def _pod(name: str, *, ready: bool = True, phase: str = "Running", **metadata: Any) -> Object:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    return {
        "metadata": {"name": name, "labels": {"app": "a"}} | metadata,
        "spec": {},
        "status": {"phase": phase, "conditions": [condition]},
    }


def _budget(name: str = "b", status: Object | None = None, **spec: Any) -> Object:
    selector = {"matchLabels": {"app": "a"}}
    made = {"metadata": {"name": name, "generation": 1}, "spec": {"selector": selector} | spec}
    return made | {"status": {"observedGeneration": 1} | (status or {})}


def _with_status(pods: list[Object], **spec: Any) -> Object:
    budget = _budget(**spec)
    return budget | {"status": budget_status(budget, pods, NOW)}


def _evict(pod: Object, *budgets: Object) -> Eviction:
    return evicted(pod, {"metadata": {"name": pod["metadata"]["name"]}}, budgets, NOW)


def _refused(pod: Object, *budgets: Object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        _evict(pod, *budgets)
    return caught.value


def _counts(status: Object) -> tuple[int, int, int, int]:
    names = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    expected, desired, healthy, allowed = (status[name] for name in names)
    return expected, desired, healthy, allowed


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1}, (3, 1, 2, 1)),
        ({"minAvailable": 0}, (3, 0, 2, 2)),
        ({"minAvailable": 5}, (3, 5, 2, 0)),
        ({"minAvailable": "50%"}, (3, 2, 2, 0)),
        ({"maxUnavailable": 2}, (3, 1, 2, 1)),
        ({"maxUnavailable": "34%"}, (3, 1, 2, 1)),
        ({"maxUnavailable": "100%"}, (3, 0, 2, 2)),
    ],
)
def test_a_budget_counts_its_pods(spec: Object, expected: tuple[int, int, int, int]) -> None:
    pods = [_pod("a"), _pod("b"), _pod("c", ready=False), _pod("other", labels={})]
    assert _counts(budget_status(_budget(**spec), pods, NOW)) == expected


def test_pods_that_go_are_not_healthy() -> None:
    pods = [_pod("a"), _pod("b", deletionTimestamp="t"), _pod("c")]
    marks = {"disruptedPods": {"c": "2026-01-02T03:03:30Z", "gone": "2026-01-02T03:04:00Z"}}
    status = budget_status(_budget(minAvailable=1, status=marks), pods, NOW)
    assert _counts(status) == (3, 1, 1, 0)
    assert set(status["disruptedPods"]) == {"c"}
    later = budget_status(_budget(minAvailable=1, status=marks), pods, NOW + timedelta(minutes=3))
    assert (_counts(later), later.get("disruptedPods")) == ((3, 1, 2, 1), None)


def test_a_selector_chooses_nothing_when_absent_and_all_when_empty() -> None:
    assert budget_status(_budget(minAvailable=0, selector=None), [_pod("a")], NOW)["expectedPods"] == 0
    assert budget_status(_budget(minAvailable=0, selector={}), [_pod("a")], NOW)["expectedPods"] == 1


def test_the_condition_keeps_the_time_of_its_last_transition() -> None:
    first = _with_status([_pod("a")], minAvailable=1)
    (condition,) = first["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "False",
        "InsufficientPods",
    )
    later = NOW + timedelta(hours=1)
    assert budget_status(first, [_pod("a")], later) == first["status"]
    (changed,) = budget_status(first, [_pod("a"), _pod("b")], later)["conditions"]
    assert (changed["status"], changed["lastTransitionTime"]) == ("True", "2026-01-02T04:04:05Z")


def test_a_pod_without_budget_goes() -> None:
    pod = _pod("a")
    outcome = _evict(pod, _budget(selector={"matchLabels": {"app": "other"}}))
    assert outcome.budget is None
    reason = outcome.pod["status"]["conditions"][1]
    assert (reason["type"], reason["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")
    assert len(pod["status"]["conditions"]) == 1


def test_an_eviction_spends_the_budget() -> None:
    budget = _with_status([_pod("a")], minAvailable=0)
    before = deepcopy(budget)
    spent = _evict(_pod("a"), budget).budget
    assert spent is not None
    assert spent["status"]["disruptionsAllowed"] == 0
    assert spent["status"]["disruptedPods"] == {"a": "2026-01-02T03:04:05Z"}
    assert spent["status"]["conditions"][0]["status"] == "False"
    assert budget == before
    assert _refused(_pod("b"), spent).code == 429


def test_a_spent_budget_blocks() -> None:
    failure = _refused(_pod("a"), _with_status([_pod("a")], minAvailable=1))
    assert (failure.code, failure.reason) == (429, "TooManyRequests")
    (cause,) = (failure.details or {})["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert set(failure.details or {}) == {"causes"}


def test_a_budget_not_yet_counted_blocks_for_a_while() -> None:
    failure = _refused(_pod("a"), _budget(minAvailable=0, status={"observedGeneration": 0}))
    assert (failure.code, (failure.details or {})["retryAfterSeconds"], failure.retry_after_s) == (429, 10, 10)


def test_two_budgets_are_not_supported() -> None:
    failure = _refused(_pod("a"), _budget("b"), _budget("c"))
    assert (failure.code, failure.reason) == (500, "")


@pytest.mark.parametrize("more", [{"phase": "Pending"}, {"phase": "Succeeded"}, {"deletionTimestamp": "t"}])
def test_what_does_not_run_needs_no_budget(more: dict[str, Any]) -> None:
    assert _evict(_pod("a", **more), _budget("b"), _budget("c")).budget is None


def test_unhealthy_pods_go_where_the_rest_is_healthy_or_always() -> None:
    sick = _pod("a", ready=False)
    healthy = _with_status([_pod("b"), sick], minAvailable=1)
    assert _evict(sick, healthy).budget is None
    short = _with_status([_pod("b"), sick], minAvailable=2)
    assert _refused(sick, short).code == 429
    assert _evict(sick, short | {"spec": short["spec"] | {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}).budget is None


def test_the_name_in_the_body_is_that_of_the_pod() -> None:
    with pytest.raises(ApiError) as caught:
        evicted(_pod("a"), {"metadata": {"name": "b"}}, (), NOW)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 1}, []),
        ({"maxUnavailable": "100%"}, []),
        ({"minAvailable": 1, "maxUnavailable": 1}, [("FieldValueInvalid", "spec")]),
        ({"minAvailable": -1}, [("FieldValueInvalid", "spec.minAvailable")]),
        ({"maxUnavailable": "101%"}, [("FieldValueInvalid", "spec.maxUnavailable")]),
        ({"maxUnavailable": "some"}, [("FieldValueInvalid", "spec.maxUnavailable")]),
        ({"unhealthyPodEvictionPolicy": "x"}, [("FieldValueNotSupported", "spec.unhealthyPodEvictionPolicy")]),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            [("FieldValueRequired", "spec.selector.matchExpressions[0].values")],
        ),
    ],
)
def test_a_budget_is_refused_under_its_field(spec: Object, expected: list[tuple[str, str]]) -> None:
    assert [(cause.reason, cause.field) for cause in PdbStrategy().validate(_budget(**spec))] == expected


def test_a_new_budget_allows_nothing() -> None:
    budget = _budget(minAvailable=1, status={"disruptionsAllowed": 9})
    PdbStrategy().default(budget)
    PdbStrategy().prepare_for_create(budget, Context(NOW, "u", []))
    assert budget["status"] == {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

"""Quotas on units of pools: what they count, what they refuse, and what they leave alone."""

from typing import Any

import pytest

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.quotas import quota_status, refuse_excess

Json = dict[str, Any]
RESOURCE = "cluster.gpu.deckhouse.io/a"
NAME = f"requests.{RESOURCE}"


def quota(hard: object = "2", name: str = NAME, **spec: Any) -> Json:
    return {"metadata": {"name": "q"}, "spec": {"hard": {name: hard}, **spec}}


def container(units: object, **more: Any) -> Json:
    return {"name": "c", "resources": {"requests": {RESOURCE: units}}, **more}


def pod(*units: object, init: tuple[Json, ...] = (), phase: str = "Pending") -> Json:
    spec = {"containers": [container(one) for one in units], "initContainers": list(init)}
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}


def refused(given: Json, limit: Json, *there: Json) -> str:
    try:
        refuse_excess(given, [limit], there)
    except ApiError as error:
        return f"{error.code} {error.message}"
    return ""


def test_what_is_more_than_is_left_is_refused() -> None:
    message = f'403 pods "p" is forbidden: exceeded quota: q, requested: {NAME}=2, used: {NAME}=1, limited: {NAME}=2'
    assert refused(pod("2"), quota(), pod("1")) == message
    assert refused(pod("1"), quota(), pod("1")) == ""
    assert refused(pod("2"), quota()) == ""


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_hold_nothing(phase: str) -> None:
    assert refused(pod("2"), quota(), pod("2", phase=phase)) == ""
    assert quota_status(quota(), [pod("2", phase=phase), pod("1", phase="Running")])["used"] == {NAME: "1"}


@pytest.mark.parametrize(
    ("given", "units"),
    [
        (pod("1", 2), 3),
        (pod("1", init=(container("3"),)), 3),
        (pod("2", init=(container("1"), container("1"))), 2),
        (pod("2", init=(container("1", restartPolicy="Always"),)), 3),
        (pod("1", init=(container("1", restartPolicy="Always"), container("3"))), 4),
        ({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, 0),
    ],
)
def test_a_pod_counts_with_what_it_holds_at_a_time(given: Json, units: int) -> None:
    assert quota_status(quota(), [given])["used"] == {NAME: str(units)}
    assert (refused(given, quota(units)), bool(refused(given, quota(units - 1)))) == ("", units > 0)


@pytest.mark.parametrize(
    "other",
    [
        quota("0", RESOURCE),
        quota("0", "requests.cpu"),
        quota("0", scopes=["NotTerminating"]),
        quota("0", scopeSelector={"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}),
    ],
)
def test_what_is_not_counted_refuses_nothing(other: Json) -> None:
    assert refused(pod("1"), other) == ""
    assert quota_status(other, [pod("1")]) == {}


def test_other_pools_are_nothing_to_a_quota() -> None:
    assert refused(pod("1"), quota("0", "requests.gpu.deckhouse.io/a")) == ""


def test_the_status_repeats_what_is_allowed() -> None:
    limit = quota("2")
    limit["spec"]["hard"]["pods"] = "10"
    assert quota_status(limit, [])["hard"] == {NAME: "2", "pods": "10"}
    assert quota_status(quota("1", "pods") | {"status": {"hard": {}}}, []) == {"hard": {}}

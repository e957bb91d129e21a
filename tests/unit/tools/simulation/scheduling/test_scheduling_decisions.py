"""What the laptop's scheduler decides itself: candidates, the best node, and what it says of pods that wait."""

from typing import Any

import pytest

from gpuledger.tools.simulation.scheduling.decide import (
    best,
    candidates,
    explanation,
    has_to_end,
    has_to_start,
    is_waiting,
    unscheduled,
)

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


def node(name: str = "n", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def pod(phase: str = "Pending", *, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {"name": "p"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("asking", "offering", "reason"),
    [
        (pod(), node(), None),
        (pod(), node(unschedulable=True), "node(s) were unschedulable"),
        (pod(), node(taints=[TAINT]), "node(s) had untolerated taint(s) {gpu: yes}"),
        (pod(), node(taints=[TAINT | {"effect": "PreferNoSchedule"}]), None),
        (pod(tolerations=[{"key": "gpu", "operator": "Exists"}]), node(taints=[TAINT]), None),
        (pod(tolerations=[{"operator": "Exists"}]), node(taints=[TAINT]), None),
        (pod(tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]), node(taints=[TAINT]), None),
        (pod(tolerations=[{"key": "gpu", "value": "no"}]), node(taints=[TAINT]), "untolerated"),
        (pod(tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]), node(taints=[TAINT]), "untol"),
        (pod(tolerations=[{"key": "other", "operator": "Exists"}]), node(taints=[TAINT]), "untolerated"),
        (pod(tolerations=[{"value": "yes"}]), node(taints=[TAINT]), "untolerated"),
        (pod(nodeSelector={"zone": "a"}), node(labels={"zone": "a"}), None),
        (pod(nodeSelector={"zone": "a"}), node(), "didn't match"),
    ],
)
def test_nodes_that_kube_scheduler_leaves_out(asking: dict[str, Any], offering: dict[str, Any], reason: str) -> None:
    found = candidates(asking, [offering])
    if reason is None:
        assert found == (("n",), {})
    else:
        assert found.names == ()
        assert reason in found.refused["n"]


def test_the_reasons_are_counted_as_kube_scheduler_words_them() -> None:
    assert explanation(["b", "a", "b."]) == "0/3 nodes are available: 1 a, 2 b."
    assert explanation([]) == "no nodes available to schedule pods"


def test_the_greatest_score_wins_and_then_the_first_name() -> None:
    assert best(["b", "a", "c"], {"a": 1, "b": 5, "c": 5}) == "b"
    assert best(["b", "a"], {}) == "a"


@pytest.mark.parametrize(
    ("one", "waits", "starts", "ends"),
    [
        (pod(), True, False, False),
        (pod(nodeName="n"), False, True, False),
        (pod("Running", nodeName="n"), False, False, False),
        (pod("Running", nodeName="n", deleted=True), False, False, True),
        (pod(deleted=True), False, False, False),
        (pod("Failed"), False, False, False),
        (pod(schedulingGates=[{"name": "wait"}]), False, False, False),
    ],
)
def test_a_pod_waits_for_a_node_a_start_or_its_end(one: dict[str, Any], waits: bool, starts: bool, ends: bool) -> None:
    assert (is_waiting(one), has_to_start(one), has_to_end(one)) == (waits, starts, ends)


def test_why_a_pod_waits_is_written_once() -> None:
    first = unscheduled(pod(), "full", "t1")
    assert first is not None
    (condition,) = first["conditions"]
    assert (condition["status"], condition["reason"], condition["lastTransitionTime"]) == (
        "False",
        "Unschedulable",
        "t1",
    )
    live = {**pod(), "status": {"conditions": [{"type": "Other"}, condition]}}
    assert unscheduled(live, "full", "t2") is None
    again = unscheduled(live, "fuller", "t2")
    assert again is not None
    assert [one["type"] for one in again["conditions"]] == ["Other", "PodScheduled"]
    assert again["conditions"][1]["lastTransitionTime"] == "t1"

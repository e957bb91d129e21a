"""Pods as kube-scheduler sends them: what they ask for is counted as Kubernetes counts."""

from typing import Any

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.model import PodRequest, Refusal
from gpuledger.edge.extender.demand import SeenPods, demand_of
from gpuledger.edge.extender.pods import SchedulablePod, read_pod

NAMES = SharingNames("example.com")


def container(always: bool = False, **amounts: Any) -> dict[str, Any]:
    requests = {f"example.com/{short.replace('_', '-')}": amount for short, amount in amounts.items()}
    found: dict[str, Any] = {"name": "c", "resources": {"requests": requests}}
    return found | ({"restartPolicy": "Always"} if always else {})


def pod(spec: dict[str, Any], **metadata: Any) -> SchedulablePod:
    return read_pod({"metadata": {"name": "p", "namespace": "ns", "uid": "u"} | metadata, "spec": spec}, NAMES)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container(gpu_core="50", gpu_memory="8Gi")]}, {"gpu-core": 50, "gpu-memory": 8 * 2**30}),
        ({"containers": [container(gpu=30), container(gpu=20)]}, {"gpu": 50}),
        ({"initContainers": [container(gpu=80)], "containers": [container(gpu=20)]}, {"gpu": 80}),
        ({"initContainers": [container(True, gpu=30)], "containers": [container(gpu=20)]}, {"gpu": 50}),
        ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}}}]}, {"nvidia.com/gpu": 2}),
        ({"containers": [container(gpu="0"), {"resources": None}, {}, None]}, {}),
        ({"containers": [container(gpu="not a quantity")]}, {}),
        ({"containers": [{"resources": {"requests": {"other.com/gpu": "1"}}}]}, {}),
        ({}, {}),
    ],
)
def test_amounts_go_by_short_name(spec: dict[str, Any], expected: dict[str, int]) -> None:
    assert dict(pod(spec).amounts) == expected


def test_a_pod_has_its_identity_annotations_and_place() -> None:
    annotations = {NAMES.allocate_hint: "h", NAMES.joint_allocate: "j", NAMES.partition_spec: "s", NAMES.allocated: "a"}
    found = pod({"nodeName": "n1"}, annotations=annotations)
    assert found == SchedulablePod("ns", "p", "u", (), "h", "j", "s", "a", "n1", False, (), True)
    assert found.pod == "ns/p"
    assert pod({}, annotations=None).allocated is None
    assert pod({}, deletionTimestamp="2026-01-01T00:00:00Z").is_over
    assert read_pod({"status": {"phase": "Failed"}}, NAMES).is_over
    assert read_pod({}, NAMES).namespace == "default"


def test_what_is_asked_for_is_a_request_a_refusal_or_nothing() -> None:
    assert isinstance(demand_of(pod({"containers": [container(gpu="50")]})), PodRequest)
    assert isinstance(demand_of(pod({"containers": [container(gpu_core="50")]})), Refusal)
    hinted = pod({"containers": [container(gpu="50")]}, annotations={NAMES.allocate_hint: "{"})
    assert isinstance(demand_of(hinted), Refusal)
    assert demand_of(pod({})) is None


def test_of_pods_that_were_seen_the_last_ones_are_kept() -> None:
    seen = SeenPods(2)
    first, second, third = (pod({}, uid=uid) for uid in "abc")
    assert [seen.add(one) for one in (first, second, first, third)] == [True, True, False, True]
    assert (seen.get("a"), seen.get("b"), seen.get("c")) == (first, None, third)
    seen.forget("a")
    seen.forget("a")
    assert seen.get("a") is None

"""What watchers make of pods that ask for shared devices, or have some: values in, values out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.watchers.decide import WatchedObjects
from gpuledger.edge.watchers.resources import sharing_pods
from gpuledger.events.payload import TEXT_LENGTH_MAX
from gpuledger.events.sharing import (
    AllocatedDevice,
    ContainerShare,
    PodSharingGone,
    PodSharingObserved,
    SharedFunction,
)
from support.odd_objects import a_list, a_map, an_object, anything, recorded, texts

NAMES = SharingNames("gpus.example", "sharing-scheduler")
KIND = sharing_pods.kind(NAMES)
CORE, RATIO, MEMORY = (f"gpus.example/gpu-{one}" for one in ("core", "memory-ratio", "memory"))
ALLOCATED = "scheduling.gpus.example/device-allocated"

Json = dict[str, Any]


def pod(
    *containers: Any, init: Any = (), annotations: Json | None = None, status: Json | None = None, **spec: Any
) -> Json:
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations or {}}
    whole = {"containers": list(containers), "initContainers": list(init)} | spec
    return {"metadata": metadata, "spec": whole, "status": status or {"phase": "Running"}}


def with_limits(limits: Json, name: str = "c", **more: Any) -> Json:
    return {"name": name, "resources": {"limits": limits}} | more


def observed(obj: Json) -> PodSharingObserved:
    part = KIND.read(obj)
    assert part.subject == "ns/p", part
    assert part.problems == ()
    return KIND.combine([part.content])


def test_all_that_is_recorded_of_a_pod() -> None:
    function = {"minor": -1, "busID": "0000:01:00.2"}
    allocation = {
        "gpu": [{"minor": 1, "resources": {CORE: "50", MEMORY: "4Gi"}, "id": "GPU-1"}],
        "rdma": [{"minor": 0, "resources": {}, "extension": {"vfs": [function]}}],
    }
    obj = pod(
        with_limits({CORE: "50", RATIO: "50", "cpu": "4"}),
        with_limits({"cpu": "1"}, "helper"),
        init=[with_limits({RATIO: "60"}, "first")],
        annotations={
            ALLOCATED: json.dumps(allocation),
            "scheduling.gpus.example/device-allocate-hint": '{"gpu":{}}',
            "scheduling.gpus.example/device-joint-allocate": "{",
            "scheduling.gpus.example/gpu-partition-spec": "{}",
        },
        status={"phase": "Pending", "containerStatuses": [{"state": {"running": {"startedAt": "t"}}}]},
        nodeName="w1",
        schedulerName="default-scheduler",
        priority=-5,
    )
    assert observed(obj) == PodSharingObserved(
        uid="u",
        node="w1",
        scheduler="default-scheduler",
        priority=-5,
        requests={"gpu-core": 50, "gpu-memory-ratio": 60},
        containers=(
            ContainerShare(name="first", requests={"gpu-memory-ratio": 60}, init=True),
            ContainerShare(name="c", requests={"gpu-core": 50, "gpu-memory-ratio": 50}),
        ),
        hint='{"gpu":{}}',
        joint="{",
        partition="{}",
        allocation={
            "gpu": (AllocatedDevice(minor=1, id="GPU-1", resources={"gpu-core": 50, "gpu-memory": 4 * 2**30}),),
            "rdma": (AllocatedDevice(minor=0, functions=(SharedFunction(minor=-1, bus_id="0000:01:00.2"),)),),
        },
        started=True,
    )


@pytest.mark.parametrize(
    ("obj", "requests"),
    [
        (pod(with_limits({RATIO: "30"}), with_limits({RATIO: "20"})), {"gpu-memory-ratio": 50}),
        (pod(with_limits({RATIO: "30"}), init=[with_limits({RATIO: "20"})]), {"gpu-memory-ratio": 30}),
        (
            pod(with_limits({RATIO: "30"}), init=[with_limits({RATIO: "20"}, restartPolicy="Always")]),
            {"gpu-memory-ratio": 50},
        ),
        (pod({"name": "c", "resources": {"requests": {MEMORY: "1Gi"}}}), {"gpu-memory": 2**30}),
        (pod(with_limits({"gpus.example/fpga": 100})), {"fpga": 100}),
        (pod(with_limits({"nvidia.com/gpu": 2}), schedulerName="sharing-scheduler"), {"nvidia.com/gpu": 2}),
        (pod(with_limits({"nvidia.com/gpu": 1, "gpus.example/rdma": 1})), {"nvidia.com/gpu": 1, "rdma": 1}),
        (pod(with_limits({"nvidia.com/gpu": 1}), annotations={ALLOCATED: "{}"}), {"nvidia.com/gpu": 1}),
        (pod(with_limits({"cpu": 1}), annotations={ALLOCATED: "{}"}), {}),
    ],
)
def test_what_a_pod_requests_at_a_time(obj: Json, requests: dict[str, int]) -> None:
    assert observed(obj).requests == requests


@pytest.mark.parametrize(
    "obj",
    [
        {},
        pod(),
        pod(with_limits({"cpu": 1})),
        pod(with_limits({"nvidia.com/gpu": 1})),
        pod(with_limits({"cpu": 1}), schedulerName="sharing-scheduler"),
        pod(with_limits({"kooperator/gpu": 50})),
        pod(with_limits({CORE: "0"})),
        pod(with_limits({CORE: 5}), status={"phase": "Succeeded"}),
        pod(with_limits({CORE: 5}), annotations={ALLOCATED: "{}"}, status={"phase": "Failed"}),
    ],
)
def test_pods_without_shared_devices_and_those_that_ended_are_skipped(obj: Json) -> None:
    assert KIND.read(obj)[1:] == (None, b"", ())


def test_without_a_scheduler_whole_gpus_are_not_ours() -> None:
    obj = pod(with_limits({"nvidia.com/gpu": 1}), schedulerName="")
    assert sharing_pods.read_pod(SharingNames("gpus.example"), obj).subject is None


def test_an_allocation_that_cannot_be_read_says_why() -> None:
    found = observed(pod(annotations={ALLOCATED: "{rdma"}))
    assert found.allocation is None
    assert found.unreadable is not None
    assert found.unreadable.startswith(f"The annotation {ALLOCATED} is invalid: it is not JSON")


def test_a_hint_that_is_too_long_stays_one_that_cannot_be_read() -> None:
    text = json.dumps({"gpu": {"selector": {"matchLabels": {"a": "b" * TEXT_LENGTH_MAX}}}})
    found = observed(pod(with_limits({CORE: 5}), annotations={"scheduling.gpus.example/device-allocate-hint": text}))
    assert found.hint is not None
    with pytest.raises(json.JSONDecodeError):
        json.loads(found.hint)


@pytest.mark.parametrize(
    ("statuses", "started"),
    [
        ({}, False),
        ({"containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}, False),
        ({"containerStatuses": [{"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}]}, True),
        ({"initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}, True),
        ({"containerStatuses": [{"state": {"running": {"startedAt": "t"}}}]}, True),
    ],
)
def test_started_says_that_a_container_has_run(statuses: Json, started: bool) -> None:
    assert observed(pod(with_limits({CORE: 5}), status={"phase": "Pending"} | statuses)).started is started


def test_a_pod_that_ends_is_gone() -> None:
    watched = WatchedObjects(KIND, [KIND.read(pod(with_limits({CORE: 5})))])
    assert watched.put(KIND.read(pod(with_limits({CORE: 5}), status={"phase": "Succeeded"}))) == ("ns/p",)
    assert watched.payload("ns/p") is None
    assert KIND.tombstone_of("u") == PodSharingGone(uid="u")


def test_odd_values_are_problems_and_nothing_else() -> None:
    part = KIND.read(pod(with_limits({CORE: "500m"}), priority="high"))
    assert KIND.combine([part.content]).requests == {"gpu-core": 1}
    assert part.problems == ("containers[0].resources.gpus.example/gpu-core is '500m'", "priority is 'high'")


_allocation = st.dictionaries(
    texts,
    a_list(
        an_object(
            minor=st.integers(-2, 3),
            id=texts,
            resources=a_map(texts),
            extension=an_object(vfs=a_list(an_object(minor=st.integers(-2, 3), busID=texts))),
        )
    ),
    max_size=2,
).map(json.dumps)
_resources = a_map(texts) | st.dictionaries(
    st.sampled_from([CORE, RATIO, "nvidia.com/gpu"]), texts | st.integers(-1, 5)
)
_container = an_object(name=texts, resources=an_object(limits=_resources, requests=_resources), restartPolicy=texts)
_odd = st.fixed_dictionaries(
    {},
    optional={
        "metadata": an_object(
            name=st.just("n") | texts,
            namespace=st.just("ns") | texts,
            uid=texts,
            annotations=a_map(texts)
            | st.dictionaries(st.sampled_from([ALLOCATED, NAMES.allocate_hint]), texts | _allocation | anything),
        ),
        "spec": an_object(containers=a_list(_container), initContainers=a_list(_container), priority=anything),
        "status": an_object(phase=st.sampled_from(["Failed", "Running"]), containerStatuses=a_list(anything)),
    },
)


@given(obj=_odd)
def test_any_object_can_be_read_and_recorded(obj: Json) -> None:
    part = KIND.read(obj)
    assert WatchedObjects(KIND, [part]).subjects() == ({part.subject} if part.subject else set())
    if part.subject is not None:
        recorded(KIND, part.subject, part.content)

"""Which GPUs a container gets, by its pod's annotation and what the agent knows."""

import json
from typing import Any

import pytest

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.sharing.container_env import SM_LIMIT, VISIBLE_DEVICES
from gpuledger.events.shares import NodeDevicesAllocated, PodShare
from gpuledger.events.sharing import AllocatedDevice, ContainerShare, NodeDevicesShared, SharedDevice
from gpuledger.runtimeproxy.decide import ContainerGpus, ContainerRefusal, NewContainer, RefusalReason, decide
from gpuledger.runtimeproxy.node_view import NodeView, node_view

GIB = 1024**3
NAMES = SharingNames()
HALF = {"kooperator/gpu-core": "50", "kooperator/gpu-memory-ratio": "50", "kooperator/gpu-memory": "8Gi"}
WHOLE = {"kooperator/gpu-core": "100", "kooperator/gpu-memory-ratio": "100", "kooperator/gpu-memory": "16Gi"}


def container(allocated: object, name: str = "main", **annotations: str) -> NewContainer:
    """A container of pod `team/train` with UID `u1`; `allocated` None: without the annotation."""
    text = allocated if isinstance(allocated, str) else json.dumps(allocated)
    own = {} if allocated is None else {NAMES.allocated: text}
    return NewContainer("team", "train", "u1", name, {**own, **annotations})


def view(*containers: ContainerShare, uuids: bool = True) -> NodeView:
    """A node with two cards, whose agent knows the pod's containers where they are given."""
    amounts = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": 16 * GIB}
    cards = [
        SharedDevice(type="gpu", minor=n, id=f"GPU-{n}" if uuids else None, healthy=True, resources=amounts)
        for n in range(2)
    ]
    pods: tuple[PodShare, ...] = ()
    if containers:
        total = {key: sum(one.requests.get(key, 0) for one in containers if not one.init) for key in amounts}
        device = AllocatedDevice(minor=0)
        pod = PodShare(
            uid="u1",
            namespace="team",
            pod="train",
            requests=total,
            containers=containers,
            allocation={"gpu": (device,)},
        )
        pods = (pod,)
    return node_view(NodeDevicesShared(devices=tuple(cards)), NodeDevicesAllocated(pods=pods))


@pytest.mark.parametrize(
    ("allocated", "node", "expected"),
    [
        pytest.param(None, view(), None, id="no annotation"),
        pytest.param({}, view(), None, id="no devices"),
        pytest.param(
            {"rdma": [{"minor": 0, "id": "0000:01:00.0", "resources": {"kooperator/rdma": "100"}}]},
            view(),
            None,
            id="no GPUs",
        ),
        pytest.param(
            {"gpu": [{"minor": 0, "resources": WHOLE, "id": "GPU-a"}]},
            NodeView(),
            ContainerGpus(("GPU-a",), {VISIBLE_DEVICES: "GPU-a"}),
            id="a whole card",
        ),
        pytest.param(
            {"gpu": [{"minor": 1, "resources": HALF}]},
            view(),
            ContainerGpus(
                ("GPU-1",),
                {VISIBLE_DEVICES: "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": str(8 * GIB), SM_LIMIT: "50"},
            ),
            id="half a card, by minor",
        ),
    ],
)
def test_what_a_container_gets(allocated: Any, node: NodeView, expected: object) -> None:
    assert decide(container(allocated), node, NAMES) == expected


@pytest.mark.parametrize(
    ("allocated", "node", "reason", "text"),
    [
        pytest.param('{rdma":[', view(), RefusalReason.UNREADABLE_ANNOTATION, "delete the pod", id="no JSON"),
        pytest.param({"gpu": 5}, view(), RefusalReason.UNREADABLE_ANNOTATION, "unreadable", id="no list"),
        pytest.param(
            {"gpu": [{"minor": 7, "resources": WHOLE}]},
            view(),
            RefusalReason.UNNAMED_DEVICE,
            "minor 7",
            id="a minor that nobody has",
        ),
        pytest.param(
            {"gpu": [{"minor": 0, "resources": WHOLE}]},
            NodeView(),
            RefusalReason.UNNAMED_DEVICE,
            "minor 0",
            id="a minor, and no agent",
        ),
        pytest.param(
            {"gpu": [{"minor": 0, "resources": WHOLE}]},
            view(uuids=False),
            RefusalReason.UNNAMED_DEVICE,
            "UUID",
            id="a card without UUID",
        ),
    ],
)
def test_a_pod_with_an_allocation_fails_closed(
    allocated: Any, node: NodeView, reason: RefusalReason, text: str
) -> None:
    refusal = decide(container(allocated), node, NAMES)
    assert isinstance(refusal, ContainerRefusal)
    assert refusal.reason is reason
    assert text in refusal.message
    assert "team/train" in refusal.message


def test_the_annotation_of_another_domain_is_not_ours() -> None:
    other = NewContainer("team", "train", "u1", "main", {"scheduling.koordinator.sh/device-allocated": "{"})
    assert decide(other, view(), NAMES) is None


QUARTER = {"gpu-core": 25, "gpu-memory-ratio": 25}
MAIN = ContainerShare(name="main", requests={"gpu-core": 50, "gpu-memory-ratio": 50})
SIDE = ContainerShare(name="side", requests=QUARTER)
PREPARE = ContainerShare(name="prepare", requests=QUARTER, init=True)
ALLOCATED = {
    "gpu": [
        {"minor": 0, "id": "GPU-0", "resources": {"kooperator/gpu-core": "75", "kooperator/gpu-memory-ratio": "75"}}
    ]
}


@pytest.mark.parametrize(
    ("name", "memory", "core"),
    [("main", 8 * GIB, "50"), ("side", 4 * GIB, "25"), ("prepare", 4 * GIB, "25")],
)
def test_containers_share_what_their_pod_has(name: str, memory: int, core: str) -> None:
    assert decide(container(ALLOCATED, name), view(MAIN, SIDE, PREPARE), NAMES) == ContainerGpus(
        ("GPU-0",),
        {VISIBLE_DEVICES: "GPU-0", "CUDA_DEVICE_MEMORY_LIMIT_0": str(memory), SM_LIMIT: core},
    )


def test_a_container_that_requests_no_gpu_sees_none() -> None:
    assert decide(container(ALLOCATED, "proxy"), view(MAIN), NAMES) == ContainerGpus((), {VISIBLE_DEVICES: "void"})


def test_a_sidecar_has_cards_of_its_own_beside_those_of_init_and_main_containers() -> None:
    one = {"gpu-core": 100, "gpu-memory-ratio": 100}
    node = view(
        ContainerShare(name="a", requests=one, init=True, sidecar=True),
        ContainerShare(name="b", requests=one, init=True),
        ContainerShare(name="c", requests=one),
    )
    allocated = {"gpu": [{"minor": n, "id": f"GPU-{n}", "resources": WHOLE} for n in (0, 1)]}
    found = [decide(container(allocated, name), node, NAMES) for name in "abc"]
    assert [one.devices for one in found if isinstance(one, ContainerGpus)] == [("GPU-0",), ("GPU-1",), ("GPU-1",)]


def test_containers_of_whole_cards_get_cards_of_their_own() -> None:
    one = {"gpu-core": 100, "gpu-memory-ratio": 100}
    node = view(ContainerShare(name="a", requests=one), ContainerShare(name="b", requests=one))
    allocated = {"gpu": [{"minor": n, "id": f"GPU-{n}", "resources": WHOLE} for n in (1, 0)]}
    found = [decide(container(allocated, name), node, NAMES) for name in "ab"]
    assert found == [ContainerGpus((f"GPU-{n}",), {VISIBLE_DEVICES: f"GPU-{n}"}) for n in range(2)]

"""The ten cases of Koordinator's own unit tests of sharing devices (FACTS), each under a name that says what it is."""

import pytest

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, RDMA
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.hints import PodHints
from gpuledger.domain.sharing.model import (
    Allocated,
    Amounts,
    Hint,
    JointAllocate,
    LabelSelector,
    PodRequest,
    Refusal,
    Scope,
    VirtualFunction,
)
from gpuledger.domain.sharing.requests import request_of
from gpuledger.domain.sharing.scores import Scoring, score
from support.shared_nodes import (
    GIB,
    LEAST,
    MINOR_ORDER,
    MOST,
    chosen,
    eight,
    gpu,
    gpus,
    node,
    request,
    share,
)

HALF = request({GPU_CORE: 50, GPU_MEMORY_RATIO: 50})


def whole(number: int, scope: Scope | None = None) -> PodRequest:
    return request({GPU: 100 * number}, PodHints({GPU: Hint(required_scope=scope)}))


@pytest.mark.parametrize(
    "amounts",
    [
        pytest.param({GPU_CORE: 100, GPU_MEMORY_RATIO: 101}, id="ratio 101"),
        pytest.param({GPU_CORE: 100}, id="core alone"),
        pytest.param({GPU: 101}, id="gpu 101"),
    ],
)
def test_1_requests_that_mean_nothing_are_refused(amounts: Amounts) -> None:
    assert isinstance(request_of(amounts), Refusal)


def test_2_ratio_is_spread_on_the_shared_gpus() -> None:
    (asked,) = request({GPU_SHARED: 2, GPU_MEMORY_RATIO: 100}).types
    assert (asked.number, asked.per_device) == (2, {GPU_MEMORY_RATIO: 50})
    assert isinstance(request_of({GPU_SHARED: 2, GPU_MEMORY_RATIO: 101}), Refusal)


def test_3_whole_gpu_does_not_fit_where_75_percent_are_free() -> None:
    state = node(gpu(0, memory=16 * GIB), held={"a": {GPU: (Allocated(0, share(25, 16 * GIB)),)}})
    found = allocate(state, whole(1), LEAST)
    assert isinstance(found, Refusal)
    assert found.reason.startswith("Insufficient gpu devices")
    assert not found.unresolvable


def test_3_no_device_at_all_is_unresolvable() -> None:
    found = allocate(node(), whole(1), LEAST)
    assert isinstance(found, Refusal)
    assert found.unresolvable


def test_4_least_allocated_takes_the_first_idle_gpu() -> None:
    state = node(*map(gpu, (1, 2, 3, 4)), held={"a": gpus(1, 2, percent=50)})
    assert allocate(state, HALF, LEAST) == {GPU: (Allocated(3, share(50), (), "GPU-3"),)}


def test_5_most_allocated_takes_the_first_half_used_gpu() -> None:
    state = node(*map(gpu, (1, 2, 3, 4)), held={"a": gpus(3, 4, percent=50)})
    assert chosen(state, HALF, MOST) == {GPU: [3]}


def test_6_unhealthy_gpu_is_skipped() -> None:
    assert chosen(node(gpu(1, healthy=False), gpu(2)), HALF) == {GPU: [2]}


def test_7_gpus_of_preempted_pods_are_free() -> None:
    state = node(gpu(1), gpu(2), held={"a": gpus(1), "b": gpus(2)})
    found = allocate(state, request({GPU_CORE: 50, GPU_MEMORY: 4 * GIB}), LEAST, preempted=frozenset({"a", "b"}))
    assert found == {GPU: (Allocated(1, share(50), (), "GPU-1"),)}


@pytest.mark.parametrize(
    ("number", "scope", "minors"),
    [
        pytest.param(1, None, [4], id="one completes the broken pair"),
        pytest.param(2, None, [6, 7], id="two get a pair beside it"),
        pytest.param(4, Scope.NUMA, [0, 1, 2, 3], id="four in one NUMA node get the whole one"),
    ],
)
def test_8_packing_with_gpu_5_in_use(number: int, scope: Scope | None, minors: list[int]) -> None:
    state = node(*eight(), held={"a": gpus(5)})
    assert chosen(state, whole(number, scope)) == {GPU: minors}


def test_8_no_numa_node_has_four_left() -> None:
    state = node(*eight(), held={"a": gpus(0, 5)})
    assert chosen(state, whole(4, Scope.NUMA)) is None
    assert chosen(state, whole(4)) == {GPU: [1, 2, 3, 4]}


@pytest.mark.parametrize("same_pcie", [True, False])
def test_9_nics_come_from_the_switches_of_the_gpus(same_pcie: bool) -> None:
    state = node(*eight(functions=2), held={"a": gpus(0, 1, 2, 3)})
    hints = PodHints({RDMA: Hint(vf_selector=LabelSelector())}, JointAllocate((GPU, RDMA), same_pcie))
    found = allocate(state, request({GPU: 400, RDMA: 1}, hints), MINOR_ORDER)
    assert not isinstance(found, Refusal)
    assert [one.minor for one in found[GPU]] == [4, 5, 6, 7]
    assert found[RDMA] == (
        Allocated(3, {RDMA: 1}, (VirtualFunction(0, "0000:3f:00.0"),)),
        Allocated(4, {RDMA: 1}, (VirtualFunction(0, "0000:4f:00.0"),)),
    )


@pytest.mark.parametrize(("scoring", "points"), [(LEAST, 20), (MOST, 80)])
def test_10_score_of_half_a_free_device(scoring: Scoring, points: int) -> None:
    assert score({GPU_MEMORY_RATIO: 100}, {GPU_MEMORY_RATIO: 50}, {GPU_MEMORY_RATIO: 30}, scoring) == points

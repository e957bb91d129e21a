"""Which devices of a node a pod gets: without topology, preemption, unhealthy devices, designated ones."""

import pytest

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.model import Allocated, Refusal, Topology
from gpuledger.domain.sharing.scores import Scoring
from support.shared_nodes import GIB, LEAST, MINOR_ORDER, MOST, chosen, gpu, gpus, nic, node, request, share

HALF = request({GPU_CORE: 50, GPU_MEMORY_RATIO: 50})
WHOLE_GPU = request({GPU_CORE: 100, GPU_MEMORY_RATIO: 100})


def test_pod_gets_memory_of_its_ratio_and_the_id() -> None:
    assert allocate(node(gpu(0)), HALF, LEAST) == {GPU: (Allocated(0, share(50), (), "GPU-0"),)}


@pytest.mark.parametrize(
    ("scoring", "minor"), [(MINOR_ORDER, 1), (LEAST, 3), (MOST, 1)], ids=lambda one: getattr(one, "strategy", None)
)
def test_strategy_decides_among_the_devices_that_fit(scoring: Scoring, minor: int) -> None:
    state = node(*map(gpu, (1, 2, 3, 4)), held={"a": gpus(1, 2, percent=50)})
    assert chosen(state, HALF, scoring) == {GPU: [minor]}


def test_every_amount_has_to_fit() -> None:
    state = node(gpu(0), held={"a": {GPU: (Allocated(0, {GPU_CORE: 60}),)}})
    assert chosen(state, HALF) is None
    assert chosen(state, request({GPU_MEMORY_RATIO: 100})) == {GPU: [0]}


def test_memory_of_the_ratio_has_to_fit_as_well() -> None:
    """A ratio rounds down, so that what is left of memory may be less than what is left of the ratio."""
    state = node(gpu(0, memory=1000), held={"a": {GPU: (Allocated(0, {GPU_MEMORY: 509, GPU_MEMORY_RATIO: 50}),)}})
    assert chosen(state, HALF) is None
    assert chosen(state, request({GPU_MEMORY_RATIO: 49})) == {GPU: [0]}


def test_whole_devices_are_taken_in_order() -> None:
    state = node(*map(gpu, range(4)), held={"a": gpus(1, percent=1)})
    two = request({GPU_CORE: 200, GPU_MEMORY_RATIO: 200})
    assert chosen(state, two) == {GPU: [0, 2]}
    assert chosen(state, two._replace(types=(two.types[0]._replace(number=4),))) is None


def test_types_are_independent() -> None:
    both = request({GPU_CORE: 100, GPU_MEMORY_RATIO: 100, RDMA: 200})
    assert chosen(node(gpu(0), *map(nic, range(3))), both) == {GPU: [0], RDMA: [0, 1]}
    assert chosen(node(gpu(0), nic(0)), both) is None


def test_new_type_of_device_needs_no_code() -> None:
    board = nic(0)._replace(type="fpga", resources={"fpga": 100})
    assert chosen(node(board), request({"fpga": 30})) == {"fpga": [0]}


def test_unhealthy_devices_have_nothing() -> None:
    assert chosen(node(gpu(1, healthy=False), gpu(2)), HALF) == {GPU: [2]}
    assert chosen(node(gpu(1, healthy=False)), HALF) is None


def test_preempted_pods_hold_nothing() -> None:
    state = node(gpu(1), gpu(2), held={"a": gpus(1), "b": gpus(2)})
    assert chosen(state, HALF) is None
    found = allocate(state, HALF, MINOR_ORDER, preempted=frozenset({"b", "somewhere else"}))
    assert found == {GPU: (Allocated(2, share(50), (), "GPU-2"),)}
    assert chosen(state, HALF) is None


def test_preempting_one_of_two_that_share_an_oversold_device_frees_nothing() -> None:
    state = node(gpu(1), held={"a": gpus(1), "b": gpus(1)})
    assert isinstance(allocate(state, HALF, MINOR_ORDER, preempted=frozenset({"a"})), Refusal)


def test_refusal_says_what_is_missing() -> None:
    found = allocate(node(gpu(0), gpu(1), held={"a": gpus(0)}), request({GPU_CORE: 200, GPU_MEMORY_RATIO: 200}), LEAST)
    assert found == Refusal(
        "Insufficient gpu devices: 2 with gpu-core 100, gpu-memory-ratio 100 each asked for, 1 of 2 have room."
    )


def test_preemption_cannot_help_where_the_node_has_no_such_device() -> None:
    assert allocate(node(nic(0)), HALF, LEAST) == Refusal("Insufficient gpu devices: the node has none.", True)


def test_only_devices_of_the_numa_nodes() -> None:
    where = [Topology(0, 0, "0"), Topology(1, 1, "1"), None]
    state = node(*(gpu(minor, where=one) for minor, one in enumerate(where)))
    assert chosen(state, HALF._replace(numa_nodes=frozenset({1}))) == {GPU: [1]}
    assert chosen(state, HALF._replace(numa_nodes=frozenset({2}))) is None


def test_only_designated_devices_up_to_those_amounts() -> None:
    state = node(*map(gpu, range(3)))
    only = HALF._replace(designated={GPU: (Allocated(2, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}),)})
    assert chosen(state, only) == {GPU: [2]}
    assert chosen(state, WHOLE_GPU._replace(designated=only.designated)) is None
    assert chosen(state, HALF._replace(designated={GPU: ()})) is None
    assert chosen(state, HALF._replace(designated={RDMA: ()})) == {GPU: [0]}


def test_memory_alone_is_not_rounded() -> None:
    found = allocate(node(gpu(0, memory=80 * GIB)), request({"gpu.shared": 1, GPU_MEMORY: 40 * 10**9}), LEAST)
    assert found == {GPU: (Allocated(0, {GPU_MEMORY: 40 * 10**9, GPU_MEMORY_RATIO: 46}, (), "GPU-0"),)}

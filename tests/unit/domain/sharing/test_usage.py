"""Accounts of a node: what its devices have, what pods hold, what is left, and what preemption gives back."""

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from gpuledger.domain.sharing.model import Allocated, NodeState, VirtualFunction
from gpuledger.domain.sharing.usage import (
    free_accounts,
    preemptible_accounts,
    total_accounts,
    usage_of,
    used_accounts,
)
from support.shared_nodes import GIB, gpu, gpus, nic, node, share

FUNCTION = VirtualFunction(0, "x")


def busy() -> NodeState:
    held = {"a": gpus(0, percent=25), "b": {**gpus(0, 1, percent=50), RDMA: (Allocated(0, {RDMA: 1}, (FUNCTION,)),)}}
    return node(gpu(0), gpu(1), nic(0, functions=["x"]), held=held)


def test_accounts() -> None:
    state = busy()
    assert total_accounts(state) == {GPU: {0: share(100), 1: share(100)}, RDMA: {0: {RDMA: 100}}}
    assert used_accounts(state) == {GPU: {0: share(75), 1: share(50)}, RDMA: {0: {RDMA: 1}}}
    assert free_accounts(state) == {GPU: {0: share(25), 1: share(50)}, RDMA: {0: {RDMA: 99}}}
    assert preemptible_accounts(state, {"a", "nobody"}) == {GPU: {0: share(25)}}
    assert free_accounts(state, preempted={"b"}) == {GPU: {0: share(75), 1: share(100)}, RDMA: {0: {RDMA: 100}}}


def test_nothing_is_left_out() -> None:
    state = node(gpu(0), gpu(1, healthy=False), held={"a": gpus(0)})
    assert total_accounts(state) == {GPU: {0: share(100)}}
    assert free_accounts(state) == {}
    assert free_accounts(node()) == {}
    assert used_accounts(node(gpu(0))) == {}


def test_oversold_device_has_nothing_left() -> None:
    state = node(gpu(0), held={"a": gpus(0), "b": gpus(0)})
    assert free_accounts(state) == {}
    assert used_accounts(state) == {GPU: {0: share(200)}}


def test_designation_limits_what_is_free_of_its_type() -> None:
    designated = {GPU: (Allocated(0, {GPU_CORE: 90, GPU_MEMORY_RATIO: 10}),)}
    free = free_accounts(busy(), designated=designated)
    assert free == {
        GPU: {0: {GPU_CORE: 25, GPU_MEMORY_RATIO: 10, GPU_MEMORY: 8 * GIB // 10}},
        RDMA: {0: {RDMA: 99}},
    }


def test_use_is_an_amount_or_a_function() -> None:
    usage = usage_of(node(gpu(0), held={"a": {RDMA: (Allocated(0, {}, (FUNCTION,)),), GPU: (Allocated(0, {}),)}}))
    assert usage.in_use(RDMA, 0)
    assert not usage.in_use(GPU, 0)
    assert not usage.in_use(GPU, 1)


def test_released_pod_leaves_no_trace() -> None:
    state, empty = busy(), NodeState("node-1")
    state.release("a")
    state.release("b")
    state.release("b")
    assert (state.used, state.functions_held, state.holders) == (empty.used, empty.functions_held, empty.holders)


def test_pod_holds_the_last_of_what_it_was_given_once() -> None:
    state = node(gpu(0), gpu(1))
    state.hold("a", gpus(0))
    state.hold("a", gpus(1, percent=50))
    state.hold("a", gpus(1, percent=50))
    assert used_accounts(state) == {GPU: {1: share(50)}}


def test_allocation_that_names_a_device_twice_is_given_back_whole() -> None:
    state = node(gpu(0))
    state.hold("a", {GPU: (Allocated(0, share(50)), Allocated(0, share(50)), Allocated(0, {}))})
    state.hold("b", {GPU: (Allocated(0, {}),)})
    assert used_accounts(state) == {GPU: {0: share(100)}}
    state.release("a")
    state.release("b")
    assert state.used == {}


def test_what_is_held_survives_new_devices() -> None:
    state = node(gpu(0), held={"a": gpus(0)})
    state.set_devices({})
    assert free_accounts(state) == {}
    state.set_devices({GPU: {1: gpu(1), 0: gpu(0)}})
    assert free_accounts(state) == {GPU: {1: share(100)}}
    assert list(state.devices[GPU]) == [0, 1]

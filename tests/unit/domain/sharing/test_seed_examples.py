"""The examples of seed 002: pods on a node with four GPUs of 8 GiB, and what the scheduler makes of them."""

import json

import pytest

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NVIDIA_GPU, RDMA, SharingNames
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.annotation import write_allocation
from gpuledger.domain.sharing.model import Amounts, Refusal
from gpuledger.domain.sharing.usage import total_accounts
from support.shared_nodes import GIB, MINOR_ORDER, gpu, nic, node, request

NODE_A = node(*map(gpu, range(4)))


def test_node_reports_core_memory_and_ratio_in_place_of_gpus() -> None:
    """4.1: 400 of core, 32 GB, 400 of the ratio."""
    devices = total_accounts(NODE_A)[GPU].values()
    sums = {resource: sum(one[resource] for one in devices) for resource in (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)}
    assert sums == {GPU_CORE: 400, GPU_MEMORY: 32 * GIB, GPU_MEMORY_RATIO: 400}


@pytest.mark.parametrize(
    ("asked", "gets"),
    [
        pytest.param(
            {NVIDIA_GPU: 2}, {GPU_CORE: 200, GPU_MEMORY_RATIO: 200, GPU_MEMORY: 16 * GIB}, id="nvidia.com/gpu 2"
        ),
        pytest.param({"gpu": 50}, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50, GPU_MEMORY: 4 * GIB}, id="gpu 50"),
        pytest.param(
            {GPU_CORE: 50, GPU_MEMORY_RATIO: 60},
            {GPU_CORE: 50, GPU_MEMORY_RATIO: 60, GPU_MEMORY: 8 * GIB * 60 // 100},
            id="core and ratio",
        ),
        pytest.param(
            {GPU_CORE: 60, GPU_MEMORY: 4 * GIB},
            {GPU_CORE: 60, GPU_MEMORY_RATIO: 50, GPU_MEMORY: 4 * GIB},
            id="core and memory",
        ),
    ],
)
def test_pod_gets_in_all_what_the_seed_says(asked: Amounts, gets: Amounts) -> None:
    found = allocate(NODE_A, request(asked), MINOR_ORDER)
    assert not isinstance(found, Refusal)
    assert {name: sum(one.resources[name] for one in found[GPU]) for name in gets} == gets


def test_annotation_of_two_gpus_and_two_nics() -> None:
    """4.2.2, with GPUs of 16 GiB."""
    nics = [nic(minor)._replace(id=bus) for minor, bus in enumerate(["0000:09:00.0", "0000:10:00.0"])]
    state = node(*(gpu(minor, 16 * GIB)._replace(id=None) for minor in range(2)), *nics)
    found = allocate(state, request({NVIDIA_GPU: 2, RDMA: 200}), MINOR_ORDER)
    assert not isinstance(found, Refusal)
    whole = {"kooperator/gpu-core": "100", "kooperator/gpu-memory": "16Gi", "kooperator/gpu-memory-ratio": "100"}
    nic_whole = {"kooperator/rdma": "100"}
    assert json.loads(write_allocation(found, state.devices, SharingNames())) == {
        "gpu": [{"minor": 0, "resources": whole}, {"minor": 1, "resources": whole}],
        "rdma": [
            {"minor": 0, "id": "0000:09:00.0", "resources": nic_whole},
            {"minor": 1, "id": "0000:10:00.0", "resources": nic_whole},
        ],
    }


def test_devices_are_chosen_by_their_minors_alone() -> None:
    """4.2.3."""
    state, minors = node(*map(gpu, (3, 1, 2))), []
    for pod in "abc":
        found = allocate(state, request({"gpu": 100}), MINOR_ORDER)
        assert not isinstance(found, Refusal)
        minors.append(found[GPU][0].minor)
        state.hold(pod, found)
    assert minors == [1, 2, 3]
    assert isinstance(allocate(state, request({"gpu": 1}), MINOR_ORDER), Refusal)

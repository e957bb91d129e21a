"""The environment of containers: which GPUs they see, and their limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sharing.container_env import (
    MEMORY_LIMIT_PREFIX,
    SM_LIMIT,
    VISIBLE_DEVICES,
    ContainerPart,
    UnnamedGpuError,
    container_environment,
    gpu_uuids,
)
from gpuledger.domain.sharing.model import Allocated, Amounts, Device

GIB = 1024**3
CARD = 80 * GIB


def gpu(minor: int, core: int, ratio: int, *, named: bool = True) -> Allocated:
    """A part of a GPU of 80 GiB."""
    amounts = {"gpu-core": core, "gpu-memory-ratio": ratio, "gpu-memory": ratio * CARD // 100}
    return Allocated(minor, amounts, id=f"GPU-{minor}" if named else None)


def devices(*minors: int) -> dict[str, dict[int, Device]]:
    """The GPUs of a node."""
    amounts = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": CARD}
    return {"gpu": {minor: Device("gpu", minor, True, amounts, id=f"GPU-{minor}") for minor in minors}}


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        pytest.param((), {}, id="no GPU"),
        pytest.param((gpu(3, 100, 100),), {VISIBLE_DEVICES: "GPU-3"}, id="whole"),
        pytest.param((gpu(9, 100, 100), gpu(2, 100, 100)), {VISIBLE_DEVICES: "GPU-2,GPU-9"}, id="two, by minor"),
        pytest.param(
            (gpu(1, 50, 25),),
            {VISIBLE_DEVICES: "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": str(20 * GIB), SM_LIMIT: "50"},
            id="half",
        ),
        pytest.param(
            (gpu(4, 50, 50), gpu(5, 50, 50)),
            {
                VISIBLE_DEVICES: "GPU-4,GPU-5",
                "CUDA_DEVICE_MEMORY_LIMIT_0": str(40 * GIB),
                "CUDA_DEVICE_MEMORY_LIMIT_1": str(40 * GIB),
                SM_LIMIT: "50",
            },
            id="half of two",
        ),
        pytest.param((gpu(1, 50, 100),), {VISIBLE_DEVICES: "GPU-1", SM_LIMIT: "50"}, id="half the cores alone"),
        pytest.param(
            (Allocated(1, {"gpu-memory": GIB, "gpu-memory-ratio": 1}, id="GPU-1"),),
            {VISIBLE_DEVICES: "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": str(GIB)},
            id="memory alone",
        ),
    ],
)
def test_a_pod(gpus: tuple[Allocated, ...], expected: dict[str, str]) -> None:
    assert container_environment({"gpu": gpus} if gpus else {}) == expected
    assert container_environment({"gpu": gpus, "rdma": (Allocated(0, {"rdma": 50}),)}) == expected


def test_the_nodes_devices_name_what_the_allocation_leaves_out() -> None:
    allocation = {"gpu": (Allocated(1, {"gpu-memory-ratio": 25}),)}
    expected = {VISIBLE_DEVICES: "GPU-1", "CUDA_DEVICE_MEMORY_LIMIT_0": str(20 * GIB)}
    assert container_environment(allocation, devices(0, 1)) == expected
    assert gpu_uuids(allocation, devices(0, 1)) == ("GPU-1",)


@pytest.mark.parametrize(
    "unnamed",
    [
        pytest.param(gpu(1, 50, 50, named=False), id="no UUID"),
        pytest.param(Allocated(1, {"gpu-memory-ratio": 50}, id="GPU-1"), id="no memory"),
    ],
)
def test_what_is_unknown_is_no_environment(unnamed: Allocated) -> None:
    with pytest.raises(UnnamedGpuError, match="minor 1"):
        container_environment({"gpu": (unnamed,)}, devices(0))


def part(requests: Amounts, pod: Amounts, before: Amounts | None = None) -> ContainerPart:
    """A container's part of its pod."""
    return ContainerPart(requests, pod, before or {})


def test_containers_share_what_their_pod_has() -> None:
    allocation = {"gpu": (gpu(0, 50, 50),)}
    pod = {"gpu-core": 50, "gpu-memory-ratio": 50}
    first = container_environment(allocation, part=part({"gpu-core": 20, "gpu-memory-ratio": 30}, pod))
    second = container_environment(allocation, part=part({"gpu-core": 30, "gpu-memory-ratio": 20}, pod))
    assert first == {VISIBLE_DEVICES: "GPU-0", "CUDA_DEVICE_MEMORY_LIMIT_0": str(24 * GIB), SM_LIMIT: "20"}
    assert second == {VISIBLE_DEVICES: "GPU-0", "CUDA_DEVICE_MEMORY_LIMIT_0": str(16 * GIB), SM_LIMIT: "30"}


def test_containers_with_whole_gpus_have_their_own() -> None:
    allocation = {"gpu": tuple(gpu(minor, 100, 100) for minor in (1, 3, 5))}
    pod, two, one = ({"gpu-core": n, "gpu-memory-ratio": n} for n in (300, 200, 100))
    assert container_environment(allocation, part=part(two, pod)) == {VISIBLE_DEVICES: "GPU-1,GPU-3"}
    assert container_environment(allocation, part=part(one, pod, two)) == {VISIBLE_DEVICES: "GPU-5"}
    compatible = part({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 3}, {"nvidia.com/gpu": 2})
    assert container_environment(allocation, part=compatible) == {VISIBLE_DEVICES: "GPU-5"}


def test_two_containers_on_one_whole_gpu_are_limited() -> None:
    pod = {"gpu-core": 100, "gpu-memory-ratio": 100}
    half = container_environment({"gpu": (gpu(0, 100, 100),)}, part=part({"gpu-core": 50, "gpu-memory-ratio": 50}, pod))
    assert half == {VISIBLE_DEVICES: "GPU-0", "CUDA_DEVICE_MEMORY_LIMIT_0": str(40 * GIB), SM_LIMIT: "50"}


def test_a_container_that_requests_no_gpu_sees_none() -> None:
    assert container_environment({"gpu": (gpu(0, 50, 50),)}, part=part({"rdma": 50}, {"gpu": 50, "rdma": 50})) == {}


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=4))
def test_all_containers_keep_within_what_their_pod_has(asked: list[tuple[int, int]]) -> None:
    core, ratio = (sum(amounts) for amounts in zip(*asked, strict=True))
    if core > 100 or ratio > 100:
        return
    allocation = {"gpu": (gpu(0, core, ratio),)}
    pod = {"gpu-core": core, "gpu-memory-ratio": ratio}
    made = [container_environment(allocation, part=part({"gpu-core": c, "gpu-memory-ratio": r}, pod)) for c, r in asked]
    assert {one[VISIBLE_DEVICES] for one in made} == {"GPU-0"}
    assert sum(int(one.get(f"{MEMORY_LIMIT_PREFIX}0", CARD)) for one in made) <= ratio * CARD // 100
    assert sum(int(one.get(SM_LIMIT, 100)) for one in made) <= core

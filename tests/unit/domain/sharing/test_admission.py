"""What the webhook makes of a container's amounts, by table."""

import pytest

from gpuledger.domain.sharing.admission import ContainerAmounts, admitted, admitted_pod
from gpuledger.domain.sharing.model import Refusal


@pytest.mark.parametrize(
    ("amounts", "after"),
    [
        ({"gpu": 200}, {"gpu-core": 200, "gpu-memory-ratio": 200, "gpu.shared": 2}),
        ({"gpu": 70}, {"gpu-core": 70, "gpu-memory-ratio": 70, "gpu.shared": 1}),
        ({"gpu": 100}, {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu.shared": 1}),
        ({"nvidia.com/gpu": 2}, {"gpu-core": 200, "gpu-memory-ratio": 200, "gpu.shared": 2}),
        ({"gpu": 50, "rdma": 100}, {"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1, "rdma": 100}),
        ({"gpu-core": 200, "gpu-memory-ratio": 200}, {"gpu-core": 200, "gpu-memory-ratio": 200, "gpu.shared": 2}),
        ({"gpu-memory-ratio": 30}, {"gpu-memory-ratio": 30, "gpu.shared": 1}),
        ({"gpu-memory": 5, "gpu": 0}, {"gpu-memory": 5, "gpu.shared": 1}),
        ({"gpu-memory": 6, "gpu.shared": 3}, {"gpu-memory": 6, "gpu.shared": 3}),
        ({"gpu-core": 200, "gpu-memory": 5}, {"gpu-core": 200, "gpu-memory": 5}),
        ({"gpu-core": 55, "gpu-memory-ratio": 200}, {"gpu-core": 55, "gpu-memory-ratio": 200}),
        ({"rdma": 1}, {"rdma": 1}),
        ({}, {}),
    ],
)
def test_gpu_is_split_and_everything_else_stays(amounts: dict[str, int], after: dict[str, int]) -> None:
    assert admitted(amounts) == after


@pytest.mark.parametrize("amounts", [{"gpu": 101}, {"gpu.shared": 2}, {"gpu-memory-ratio": 101, "gpu.shared": 2}])
def test_what_is_invalid_stays_so(amounts: dict[str, int]) -> None:
    assert isinstance(admitted(amounts), Refusal)


@pytest.mark.parametrize(
    ("containers", "after"),
    [
        ([ContainerAmounts("a", {"gpu": 200}), ContainerAmounts("b", {"rdma": 1})],
         ({"gpu-core": 200, "gpu-memory-ratio": 200, "gpu.shared": 2}, {"rdma": 1})),
        ([ContainerAmounts("a", {"gpu": 150}), ContainerAmounts("b", {"gpu": 50})],
         ({"gpu-core": 150, "gpu-memory-ratio": 150, "gpu.shared": 1},
          {"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1})),
        ([ContainerAmounts("a", {"gpu": 50}), ContainerAmounts("b", {"gpu": 50})],
         ({"gpu-core": 50, "gpu-memory-ratio": 50}, {"gpu-core": 50, "gpu-memory-ratio": 50})),
        ([ContainerAmounts("a", {"gpu-core": 50}), ContainerAmounts("b", {"gpu-memory": 7})],
         ({"gpu-core": 50}, {"gpu-memory": 7})),
        ([ContainerAmounts("i", {"nvidia.com/gpu": 1}, is_init=True), ContainerAmounts("b", {"gpu-memory-ratio": 30})],
         ({"gpu-core": 100, "gpu-memory-ratio": 100, "gpu.shared": 1}, {"gpu-memory-ratio": 30, "gpu.shared": 1})),
        ([ContainerAmounts("a", {"gpu-memory": 5}), ContainerAmounts("b", {"gpu-memory": 5})],
         ({"gpu-memory": 5}, {"gpu-memory": 5})),
        ([], ()),
    ],
)  # fmt: skip
def test_what_containers_ask_for_together_decides(
    containers: list[ContainerAmounts], after: tuple[dict[str, int], ...]
) -> None:
    assert admitted_pod(containers) == after


@pytest.mark.parametrize(
    ("containers", "reason"),
    [
        ([ContainerAmounts("a", {"gpu": 50}), ContainerAmounts("b", {"gpu": 101})], "in the container b, gpu: 101"),
        ([ContainerAmounts("a", {"gpu": 50}), ContainerAmounts("b", {"gpu": 70})], "in all containers together, gpu-"),
        ([ContainerAmounts("a", {"gpu": 50, "gpu-core": 1})], "in the container a, gpu, gpu-core"),
        (
            [ContainerAmounts("a", {"rdma": 90}, is_init=True, is_sidecar=True), ContainerAmounts("b", {"rdma": 90})],
            "in all containers together, rdma: 180",
        ),
    ],
)
def test_a_refusal_says_which_container_is_wrong(containers: list[ContainerAmounts], reason: str) -> None:
    found = admitted_pod(containers)
    assert isinstance(found, Refusal)
    assert reason in found.reason

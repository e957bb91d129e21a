"""What the webhook makes of a container's amounts, by table."""

import pytest

from gpuledger.domain.sharing.admission import admitted
from gpuledger.domain.sharing.model import Refusal


@pytest.mark.parametrize(
    ("amounts", "after"),
    [
        ({"gpu": 200}, {"gpu-core": 200, "gpu-memory-ratio": 200, "gpu.shared": 2}),
        ({"gpu": 70}, {"gpu-core": 70, "gpu-memory-ratio": 70, "gpu.shared": 1}),
        ({"gpu": 100}, {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu.shared": 1}),
        ({"nvidia.com/gpu": 2}, {"gpu-core": 200, "gpu-memory-ratio": 200, "gpu.shared": 2}),
        ({"gpu": 50, "rdma": 100}, {"gpu-core": 50, "gpu-memory-ratio": 50, "gpu.shared": 1, "rdma": 100}),
        ({"gpu-core": 200, "gpu-memory-ratio": 200}, {"gpu-core": 200, "gpu-memory-ratio": 200}),
        ({"gpu-memory": 5, "gpu": 0}, {"gpu-memory": 5}),
        ({"rdma": 1}, {"rdma": 1}),
        ({}, {}),
    ],
)
def test_gpu_is_split_and_everything_else_stays(amounts: dict[str, int], after: dict[str, int]) -> None:
    assert admitted(amounts) == after


@pytest.mark.parametrize("amounts", [{"gpu": 101}, {"gpu.shared": 2}, {"gpu-memory-ratio": 101, "gpu.shared": 2}])
def test_what_is_invalid_stays_so(amounts: dict[str, int]) -> None:
    assert isinstance(admitted(amounts), Refusal)

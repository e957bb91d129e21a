"""Memory of a GPU as bytes and as a percentage."""

import pytest

from gpuledger.api.sharing import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from gpuledger.domain.sharing.conversion import completed, memory_to_ratio, ratio_to_memory
from gpuledger.domain.sharing.model import Amounts
from support.shared_nodes import GIB, share

TOTAL = share(100)


@pytest.mark.parametrize(
    ("ratio", "total", "memory"), [(50, 64 * GIB, 32 * GIB), (100, 8 * GIB, 8 * GIB), (33, 100, 33), (1, 99, 0)]
)
def test_ratio_as_memory(ratio: int, total: int, memory: int) -> None:
    assert ratio_to_memory(ratio, total) == memory


@pytest.mark.parametrize(
    ("memory", "total", "ratio"), [(32 * GIB, 64 * GIB, 50), (8 * GIB - 1, 8 * GIB, 99), (1024, 8 * GIB, 0)]
)
def test_memory_as_ratio(memory: int, total: int, ratio: int) -> None:
    assert memory_to_ratio(memory, total) == ratio


@pytest.mark.parametrize(
    ("given", "total", "gets"),
    [
        pytest.param({GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, TOTAL, share(50), id="memory of the ratio"),
        pytest.param({GPU_CORE: 50, GPU_MEMORY: 4 * GIB}, TOTAL, share(50), id="ratio of the memory"),
        pytest.param(
            {GPU_MEMORY: 8 * GIB}, TOTAL, {GPU_MEMORY: 8 * GIB, GPU_MEMORY_RATIO: 100}, id="core is never made up"
        ),
        pytest.param({GPU_MEMORY: 1, GPU_MEMORY_RATIO: 9}, TOTAL, {GPU_MEMORY: 1, GPU_MEMORY_RATIO: 9}, id="given"),
        pytest.param({GPU_MEMORY: 1}, TOTAL, {GPU_MEMORY: 1}, id="a ratio of 0 is left out"),
        pytest.param({GPU_MEMORY_RATIO: 1}, {GPU_MEMORY: 99}, {GPU_MEMORY_RATIO: 1}, id="memory of 0 is left out"),
        pytest.param({GPU_CORE: 10}, TOTAL, {GPU_CORE: 10}, id="neither"),
        pytest.param({GPU_MEMORY_RATIO: 50}, {GPU_MEMORY_RATIO: 100}, {GPU_MEMORY_RATIO: 50}, id="no memory there"),
        pytest.param({RDMA: 1}, {RDMA: 100}, {RDMA: 1}, id="another type"),
    ],
)
def test_completed(given: Amounts, total: Amounts, gets: Amounts) -> None:
    assert completed(given, total) == gets

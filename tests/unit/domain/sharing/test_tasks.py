"""Which class of pods a request belongs to."""

import pytest

from gpuledger.domain.sharing.fragmentation import TaskClass
from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.model import PodRequest, TypeRequest
from gpuledger.domain.sharing.tasks import task_of

GIB = 1 << 30


@pytest.mark.parametrize(
    ("types", "gpu_memory", "task"),
    [
        ((), 0, TaskClass(0, 0, 500)),
        ((TypeRequest("rdma", 1, {"rdma": 100}, False),), 0, TaskClass(0, 0, 500)),
        ((TypeRequest("gpu", 2, {"gpu-core": 100, "gpu-memory-ratio": 100}, False),), 0, TaskClass(2, 100, 500)),
        ((TypeRequest("gpu", 1, {"gpu-core": 20, "gpu-memory-ratio": 60}, True),), 0, TaskClass(1, 60, 500)),
        ((TypeRequest("gpu", 1, {"gpu-memory": 5 * GIB}, True),), 16 * GIB, TaskClass(1, 32, 500)),
        ((TypeRequest("gpu", 1, {"gpu-memory": 32 * GIB}, True),), 16 * GIB, TaskClass(1, 100, 500)),
        ((TypeRequest("gpu", 1, {"gpu-memory": GIB}, True),), 0, TaskClass(1, 100, 500)),
    ],
)
def test_the_class_of_a_request(types: tuple[TypeRequest, ...], gpu_memory: int, task: TaskClass) -> None:
    assert task_of(PodRequest(types), Needs(500), gpu_memory) == task

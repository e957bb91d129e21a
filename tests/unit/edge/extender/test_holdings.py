"""What counts as held beside what pods were allocated."""

from gpuledger.domain.fact import Fact
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.state import ExtenderProjection, ExtenderState
from gpuledger.events.runtime import GpuCheckpoint, NodeGpuCheckpointsObserved
from support.agent_parts import NOON
from support.sharing import gpu, shared, story


def test_gpus_of_pods_of_before_sharing_are_held_by_pods_that_run() -> None:
    checkpoint = GpuCheckpoint(uid="p1", container="main", resource="nvidia.com/gpu", devices=("GPU-0",))
    state = ExtenderState()
    for position, one in enumerate(
        story(("n1", 0, shared(gpu(0), gpu(1))), ("n1", 1, NodeGpuCheckpointsObserved(checkpoints=(checkpoint,)))), 1
    ):
        ExtenderProjection.handlers[type(one.data)](state, Fact(one, position, 0), one.data)
    holdings = Holdings(state)
    assert holdings.nodes["n1"].free("gpu", 0) == {"gpu-core": 0, "gpu-memory": 0, "gpu-memory-ratio": 0}
    assert list(holdings.nodes["n1"].holders) == ["p1"]
    assert holdings.in_flight("n1", "another", NOON) is None, "it runs, so nothing waits for it"
    assert set(state.tables()) >= {"shared_checkpoints"}, "a snapshot of the fold has them"

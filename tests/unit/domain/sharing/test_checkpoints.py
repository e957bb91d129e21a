"""The annotation of Devices with what containers have that nobody allocated."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.checkpoints import Checkpoint, checkpoints_of, checkpoints_text
from gpuledger.domain.sharing.folds import HANDLERS
from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.state import SharingInMemory
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.runtime import GpuCheckpoint, NodeGpuCheckpointsObserved
from support.sharing import gone, gpu, observed, of_gpus, share, shared, story


def test_the_seeds_example() -> None:
    observed = NodeGpuCheckpointsObserved(
        checkpoints=(
            GpuCheckpoint(
                uid="fa8983dc-bb76-4eeb-8dcc-556fbd44d7ce",
                container="cuda-container",
                resource="nvidia.com/gpu",
                devices=("GPU-36b27e44-b086-46f7-f2dc-73c36dc65991",),
            ),
        )
    )
    assert json.loads(checkpoints_text(checkpoints_of(observed))) == [
        {
            "podUID": "fa8983dc-bb76-4eeb-8dcc-556fbd44d7ce",
            "containerName": "cuda-container",
            "resourceName": "nvidia.com/gpu",
            "deviceIDs": ["GPU-36b27e44-b086-46f7-f2dc-73c36dc65991"],
        }
    ]


def test_without_checkpoints_the_annotation_is_empty() -> None:
    assert checkpoints_text(checkpoints_of(NodeGpuCheckpointsObserved())) == "[]"


NAMES = st.text("ab-", min_size=1, max_size=3)


@given(
    st.lists(st.builds(Checkpoint, NAMES, NAMES, NAMES, st.tuples(NAMES)), min_size=1).flatmap(
        lambda some: st.tuples(st.just(some), st.permutations(some))
    )
)
def test_the_order_of_checkpoints_changes_no_text(both: tuple[list[Checkpoint], list[Checkpoint]]) -> None:
    assert checkpoints_text(both[0]) == checkpoints_text(both[1])


MIG = "MIG-5c1fbf3e-2a5d-5c2b-8f5e-1a2b3c4d5e6f"


def checkpoints(*held: tuple[str, str]) -> NodeGpuCheckpointsObserved:
    """Pods with one GPU each."""
    return NodeGpuCheckpointsObserved(
        checkpoints=tuple(
            GpuCheckpoint(uid=uid, container="main", resource="nvidia.com/gpu", devices=(gpu_id,))
            for uid, gpu_id in held
        )
    )


def folded(*facts: tuple[str, float, Payload]) -> NodeStates:
    """The nodes after facts about subjects at hours."""
    state = SharingInMemory()
    for position, one in enumerate(story(*facts), start=1):
        HANDLERS[type(one.data)](state, Fact(one, position, 0), one.data)
    return NodeStates(state)


SHARED = ("n1", 0.0, shared(gpu(0), gpu(1)))


def used_cores(states: NodeStates) -> dict[int, int]:
    return {minor: 100 - states.nodes["n1"].free("gpu", minor)["gpu-core"] for minor in (0, 1)}


def test_what_a_pod_of_before_has_is_held_whole() -> None:
    states = folded(SHARED, ("n1", 1, checkpoints(("p1", "GPU-1"), ("p2", MIG), ("p3", "GPU-of-a-pool"))))
    assert used_cores(states) == {0: 0, 1: 100}
    assert states.has_without_allocation("n1", "p1")
    assert not states.has_without_allocation("n1", "p2")


@pytest.mark.parametrize("late", [False, True])
def test_the_latest_list_counts(late: bool) -> None:
    first, second = ("n1", 1.0, checkpoints(("p1", "GPU-0"))), ("n1", 2.0, checkpoints(("p2", "GPU-1")))
    facts = (second, first) if late else (first, second)
    assert used_cores(folded(SHARED, *facts)) == {0: 0, 1: 100}
    assert used_cores(folded(*facts, SHARED)) == {0: 0, 1: 100}


def test_an_allocation_takes_the_place_of_a_checkpoint_and_gives_it_back() -> None:
    before = ("n1", 1.0, checkpoints(("u1", "GPU-0")))
    seen = ("ml/a", 2.0, observed("u1", node="n1", allocation=of_gpus(share(1))))
    assert used_cores(folded(SHARED, before, seen)) == {0: 0, 1: 50}
    assert used_cores(folded(SHARED, before, seen, ("ml/a", 3.0, gone("u1")))) == {0: 100, 1: 0}


def test_states_follow_what_is_folded_later() -> None:
    state = SharingInMemory()
    states = NodeStates(state)
    steps = (
        (SHARED, {0: 0, 1: 0}),
        (("n1", 1.0, checkpoints(("u1", "GPU-0"))), {0: 100, 1: 0}),
        (("ml/a", 2.0, observed("u1", node="n1", allocation=of_gpus(share(1)))), {0: 0, 1: 50}),
        (("ml/a", 3.0, gone("u1")), {0: 100, 1: 0}),
        (("n1", 4.0, NodeGone()), None),
        (("n1", 5.0, shared(gpu(0), gpu(1))), {0: 100, 1: 0}),
        (("n1", 6.0, checkpoints()), {0: 0, 1: 0}),
    )
    for position, (fact, expected) in enumerate(steps, start=1):
        (one,) = story(fact)
        HANDLERS[type(one.data)](state, Fact(one, position, 0), one.data)
        states.refresh()
        assert expected == (used_cores(states) if "n1" in states.nodes else None), fact

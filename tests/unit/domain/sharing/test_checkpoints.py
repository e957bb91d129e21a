"""The annotation of Devices with what containers have that nobody allocated."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.sharing.checkpoints import Checkpoint, checkpoints_of, checkpoints_text
from gpuledger.events.runtime import GpuCheckpoint, NodeGpuCheckpointsObserved


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
    text = checkpoints_text(checkpoints_of(observed))
    assert text is not None
    assert json.loads(text) == [
        {
            "podUID": "fa8983dc-bb76-4eeb-8dcc-556fbd44d7ce",
            "containerName": "cuda-container",
            "resourceName": "nvidia.com/gpu",
            "deviceIDs": ["GPU-36b27e44-b086-46f7-f2dc-73c36dc65991"],
        }
    ]


def test_without_checkpoints_there_is_no_annotation() -> None:
    assert checkpoints_text(checkpoints_of(NodeGpuCheckpointsObserved())) is None


NAMES = st.text("ab-", min_size=1, max_size=3)


@given(
    st.lists(st.builds(Checkpoint, NAMES, NAMES, NAMES, st.tuples(NAMES)), min_size=1).flatmap(
        lambda some: st.tuples(st.just(some), st.permutations(some))
    )
)
def test_the_order_of_checkpoints_changes_no_text(both: tuple[list[Checkpoint], list[Checkpoint]]) -> None:
    assert checkpoints_text(both[0]) == checkpoints_text(both[1])

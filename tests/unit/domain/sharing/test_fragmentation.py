"""The fragment of a node, by the definitions of Weng et al., USENIX ATC 2023."""

import pytest

from gpuledger.domain.sharing.fragmentation import Cause, Fragmentation, TaskClass

SHARED_BY_FOUR = (20, 100, 100, 50)


@pytest.mark.parametrize(
    ("task", "free", "cpu_milli", "cause", "fragment"),
    [
        # What the authors' simulator says of these nodes and pods (pkg/utils/frag_test.go, in thousandths there).
        (TaskClass(2, 100, 100), SHARED_BY_FOUR, 1_000, Cause.LACKS_GPU, 70),
        (TaskClass(2, 100, 100), (100,) * 4, 1_000, Cause.LACKS_GPU, 0),
        (TaskClass(2, 20, 100), SHARED_BY_FOUR, 1_000, Cause.LACKS_GPU, 0),
        (TaskClass(1, 46, 6_000), SHARED_BY_FOUR, 1_000, Cause.LACKS_CPU, 270),
        # The other regions of the figure of demands.
        (TaskClass(4, 100, 100), SHARED_BY_FOUR, 1_000, Cause.LACKS_GPU, 270),
        (TaskClass(4, 100, 6_000), SHARED_BY_FOUR, 1_000, Cause.LACKS_BOTH, 270),
        (TaskClass(0, 0, 100), SHARED_BY_FOUR, 1_000, Cause.NO_GPU, 270),
        (TaskClass(1, 60, 6_000), SHARED_BY_FOUR, None, Cause.LACKS_GPU, 70),
        (TaskClass(1, 100), (), None, Cause.LACKS_GPU, 0),
    ],
)
def test_the_fragment_for_one_class(
    task: TaskClass, free: tuple[int, ...], cpu_milli: int | None, cause: Cause, fragment: int
) -> None:
    fragmentation = Fragmentation({task: 1})
    assert fragmentation.of(free, cpu_milli) == fragment
    assert fragmentation.causes(free, cpu_milli) == {one: fragment if one is cause else 0 for one in Cause}


def test_classes_count_by_their_popularity() -> None:
    mix = Fragmentation({TaskClass(1, 50): 3, TaskClass(1, 100): 1})
    assert mix.of((40, 60)) == 3 * 40 + 1 * 100
    assert mix.in_gpus(mix.of((40, 60))) == pytest.approx((0.75 * 40 + 0.25 * 100) / 100)


def test_a_placement_that_breaks_a_whole_gpu_descends_less() -> None:
    mix = Fragmentation({TaskClass(1, 50): 1, TaskClass(1, 100): 1})
    breaks_a_whole_one, fills_one_up = mix.decrease((50, 100), (50, 50)), mix.decrease((50, 100), (0, 100))
    assert breaks_a_whole_one == -50
    assert fills_one_up == 50


def test_without_a_mix_nothing_is_a_fragment() -> None:
    assert Fragmentation({}).of((10, 100)) == 0
    assert Fragmentation({}).in_gpus(0) == 0.0

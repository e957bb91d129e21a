"""Who has to leave so that a pod gets devices."""

import pytest

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.model import Refusal
from gpuledger.domain.sharing.preemption import Evictable, FewestVictims
from support.events import hour
from support.shared_nodes import MINOR_ORDER, gpu, gpus, node, request

HELD = {
    "old": gpus(0),
    "new-1": gpus(1, percent=50),
    "new-2": gpus(1, percent=50),
    "third": gpus(2, percent=80),
}
"""GPU 0 is one pod's, GPU 1 two pods'; of GPU 2 a fifth is left, and all of GPU 3 is a pod's that nobody may evict."""

STATE = node(*(gpu(minor) for minor in range(4)), held={**HELD, "important": gpus(3)})


def besides(percent: int, given: set[str], priorities: dict[str, int], search_max: int = 1_000) -> list[str] | None:
    asked = request({GPU: percent})
    evictable = [Evictable(uid, priority, hour(at)) for at, (uid, priority) in enumerate(priorities.items())]
    found = FewestVictims(search_max).besides(
        given, evictable, lambda gone: not isinstance(allocate(STATE, asked, MINOR_ORDER, preempted=gone), Refusal)
    )
    return None if found is None else [one.uid for one in found]


EQUAL = dict.fromkeys(HELD, 0)


@pytest.mark.parametrize(
    ("percent", "given", "priorities", "expected"),
    [
        pytest.param(20, set(), EQUAL, [], id="there is room already"),
        pytest.param(50, {"new-1"}, EQUAL, [], id="the victims that are given suffice"),
        pytest.param(100, set(), EQUAL, ["third"], id="the newest of those of whom one suffices"),
        pytest.param(50, set(), EQUAL, ["third"], id="for half a GPU as well"),
        pytest.param(100, set(), {"old": 0, "new-1": 0, "new-2": 0, "third": 5}, ["old"], id="one, and not two"),
        pytest.param(100, set(), {"old": 5, "new-1": 0, "new-2": 0, "third": 5}, ["new-1", "new-2"], id="lower first"),
        pytest.param(100, {"new-1"}, {"old": 5, "new-2": 0, "third": 5}, ["new-2"], id="besides those given"),
        pytest.param(200, set(), EQUAL, ["old", "third"], id="two GPUs"),
        pytest.param(300, set(), EQUAL, ["old", "new-1", "new-2", "third"], id="all"),
        pytest.param(400, set(), EQUAL, None, id="not even all suffice"),
        pytest.param(100, set(), {}, None, id="nobody may leave"),
        pytest.param(100, set(), {"new-1": 0}, None, id="who may leave does not suffice"),
    ],
)
def test_the_fewest_and_least_important_leave(
    percent: int, given: set[str], priorities: dict[str, int], expected: list[str] | None
) -> None:
    found = besides(percent, given, priorities)
    assert found is None if expected is None else sorted(found or []) == sorted(expected)


def test_the_most_important_stand_first() -> None:
    assert besides(300, set(), {"old": 3, "new-1": 1, "new-2": 2, "third": 2}) == ["old", "new-2", "third", "new-1"]


def test_without_a_search_pods_are_spared_one_by_one() -> None:
    assert besides(100, set(), EQUAL, search_max=0) == ["third"]
    assert besides(200, set(), EQUAL, search_max=0) is not None

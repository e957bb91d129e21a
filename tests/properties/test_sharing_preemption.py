"""Preemption: what leaves suffices, none of it can be spared, and no smaller set would do."""

from collections.abc import Set
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.model import Refusal
from gpuledger.domain.sharing.preemption import SEARCH_MAX, Evictable, FewestVictims
from support.events import hour
from support.shared_nodes import MINOR_ORDER, gpu, gpus, node, request

PODS = st.lists(st.tuples(st.integers(0, 3), st.integers(10, 60), st.integers(0, 2)), min_size=1, max_size=9)
"""The GPU, the share and the priority of each."""


@given(PODS, st.sampled_from([30, 50, 80, 100, 200, 300]), st.sets(st.integers(0, 8)), st.sampled_from([0, SEARCH_MAX]))
def test_victims_suffice_and_none_is_needless(
    pods: list[tuple[int, int, int]], percent: int, leaving: set[int], search_max: int
) -> None:
    state, evictable = node(*(gpu(minor) for minor in range(4))), []
    for at, (minor, share, priority) in enumerate(pods):
        if state.free(GPU, minor)["gpu-core"] >= share:
            state.hold(f"p{at}", gpus(minor, percent=share))
            evictable.append(Evictable(f"p{at}", priority, hour(at)))
    asked, given_ = request({GPU: percent}), frozenset(f"p{at}" for at in leaving)

    def fits(gone: Set[str]) -> bool:
        return not isinstance(allocate(state, asked, MINOR_ORDER, preempted=gone), Refusal)

    found = FewestVictims(search_max).besides(given_, evictable, fits)
    if found is None:
        assert not fits(given_.union(one.uid for one in evictable))
        return
    uids = {one.uid for one in found}
    assert fits(given_ | uids)
    assert uids.isdisjoint(given_)
    assert not any(fits(given_ | (uids - {uid})) for uid in uids)
    assert [one.priority for one in found] == sorted((one.priority for one in found), reverse=True)
    if found:
        lower = {one.uid for one in evictable if one.priority < found[0].priority}
        assert not fits(given_ | lower), "pods of lower priority would have sufficed"
    if search_max:
        others = [one.uid for one in evictable if one.uid not in given_ and found and one.priority <= found[0].priority]
        smaller = (fewer for size in range(len(uids)) for fewer in combinations(others, size))
        assert not any(fits(given_.union(fewer)) for fewer in smaller)

"""The explanation finds exactly the nodes on which a recount finds room for a pod, whatever else there is."""

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.tools.explain.pools import Barrier, Finding, NodeConstraint, PodState, PodUse
from gpuledger.tools.explain.pools_wording import pool_words
from support.pool_explanations import POOL, explained_pool
from support.pools import PoolsLog, applied, marked, pool, refused

NODES = ("w1", "w2", "w3")
WORDS = ("applied", "refused", "waiting")
Devices = dict[str, list[str]]

fleets = st.fixed_dictionaries({node: st.lists(st.sampled_from(WORDS), max_size=3) for node in NODES})
pods = st.lists(st.tuples(st.sampled_from((*NODES, "elsewhere", None)), st.integers(1, 4)), max_size=6)
closed = st.sets(st.sampled_from(NODES))


def built(devices: Devices, slices: int) -> PoolsLog:
    """The pool with these devices, each set up, refused, or not yet reported by its agent."""
    pools = PoolsLog().begin()
    pools.record(POOL, pool(slices_per_unit=slices))
    for node, words in devices.items():
        pools.begin(node, devices=len(words))
        for number, word in enumerate(words):
            pools.record(f"{node}-{number}", marked("a"))
            if word != "waiting":
                pools.record(f"{node}-{number}", applied(POOL) if word == "applied" else refused(POOL))
    return pools


def recount(
    devices: Devices, slices: int, uses: list[tuple[str | None, int]], shut: set[str], requested: int
) -> list[str]:
    """The nodes with room, counted from what was told."""
    found = []
    for node, words in sorted(devices.items()):
        offered = words.count("applied") * slices
        used = sum(units for where, units in uses if where == node)
        if node not in shut and offered - used >= requested:
            found.append(node)
    return found


def shut_anyway(devices: Devices, slices: int, shut: set[str], requested: int, free: list[str]) -> set[str]:
    """The shut nodes, of those that are large enough, or of all where none is, that have no room either."""
    offered = {node: words.count("applied") * slices for node, words in devices.items() if "applied" in words}
    large = {node for node, units in offered.items() if units >= requested} or set(offered)
    return (large & shut) - set(free)


@given(fleets, st.integers(1, 3), pods, closed, st.integers(1, 6))
def test_a_pod_fits_where_a_recount_finds_room(
    devices: Devices, slices: int, uses: list[tuple[str | None, int]], shut: set[str], requested: int
) -> None:
    pools = built(devices, slices)
    given_uses = [PodUse(f"ns/{number}", node, units) for number, (node, units) in enumerate(uses)]
    constraints = {node: (NodeConstraint(Barrier.CORDONED),) for node in shut}
    found = explained_pool(pools, requested, *given_uses, constraints=constraints)
    expected = recount(devices, slices, uses, shut, requested)
    assert found.fitting == expected
    assert (found.finding is Finding.FITS) == bool(expected)
    assert found.offered == found.total
    assert bool(pool_words(found))
    assert ("the pod cannot run on" in pool_words(found)) == bool(
        not expected and shut_anyway(devices, slices, shut, requested, recount(devices, slices, uses, set(), requested))
    )
    if found.finding is Finding.NODES_CLOSED:
        assert recount(devices, slices, uses, set(), requested)
    if found.finding is Finding.FRAGMENTED:
        assert found.free >= requested > max(one.free for one in found.rooms)
    if found.finding is Finding.TOO_MANY:
        assert requested > sum(words.count("applied") for words in devices.values()) * slices


@given(fleets, st.integers(1, 6), st.sampled_from(NODES))
def test_a_bound_pod_has_its_units_whatever_there_is(devices: Devices, requested: int, node: str) -> None:
    assert explained_pool(built(devices, 1), requested, pod=PodState(node)).finding is Finding.HAS

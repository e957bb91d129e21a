"""GPUs near each other: scopes, the packing rule, shares, required scopes."""

import pytest

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY_RATIO, GPU_SHARED
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.hints import PodHints
from gpuledger.domain.sharing.model import Hint, NodeState, PodRequest, Refusal, Scope, Topology
from gpuledger.domain.sharing.scores import Scoring
from gpuledger.domain.sharing.topology import numa_index, tree, within
from support.shared_nodes import LEAST, MINOR_ORDER, MOST, chosen, eight, gpu, gpus, nic, node, request


def whole(number: int, scope: Scope | None = None) -> PodRequest:
    return request({GPU: 100 * number}, PodHints({GPU: Hint(required_scope=scope)}))


def half(number: int = 1, scope: Scope | None = None) -> PodRequest:
    amounts = {GPU_CORE: 50 * number, GPU_MEMORY_RATIO: 50 * number, GPU_SHARED: number}
    return request(amounts, PodHints({GPU: Hint(required_scope=scope)}))


def used(*minors: int, percent: int = 100) -> NodeState:
    return node(*eight(), held={"a": gpus(*minors, percent=percent)} if minors else None)


@pytest.mark.parametrize(
    ("number", "busy", "minors"),
    [
        pytest.param(1, [], [0], id="one, idle node"),
        pytest.param(2, [], [0, 1], id="two at one switch"),
        pytest.param(2, [0], [2, 3], id="two at an idle switch of the NUMA node in use"),
        pytest.param(2, [0, 2, 4, 6], [1, 3], id="two of one NUMA node where no switch has two"),
        pytest.param(3, [4], [5, 6, 7], id="three fill the NUMA node in use"),
        pytest.param(4, [0, 5], [1, 2, 3, 4], id="four of the node where no NUMA node has four"),
        pytest.param(1, [0, 1, 2, 4], [3], id="one where all of the path is in use, the lower NUMA node"),
        pytest.param(8, [], list(range(8)), id="all"),
    ],
)
def test_deepest_scope_then_the_most_used_path(number: int, busy: list[int], minors: list[int]) -> None:
    assert chosen(used(*busy), whole(number)) == {GPU: minors}


@pytest.mark.parametrize("scoring", [MINOR_ORDER, LEAST, MOST])
def test_strategy_does_not_count_for_whole_gpus(scoring: Scoring) -> None:
    state = node(*eight(), held={"a": gpus(3, percent=10), "b": gpus(7)})
    assert chosen(state, request({GPU_MEMORY_RATIO: 100, GPU_CORE: 90}), scoring) == {GPU: [2]}


@pytest.mark.parametrize(
    ("scoring", "minor"),
    [
        pytest.param(MINOR_ORDER, 4, id="minor order: the lower switch"),
        pytest.param(LEAST, 4, id="the least used GPU of the switches in use"),
        pytest.param(MOST, 7, id="the most used GPU of the switches in use"),
    ],
)
def test_strategy_decides_for_a_share_between_equal_scopes(scoring: Scoring, minor: int) -> None:
    state = node(*eight(), held={"a": gpus(5), "b": gpus(7, percent=50)})
    assert chosen(state, half(), scoring) == {GPU: [minor]}


def test_share_on_several_gpus_does_not_use_the_tree() -> None:
    state = node(*eight(), held={"a": gpus(0, 2, percent=50)})
    assert chosen(state, half(3), MOST) == {GPU: [0, 1, 2]}
    assert chosen(state, half(2), LEAST) == {GPU: [1, 3]}


@pytest.mark.parametrize(
    ("number", "scope", "busy", "minors"),
    [
        (2, Scope.PCIE, [0, 2, 4], [6, 7]),
        (2, Scope.PCIE, [0, 2, 4, 6], None),
        (2, Scope.NUMA, [0, 2, 4, 6], [1, 3]),
        (3, Scope.NUMA, [0, 2, 4, 6], None),
        (3, Scope.NODE, [0, 2, 4, 6], [1, 3, 5]),
        (1, Scope.DEVICE, [0], [1]),
        (2, Scope.DEVICE, [], None),
        (3, Scope.PCIE, [], None),
    ],
)
def test_required_scope_forbids_wider_ones(
    number: int, scope: Scope, busy: list[int], minors: list[int] | None
) -> None:
    assert chosen(used(*busy), whole(number, scope)) == (minors and {GPU: minors})


def test_refusal_names_the_scope() -> None:
    found = allocate(used(0, 2, 4, 6), whole(2, Scope.PCIE), LEAST)
    assert isinstance(found, Refusal)
    assert found.reason.startswith("Insufficient gpu devices: 2 within one PCIe with gpu-core 100")
    assert not found.unresolvable


def test_scope_cannot_be_kept_where_it_is_not_known_or_for_shares_of_several() -> None:
    state = node(gpu(0, where=Topology(0, 0, "0")), gpu(1))
    places = allocate(state, whole(2, Scope.NUMA), LEAST)
    shares = allocate(used(), half(2, Scope.NUMA), LEAST)
    assert isinstance(places, Refusal)
    assert isinstance(shares, Refusal)
    assert (places.unresolvable, shares.unresolvable) == (True, True)
    assert places.reason.endswith("within one NUMANode: the node does not say where all of its GPUs are.")
    assert shares.reason.endswith("within one NUMANode: shares of several GPUs cannot be kept near each other.")
    assert chosen(state, whole(2, Scope.NODE)) == {GPU: [0, 1]}
    assert chosen(state, whole(1, Scope.DEVICE)) == {GPU: [0]}


def test_gpus_of_which_one_has_no_place_are_taken_in_order() -> None:
    placed = [gpu(minor, where=Topology(0, 0, str(minor // 2))) for minor in range(4)]
    state = node(*placed, gpu(9), held={"a": gpus(0)})
    assert chosen(state, whole(2)) == {GPU: [1, 2]}


def test_switches_go_by_number_and_then_by_name() -> None:
    names = ["10", "2", "b", "a"]
    state = node(*(gpu(minor, where=Topology(0, 0, name)) for minor, name in enumerate(names)))
    got = []
    for pod in names:
        found = allocate(state, whole(1), LEAST)
        assert not isinstance(found, Refusal)
        got.append(found[GPU][0].minor)
        state.hold(pod, found)
    assert got == [3, 2, 1, 0]


def test_unhealthy_gpu_in_use_still_counts_as_used() -> None:
    devices = [one._replace(healthy=False) if one == eight()[5] else one for one in eight()]
    assert chosen(node(*devices, held={"a": gpus(5)}), whole(1)) == {GPU: [4]}


def test_tree_and_index_of_a_node() -> None:
    state = node(gpu(0, where=Topology(0, 0, "a")), gpu(1), nic(1, Topology(1, 3, "b")))
    assert tree(state.devices[GPU].values()) == {0: {"a": [0]}}
    assert numa_index(state) == {GPU: {0: 0}, "rdma": {1: 3}}


@pytest.mark.parametrize(
    ("minors", "narrowest"),
    [([0], Scope.DEVICE), ([0, 1], Scope.PCIE), ([0, 2], Scope.NUMA), ([0, 4], Scope.NODE)],
)
def test_within(minors: list[int], narrowest: Scope) -> None:
    devices = [eight()[minor] for minor in minors]
    scopes = list(Scope)
    assert [within(devices, scope) for scope in scopes] == [one >= scopes.index(narrowest) for one in range(4)]
    assert within(devices, None)
    assert not within([gpu(0), gpu(1)], Scope.NUMA)

"""Where pods fit, and which node is best."""

from collections.abc import Mapping, Sequence

import pytest

from gpuledger.api.sharing import Strategy
from gpuledger.domain.sharing import node_views, placement
from gpuledger.domain.sharing.machines import Needs
from gpuledger.domain.sharing.model import Allocation, NodeState, PodRequest, Refusal, TypeRequest
from gpuledger.domain.sharing.placement import Choice, Placement
from support.sharing_nodes import machines, memory, share, shared_nodes, whole

LEAST, MOST, GRADIENT = Strategy.LEAST_ALLOCATED, Strategy.MOST_ALLOCATED, Strategy.FRAGMENTATION


def _run(nodes: Mapping[str, NodeState], placing: Placement, *pods: PodRequest, strategy: Strategy = MOST) -> None:
    for pod in pods:
        choice = placing.choose(pod, strategy)
        assert choice is not None
        nodes[choice.node].hold(f"pod-{len(nodes[choice.node].holders)}", choice.allocation)


def _minors(allocation: Allocation | Refusal) -> list[int]:
    assert not isinstance(allocation, Refusal), allocation
    return [one.minor for one in allocation["gpu"]]


def test_fits_says_why_not_by_node() -> None:
    fits = Placement(shared_nodes(1, 2)).fits(whole(2), ["node-0", "node-1", "no-such-node"])
    assert fits["node-1"] is None
    assert fits["node-0"] is not None
    assert "Insufficient gpu" in fits["node-0"].reason
    assert fits["no-such-node"] == placement.NOT_SHARED


def test_a_node_that_changed_is_seen_as_it_is() -> None:
    nodes = shared_nodes(1, 1)
    placing = Placement(nodes)
    _run(nodes, placing, whole(1))
    assert [one is None for one in placing.fits(whole(1), nodes).values()] == [False, True]
    nodes["node-0"].release("pod-0")
    assert [one is None for one in placing.fits(whole(1), nodes).values()] == [True, True]
    nodes["node-1"] = shared_nodes(0)["node-0"]
    del nodes["node-0"]
    assert [one is None for one in placing.fits(whole(1), ["node-0", "node-1"]).values()] == [False, False]
    assert placing.choose(whole(1), MOST) is None


@pytest.mark.parametrize(
    ("strategy", "scores"), [(LEAST, [0, 52, 100]), (MOST, [0, 100, 27]), ("MinorOrder", [0, 0, 0])]
)
def test_the_best_node_scores_100_and_a_misfit_nothing(strategy: str, scores: list[int]) -> None:
    nodes = shared_nodes(1, 1, 1)
    placing = Placement(nodes)
    for name, percent in (("node-0", 80), ("node-1", 40)):
        allocation = placing.allocation(share(percent), name, MOST)
        assert not isinstance(allocation, Refusal)
        nodes[name].hold("pod", allocation)
    # Of node-1 70 % would be used, and 40 % of its memory; of node-2 30 %.
    for _ in range(2):
        found = placing.scores(share(30), nodes, strategy)
        assert [found[name] for name in nodes] == scores


def test_gradient_fills_up_a_gpu_rather_than_break_a_whole_one() -> None:
    nodes = shared_nodes(2, 2)
    placing = Placement(nodes)
    for pod in (share(60), whole(1), whole(2), share(40)):
        placing.note(pod)
    placing.expected.renew()
    _run(nodes, placing, share(60), strategy=GRADIENT)
    choice = placing.choose(share(40), GRADIENT)
    assert choice is not None
    assert (choice.node, _minors(choice.allocation)) == ("node-0", [0])
    scores = placing.scores(share(40), nodes, GRADIENT)
    assert scores["node-0"] == 100
    assert scores["node-1"] <= 90


def test_gradient_takes_the_gpu_that_adds_least_on_a_given_node() -> None:
    nodes = shared_nodes(3)
    placing = Placement(nodes)
    for percent in (50, 50, 70):
        placing.note(share(percent))
    placing.expected.renew()
    node = nodes["node-0"]
    for pod, percent in (("a", 50), ("b", 30)):
        allocation = placing.allocation(share(percent)._replace(), "node-0", Strategy.MINOR_ORDER)
        assert not isinstance(allocation, Refusal)
        node.hold(pod, allocation)
    # Minor 0 has 20 left; of the two free ones the first is as good as the second.
    assert _minors(placing.allocation(share(20), "node-0", GRADIENT)) == [0]
    assert _minors(placing.allocation(share(50), "node-0", GRADIENT)) == [1]


def test_gradient_places_all_kinds_of_requests() -> None:
    nodes = shared_nodes(4)
    placing = Placement(nodes)
    two_halves = PodRequest((TypeRequest("gpu", 2, {"gpu-core": 50, "gpu-memory-ratio": 50}, True),))
    for pod in (memory(4), two_halves, whole(1)):
        placing.note(pod)
    placing.expected.renew()
    _run(nodes, placing, memory(4), two_halves, whole(1), strategy=GRADIENT)
    assert isinstance(placing.allocation(whole(4), "node-0", GRADIENT), Refusal)
    assert _minors(placing.allocation(whole(4), "node-0", GRADIENT, preempted=set(nodes["node-0"].holders))) == [
        0,
        1,
        2,
        3,
    ]


def test_a_machine_needs_room_for_cpu_and_memory() -> None:
    nodes = machines(1, 1, cpu_milli=8_000, memory_mib=1_024)
    placing = Placement(nodes)
    nodes["node-0"].occupy("busy", Needs(6_000, 0), {})
    choice = placing.choose(share(10), MOST, needs=Needs(4_000, 512))
    assert choice is not None
    assert choice.node == "node-1"
    nodes["node-1"].occupy("pod", Needs(4_000, 1_000), choice.allocation)
    assert placing.choose(share(10), MOST, needs=Needs(4_000, 512)) is None
    assert placing.choose(share(10), MOST, needs=Needs(1_000, 512)) == Choice("node-0", choice.allocation)
    nodes["node-1"].vacate("pod")
    assert placing.choose(PodRequest(()), GRADIENT, needs=Needs(4_000, 1_024)) == Choice("node-1", {})


def test_equally_good_nodes_are_drawn_by_the_caller() -> None:
    def last(places: Sequence[int]) -> int:
        return places[-1]

    choice = Placement(shared_nodes(1, 1, 1)).choose(whole(1), Strategy.MINOR_ORDER, tie=last)
    assert choice is not None
    assert choice.node == "node-2"


def test_nodes_in_one_state_are_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = []

    def allocated(node: NodeState, *_: object) -> Allocation:
        decided.append(node.name)
        return {}

    monkeypatch.setattr(placement, "allocate", allocated)
    placing = Placement(shared_nodes(*[8] * 100, *[4] * 100))
    placing.fits(share(10), [f"node-{at}" for at in range(200)])
    placing.fits(share(10), [f"node-{at}" for at in range(200)])
    assert decided == ["node-0", "node-100"]


def test_states_are_numbered_anew_at_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_views, "STATES_MAX", 3)
    nodes = shared_nodes(1)
    placing = Placement(nodes)
    for percent in range(1, 60):
        assert placing.fits(share(41), nodes)["node-0"] is None
        allocation = placing.allocation(share(1), "node-0", MOST)
        assert not isinstance(allocation, Refusal)
        nodes["node-0"].hold(f"pod-{percent}", allocation)
    assert placing.fits(share(42), nodes)["node-0"] is not None
    assert placing.fits(share(41), nodes)["node-0"] is None

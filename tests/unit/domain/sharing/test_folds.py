"""Who holds what of a node's shared devices, after every story that a pod may have."""

from collections.abc import Sequence

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.domain.sharing.folds import HANDLERS
from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.partition_tables import LINKED_EIGHT, Table
from gpuledger.domain.sharing.rows import SharedPod
from gpuledger.domain.sharing.state import GONE_PODS_MAX, Sharing, SharingInMemory
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeGone
from gpuledger.events.payload import Payload
from gpuledger.events.sharing import NodeDevicesShared, PodSharingObserved
from support.sharing import bound, gone, gpu, observed, of_gpus, released, reserved, share, shared, story

NODE = "n1"
POD = "ml/a"
CARDS = (NODE, 0, shared(gpu(0), gpu(1)))


def state_of(events: Sequence[Decoded], state: Sharing | None = None) -> Sharing:
    found = Sharing() if state is None else state
    for position, one in enumerate(events, 1):
        HANDLERS[type(one.data)](found, Fact(one, position, 0), one.data)
    return found


def pod_after(*facts: tuple[float, Payload], uid: str = "u1") -> SharedPod:
    row = state_of(story(CARDS, *((POD, at, data) for at, data in facts))).shared_pod.get(uid)
    assert row is not None
    return row


def used(state: Sharing, minor: int = 0, node: str = NODE) -> int:
    nodes = NodeStates(state).nodes
    return nodes[node].used.get("gpu", {}).get(minor, {}).get("gpu-core", 0) if node in nodes else -1


@pytest.mark.parametrize(
    ("facts", "state", "core"),
    [
        ([(1, observed())], "waiting", 0),
        ([(1, observed()), (2, reserved())], "reserved", 50),
        ([(1, observed()), (2, reserved()), (3, released())], "waiting", 0),
        ([(2, reserved()), (3, released()), (4, reserved("u1", share(0, 25)))], "reserved", 25),
        ([(2, reserved()), (3, bound())], "bound", 50),
        ([(2, reserved()), (3, observed(node=NODE, allocation=of_gpus(share(0))))], "bound", 50),
        ([(2, reserved()), (3, observed(node=NODE, allocation=of_gpus(share(0)), started=True))], "running", 50),
        ([(3, observed(node=NODE, allocation=of_gpus(share(0))))], "bound", 50),
        ([(3, observed(allocation=of_gpus(share(0))))], "waiting", 0),
        ([(2, reserved()), (3, observed(node=NODE, allocation=of_gpus(share(0, 25))))], "bound", 25),
        ([(2, reserved()), (3, observed(node=NODE))], "bound", 50),
        ([(3, observed(node=NODE, allocation=of_gpus(share(0)))), (4, released())], "bound", 50),
        ([(2, reserved()), (3, gone())], "gone", 0),
        ([(2, reserved()), (3, gone(None))], "reserved", 50),
        ([(3, observed(node=NODE, allocation=of_gpus(share(0)))), (4, gone())], "gone", 0),
        ([(3, gone()), (4, reserved())], "reserved", 50),
        ([(3, gone()), (4, reserved()), (5, released())], "gone", 0),
        ([(3, gone()), (2, reserved()), (1, observed())], "gone", 0),
    ],
)
def test_who_holds_what(facts: Sequence[tuple[float, Payload]], state: str, core: int) -> None:
    events = story(CARDS, *((POD, at, data) for at, data in facts))
    found = state_of(events)
    assert used(found) == core
    row = found.shared_pod.get("u1")
    assert row is not None
    assert row.state == state


@pytest.mark.parametrize(
    ("seen", "differs"),
    [
        (observed(), False),
        (observed(allocation=of_gpus(share(1))), False),
        (observed(node=NODE, allocation=of_gpus(share(0))), False),
        (observed(node=NODE, allocation={"gpu": (share(0).model_copy(update={"id": None}),), "rdma": ()}), False),
        (observed(node=NODE, allocation=of_gpus(share(0, 25))), True),
        (observed(node=NODE, allocation=of_gpus(share(1))), True),
        (observed(node=NODE), True),
        (observed(node="n2", allocation=of_gpus(share(0))), True),
    ],
)
def test_an_annotation_that_is_not_the_reservation_shows(seen: PodSharingObserved, *, differs: bool) -> None:
    assert pod_after((2, reserved()), (3, seen)).differs is differs


def test_two_facts_of_one_time_count_in_the_order_of_recording() -> None:
    assert pod_after((2, reserved()), (2, released())).state == "waiting"
    assert pod_after((2, released()), (2, reserved())).state == "reserved"


@pytest.mark.parametrize("end", [NodeGone(), NodeDevicesShared(enabled=False)])
def test_pods_hold_nothing_of_a_node_while_it_is_gone(end: Payload) -> None:
    holds = (POD, 1, observed(node=NODE, allocation=of_gpus(share(0))))
    assert used(state_of(story(CARDS, holds, (NODE, 2, end)))) == -1
    assert used(state_of(story(CARDS, holds, (NODE, 2, end), (NODE, 3, shared(gpu(0)))))) == 50
    left = (POD, 2.5, gone())
    assert used(state_of(story(CARDS, holds, (NODE, 2, end), left, (NODE, 3, shared(gpu(0)))))) == 0


def test_a_later_object_of_a_name_is_another_pod() -> None:
    events = story(CARDS, (POD, 1, reserved("u1")), (POD, 2, gone("u1")), (POD, 3, reserved("u2", share(1))))
    assert [used(state_of(events), minor) for minor in (0, 1)] == [0, 50]


def test_node_states_follow_what_is_folded() -> None:
    events = story(
        CARDS,
        (POD, 1, reserved()),
        (POD, 2, observed(node=NODE, allocation=of_gpus(share(1)))),
        ("ml/b", 2, reserved("u3", share(0, 25))),
        (NODE, 3, NodeGone()),
        ("ml/b", 4, gone("u3")),
        (NODE, 5, shared(gpu(1))),
    )
    state = Sharing()
    nodes, touched = NodeStates(state), []
    for position, one in enumerate(events, 1):
        HANDLERS[type(one.data)](state, Fact(one, position, 0), one.data)
        touched.append(nodes.refresh())
        fresh = NodeStates(state_of(events[:position])).nodes
        assert {name: (one.devices, one.holders) for name, one in nodes.nodes.items()} == {
            name: (one.devices, one.holders) for name, one in fresh.items()
        }
    assert [one.nodes for one in touched] == [("n1",)] * 7
    assert touched[1].pods == ("u1",)


@pytest.mark.parametrize(("model", "table"), [("H100", LINKED_EIGHT), ("T4", {})])
def test_node_states_know_how_gpus_of_a_model_are_linked(model: str, table: Table) -> None:
    node = NodeStates(state_of(story((NODE, 0, shared(gpu(0), model=model))))).nodes[NODE]
    assert node.partitions == table


def test_pods_that_are_gone_leave_a_memory_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert GONE_PODS_MAX >= 1_000
    monkeypatch.setattr("gpuledger.domain.sharing.state.GONE_PODS_MAX", 5)
    state = SharingInMemory()
    for number in range(20):
        uid = f"u{number}"
        state_of(story((f"ml/{uid}", 1, reserved(uid)), (f"ml/{uid}", 2, gone(uid))), state)
    assert list(state.shared_pod.rows) == [f"u{number}" for number in range(15, 20)]
    assert state_of(story(("ml/u19", 1.5, reserved("u19"))), state).shared_pod.rows["u19"].state == "gone"


def test_a_card_that_the_driver_numbers_anew_stays_held() -> None:
    holds = (POD, 1, observed(node=NODE, allocation=of_gpus(share(0))))
    swapped = (NODE, 2, shared(gpu(0, id="GPU-1"), gpu(1, id="GPU-0")))
    state = state_of(story(CARDS, holds, swapped))
    assert (used(state, 0), used(state, 1)) == (0, 50)
    assert used(state_of(story(CARDS, swapped, (POD, 3, holds[2]))), 1) == 50


def test_a_card_in_the_place_of_a_held_one_counts_as_held() -> None:
    holds = (POD, 1, observed(node=NODE, allocation=of_gpus(share(0))))
    replaced = (NODE, 2, shared(gpu(0, id="GPU-new"), gpu(1)))
    assert used(state_of(story(CARDS, holds, replaced)), 0) == 50
    followed = state_of(story(CARDS, holds))
    states = NodeStates(followed)
    event = story(CARDS, holds, (NODE, 2, shared(gpu(0, id="GPU-1"), gpu(1, id="GPU-0"))))[-1]
    HANDLERS[NodeDevicesShared](followed, Fact(event, 3, 0), event.data)
    states.refresh()
    assert states.nodes[NODE].used["gpu"].keys() == {1}


def test_of_released_pods_that_nobody_has_seen_only_the_last_ones_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuledger.domain.sharing.state.GONE_PODS_MAX", 5)
    state = SharingInMemory()
    for number in range(20):
        uid = f"u{number}"
        state_of(story((f"ml/{uid}", 1, reserved(uid)), (f"ml/{uid}", 2, released(uid))), state)
    assert list(state.shared_pod.rows) == [f"u{number}" for number in range(15, 20)]

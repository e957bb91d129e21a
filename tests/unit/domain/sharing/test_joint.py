"""GPUs together with NICs, virtual functions, and NICs for which the amount is for all or is their number."""

import pytest

from gpuledger.api.sharing import GPU, RDMA
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.hints import APPLY_FOR_ALL, REQUESTS_AS_COUNT, PodHints
from gpuledger.domain.sharing.model import (
    Allocated,
    Device,
    FunctionGroup,
    Hint,
    JointAllocate,
    LabelRequirement,
    LabelSelector,
    PodRequest,
    Refusal,
    Topology,
    VirtualFunction,
)
from gpuledger.domain.sharing.placement import Placement
from gpuledger.domain.sharing.scores import Scoring
from support.shared_nodes import LEAST, MINOR_ORDER, MOST, chosen, eight, gpu, gpus, nic, node, request

EVERY = LabelSelector()
GENERAL = LabelSelector((LabelRequirement("type", "In", frozenset({"general"})),))


def near(number: int, rdma: int = 1, *, same_pcie: bool = False, hint: Hint | None = None) -> PodRequest:
    hints = PodHints({RDMA: hint or Hint()}, JointAllocate((GPU, RDMA), same_pcie))
    return request({GPU: 100 * number, RDMA: rdma}, hints)


def nics(hint: Hint, rdma: int = 1) -> PodRequest:
    return request({RDMA: rdma}, PodHints({RDMA: hint}))


@pytest.mark.parametrize(
    ("number", "rdma", "busy", "taken"),
    [
        pytest.param(2, 1, [0, 1], [2], id="at the switch of the GPUs"),
        pytest.param(4, 1, [0, 1, 2, 3], [3, 4], id="one at each switch"),
        pytest.param(2, 200, [], [1, 2], id="more than there are switches: then any"),
        pytest.param(4, 300, [], [1, 2, 3], id="the switches first"),
    ],
)
def test_nics_at_the_switches(number: int, rdma: int, busy: list[int], taken: list[int]) -> None:
    state = node(*eight(), held={"a": gpus(*busy)} if busy else None)
    found = chosen(state, near(number, rdma))
    assert found is not None
    assert found[RDMA] == taken


def test_elsewhere_where_the_switch_has_none_left() -> None:
    state = node(*eight(), held={"a": {RDMA: (Allocated(1, {RDMA: 100}),)}})
    assert chosen(state, near(2)) == {GPU: [0, 1], RDMA: [2]}
    assert chosen(state, near(2, same_pcie=True)) is None


@pytest.mark.parametrize("scoring", [MINOR_ORDER, LEAST, MOST])
def test_one_gpu_is_chosen_among_those_whose_switch_has_the_nics(scoring: Scoring) -> None:
    """GPU 7 is half used and has a NIC at its switch; GPU 4, the other one in a broken-up place, has none."""
    held = {"a": gpus(5), "b": gpus(7, percent=50), "c": {RDMA: (Allocated(3, {RDMA: 100}),)}}
    state = node(*eight(), held=held)
    half = request({GPU: 50, RDMA: 1}, PodHints({}, JointAllocate((GPU, RDMA), same_pcie=True)))
    found = chosen(state, half, scoring)
    assert found is not None
    assert found[RDMA] == [found[GPU][0] // 2 + 1]
    placement = Placement({"node-1": state})
    assert placement.fits(half, ["node-1"]) == {"node-1": None}
    assert placement.choose(half, scoring.strategy) is not None


def test_as_many_switches_as_have_a_nic() -> None:
    state = node(*eight(), held={"a": {RDMA: (Allocated(1, {RDMA: 100}),)}})
    assert chosen(state, near(4)) == {GPU: [0, 1, 2, 3], RDMA: [2]}
    assert chosen(state, near(8)) == {GPU: list(range(8)), RDMA: [2, 3, 4]}


def test_switches_give_one_nic_after_the_other() -> None:
    places = [Topology(0, 0, str(switch)) for switch in (0, 1)]
    nics_of_both = [nic(minor, places[minor // 3]) for minor in range(5)]
    state = node(*(gpu(minor, where=place) for minor, place in enumerate(places)), *nics_of_both)
    assert chosen(state, near(2, 300)) == {GPU: [0, 1], RDMA: [0, 1, 3]}
    assert chosen(state, near(2, 500, same_pcie=True)) == {GPU: [0, 1], RDMA: [0, 1, 2, 3, 4]}
    assert chosen(state, near(1, 400, same_pcie=True)) is None


def test_gpus_are_not_chosen_again_for_the_nics() -> None:
    state = node(*eight(), held={"a": {**gpus(0), RDMA: (Allocated(1, {RDMA: 100}),)}})
    found = allocate(state, near(3, same_pcie=True), LEAST)
    assert isinstance(found, Refusal)
    assert found.reason.startswith("Insufficient rdma devices: 1 at the PCIe switches of the other devices")


def test_same_switch_needs_known_switches() -> None:
    where = Topology(0, 0, "0")
    assert chosen(node(gpu(0), nic(0, where)), near(1, same_pcie=True)) is None
    assert chosen(node(gpu(0), nic(0, where)), near(1)) == {GPU: [0], RDMA: [0]}
    assert chosen(node(gpu(0), nic(0)), near(1, same_pcie=True)) is None
    some = node(gpu(0), gpu(1, where=where), nic(0, where))
    assert chosen(some, near(2, same_pcie=True)) is None


def test_gpus_lead_whatever_the_order_of_the_types() -> None:
    state = node(*eight(), held={"a": gpus(0, 1)})
    asked = near(2)._replace(joint=JointAllocate((RDMA, GPU)))
    assert chosen(state, asked._replace(types=asked.types[::-1])) == {GPU: [2, 3], RDMA: [2]}


def test_without_gpus_nothing_is_joint() -> None:
    asked = request({RDMA: 1}, PodHints(joint=JointAllocate((GPU, RDMA), same_pcie=True)))
    assert chosen(node(*eight()), asked) == {RDMA: [1]}


def test_nics_for_which_the_amount_is_for_all_are_not_joint() -> None:
    asked = near(1, 5, same_pcie=True, hint=Hint(allocate_strategy=APPLY_FOR_ALL))
    assert chosen(node(*eight()), asked) == {GPU: [0], RDMA: [1, 2, 3, 4]}


def test_apply_for_all_is_refused_where_one_has_no_room() -> None:
    asked = nics(Hint(allocate_strategy=APPLY_FOR_ALL), 60)
    state = node(nic(0), nic(1), held={"a": {RDMA: (Allocated(1, {RDMA: 50}),)}})
    assert chosen(state, asked) is None
    state.release("a")
    assert chosen(state, asked) == {RDMA: [0, 1]}


def test_requests_as_count() -> None:
    found = allocate(node(nic(0), nic(1), nic(2)), nics(Hint(allocate_strategy=REQUESTS_AS_COUNT), 2), MINOR_ORDER)
    assert found == {RDMA: (Allocated(0, {RDMA: 1}), Allocated(1, {RDMA: 1}))}


def storage_nic() -> Device:
    groups = (
        FunctionGroup({"type": "storage"}, (VirtualFunction(0, "0000:09:00.1"),)),
        FunctionGroup({"type": "general"}, (VirtualFunction(7, "0000:09:00.9"), VirtualFunction(8, "0000:09:00.10"))),
    )
    return nic(1)._replace(function_groups=groups)


def test_function_with_the_lowest_bus_id_as_text() -> None:
    state = node(storage_nic())
    got = []
    for pod in ("a", "b", "c"):
        found = allocate(state, nics(Hint(vf_selector=GENERAL)), LEAST)
        if isinstance(found, Refusal):
            break
        got += [vf.bus_id for vf in found[RDMA][0].functions]
        state.hold(pod, found)
    assert got == ["0000:09:00.10", "0000:09:00.9"]
    state.release("a")
    again = allocate(state, nics(Hint(vf_selector=GENERAL)), LEAST)
    assert again == {RDMA: (Allocated(1, {RDMA: 1}, (VirtualFunction(8, "0000:09:00.10"),)),)}


def test_function_that_two_pods_hold_is_free_when_both_are_gone() -> None:
    state = node(nic(0, functions=["x"]))
    held = {RDMA: (Allocated(0, {RDMA: 1}, (VirtualFunction(0, "x"),)),)}
    state.hold("a", held)
    state.hold("b", held)
    asked = nics(Hint(vf_selector=EVERY))
    state.release("a")
    assert isinstance(allocate(state, asked, LEAST), Refusal)
    assert allocate(state, asked, LEAST, preempted=frozenset({"b"})) == held
    state.release("b")
    assert allocate(state, asked, LEAST) == held


def test_designated_function() -> None:
    state = node(nic(0, functions=["x", "y", "z"]))
    only = {RDMA: (Allocated(0, {RDMA: 1}, (VirtualFunction(1, "y"),)),)}
    asked = nics(Hint(vf_selector=EVERY))._replace(designated=only)
    assert allocate(state, asked, LEAST) == only
    state.hold("a", only)
    assert isinstance(allocate(state, asked, LEAST), Refusal)


def test_nic_that_no_selector_selects_is_passed_over() -> None:
    state = node(nic(0)._replace(labels={"type": "storage"}), nic(1, functions=["x"])._replace(labels={"type": "nic"}))
    only = LabelSelector((LabelRequirement("type", "In", frozenset({"nic"})),))
    assert chosen(state, nics(Hint(selector=only))) == {RDMA: [1]}
    assert chosen(state, nics(Hint(vf_selector=EVERY))) == {RDMA: [1]}
    refused = allocate(state, nics(Hint(selector=only, vf_selector=EVERY), 200), LEAST)
    assert isinstance(refused, Refusal)
    assert "2 with rdma 100 and a virtual function each asked for, 1 of 2 have room" in refused.reason

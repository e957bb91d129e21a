"""Whether all requests of claims can be met at once: on one node, with their constraints, from distinct devices."""

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.dra.candidates import ClusterDevices
from gpuledger.domain.dra.placement import PendingClaim
from gpuledger.events.claim import ClaimRequested, Constraint, Request
from gpuledger.events.slice import (
    DeviceCapacity,
    SliceDevice,
)
from gpuledger.tools.explain.dra import explain
from gpuledger.tools.explain.dra_wording import NODES_UNKNOWN, NOT_ALL_TRIED, NOWHERE, answer_words, notes_of
from support.dra_explanations import (
    BAD,
    PARTS,
    SLICE,
    available,
    devices,
    explained,
    holding,
    requesting,
    selects_as_text,
    slice_of,
    wish,
    words,
)

NUMA = "gpu.example.com/numa"


def numbered_devices(*values: int) -> tuple[SliceDevice, ...]:
    return tuple(SliceDevice(name=f"gpu-{i}", attributes={"numa": value}) for i, value in enumerate(values))


def test_devices_on_two_nodes_are_not_on_one() -> None:
    facts = words(slice_of("w1", *devices("a")), slice_of("w2", *devices("b")), claim=requesting(wish(count=2)))
    assert facts == "request gpu: 2 devices requested, 2 available, and no more than 1 of them on one node (w1)"


def test_what_one_request_takes_is_missing_for_another() -> None:
    claim = requesting(wish("big", count=1), wish("small", count=2))
    assert words(*PARTS, claim=claim) == (
        "node w1 has enough for each request, and not for all: what one takes is missing for another"
    )


def test_devices_have_to_agree() -> None:
    match = Constraint(requests=("gpu",), match_attribute=NUMA)
    facts = slice_of("w1", *numbered_devices(0, 1, 2))
    assert words(facts, claim=requesting(wish(count=2), constraints=[match])) == (
        f"node w1 has devices enough, and no set of them meets matchAttribute {NUMA} (gpu 1 with 0, 1 with 1, 1 with 2)"
    )
    agreed = words(slice_of("w1", *numbered_devices(0, 1, 1)), claim=requesting(wish(count=2), constraints=[match]))
    assert agreed.endswith("gpu gets gpu.example.com/w1/gpu-1, gpu gets gpu.example.com/w1/gpu-2")


def test_devices_have_to_differ() -> None:
    distinct = Constraint(distinct_attribute=NUMA)
    claim = requesting(wish(count=2), constraints=[distinct])
    assert "distinctAttribute" in words(slice_of("w1", *numbered_devices(1, 1)), claim=claim)
    assert words(slice_of("w1", *numbered_devices(1, 1, 2)), claim=claim).startswith("it could be")


def test_values_agree_only_within_their_type() -> None:
    mixed = (SliceDevice(name="a", attributes={"numa": True}), SliceDevice(name="b", attributes={"numa": 1}))
    claim = requesting(wish(count=2), constraints=[Constraint(match_attribute=NUMA)])
    assert "matchAttribute" in words(slice_of("w1", *mixed), claim=claim)


def test_only_the_violated_constraint_is_shown() -> None:
    offered = tuple(SliceDevice(name=f"gpu-{i}", attributes={"numa": i, "model": "A100"}) for i in range(2))
    constraints = [Constraint(match_attribute="gpu.example.com/model"), Constraint(match_attribute=NUMA)]
    facts = words(slice_of("w1", *offered), claim=requesting(wish(count=2), constraints=constraints))
    assert NUMA in facts
    assert "model" not in facts


def test_requests_that_no_node_has_together() -> None:
    facts = (
        slice_of("w1", *devices("g", attributes={"kind": "gpu"})),
        slice_of("w2", *devices("n", attributes={"kind": "nic"})),
    )
    claim = requesting(wish("gpu", selectors=("kind=gpu",)), wish("nic", selectors=("kind=nic",)))
    assert words(*facts, claim=claim) == (
        "no node has enough for all requests; node w1 comes closest: gpu 1 of 1, nic 0 of 1"
    )


def test_claims_of_one_pod_are_given_different_devices() -> None:
    state = available(slice_of("w1", *devices("d")))
    both = explained(state, requesting(wish()), requesting(wish()))
    assert "not for all" in answer_words(both, "now")


def test_a_shared_device_serves_as_often_as_it_has_capacity() -> None:
    capacity = {"memory": DeviceCapacity(value="10Gi")}
    facts = slice_of("w1", SliceDevice(name="d", shareable=True, capacity=capacity))
    assert words(facts, claim=requesting(wish(count=2, capacity={"memory": "5Gi"}))).startswith("it could be")
    assert "missing for another" in words(facts, claim=requesting(wish(count=2, capacity={"memory": "6Gi"})))


def test_nodes_on_which_other_claims_cannot_be_used_do_not_count() -> None:
    state = available(slice_of("w1", *devices("d")), slice_of("w2", *devices("e")))
    pending = [PendingClaim("ns/c", requesting(wish()))]
    there = explain(ClusterDevices(state, selects_as_text), pending, allows=lambda node: node.name == "w2")
    assert there.together.node == "w2"
    nowhere = explain(ClusterDevices(state, selects_as_text), pending, allows=lambda _: False)
    assert answer_words(nowhere, "now") == NOWHERE


def test_constraints_name_alternatives_too() -> None:
    offered = slice_of("w1", *numbered_devices(0, 1))
    options = (wish("two", count=2), wish("one"))
    constraint = Constraint(requests=("gpu/two",), match_attribute=NUMA)
    claim = ClaimRequested(uid="u", requests=(Request(name="gpu", wishes=options),), constraints=(constraint,))
    assert "gpu/one gets gpu.example.com/w1/gpu-0" in words(offered, claim=claim)
    free = claim.model_copy(update={"constraints": ()})
    assert "gpu/two gets" in words(offered, claim=free)


def test_a_claim_can_be_given_so_many_devices() -> None:
    facts = slice_of("w1", *devices(*(f"d{i}" for i in range(40))))
    assert words(facts, claim=requesting(wish(count=32))).startswith("it could be allocated")
    assert (
        words(facts, claim=requesting(wish(count=33)))
        == "33 devices are requested, and a claim can have no more than 32"
    )


def test_an_inexact_answer_has_a_note() -> None:
    notes = list(notes_of(explained(available(SLICE), requesting(wish(count=9)))))
    assert notes == [NODES_UNKNOWN]
    offered = tuple(SliceDevice(name=f"gpu-{i}", attributes={"numa": i // 5, "rack": i % 5}) for i in range(120))
    constraints = [Constraint(match_attribute=NUMA), Constraint(distinct_attribute="gpu.example.com/rack")]
    hard = requesting(wish(count=6), constraints=constraints)
    assert NOT_ALL_TRIED in notes_of(explained(available(slice_of("w1", *offered)), hard))


@given(
    held=st.sets(st.integers(0, 5)),
    tainted=st.sets(st.integers(0, 5)),
    values=st.lists(st.integers(0, 2), min_size=6, max_size=6),
    count=st.integers(1, 4),
)
def test_a_matching_set_is_found_exactly_where_there_is_one(
    held: set[int], tainted: set[int], values: list[int], count: int
) -> None:
    offered = tuple(
        SliceDevice(name=f"gpu-{i}", attributes={"numa": value}, taints=(BAD,) if i in tainted else ())
        for i, value in enumerate(values)
    )
    facts = [slice_of("w1", *offered), *(holding(f"a/{i}", f"w1/gpu-{i}") for i in held)]
    claim = requesting(wish(count=count), constraints=[Constraint(match_attribute=NUMA)])
    free = [value for i, value in enumerate(values) if i not in held | tainted]
    is_there = any(free.count(value) >= count for value in free)
    given_ = explained(available(*facts), claim).together.allocated
    assert (given_ is not None) is is_there
    if given_ is not None:
        assert len({one.candidate.payload.attributes["numa"] for one in given_}) == 1
        assert len({one.candidate.device.name for one in given_}) == count

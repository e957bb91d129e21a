"""Which nodes a slice or a device reaches."""

import pytest

from gpuledger.domain.dra.facts import reach_of, slice_of
from gpuledger.domain.dra.objects import LabelledNode
from gpuledger.domain.dra.reach import device_in_reach, in_reach, reaches
from gpuledger.events.reach import NodeReach, NodeRequirement
from support.dra import ANYWHERE, counters, device, on, published

NODE = LabelledNode("n1", {"zone": "a", "slots": "8", "odd": "1_000", "empty": ""})


def node_requirement(key: str, operator: str, *values: str, is_field: bool = False) -> NodeRequirement:
    return NodeRequirement(key=key, operator=operator, values=values, is_field=is_field)


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        (node_requirement("zone", "In", "a", "b"), True),
        (node_requirement("zone", "In", "b"), False),
        (node_requirement("absent", "In", "a"), False),
        (node_requirement("zone", "NotIn", "a"), False),
        (node_requirement("zone", "NotIn", "b"), True),
        (node_requirement("absent", "NotIn", "a"), True),
        (node_requirement("empty", "Exists"), True),
        (node_requirement("absent", "Exists"), False),
        (node_requirement("absent", "DoesNotExist"), True),
        (node_requirement("zone", "DoesNotExist"), False),
        (node_requirement("slots", "Gt", "7"), True),
        (node_requirement("slots", "Gt", "8"), False),
        (node_requirement("slots", "Lt", "9"), True),
        (node_requirement("slots", "Lt", "8"), False),
        (node_requirement("zone", "Gt", "1"), False),
        (node_requirement("slots", "Gt", "x"), False),
        (node_requirement("slots", "Gt"), False),
        (node_requirement("absent", "Lt", "1"), False),
        (node_requirement("odd", "Gt", "1"), False),
        (node_requirement("slots", "Lt", " 9 "), False),
        (node_requirement("slots", "Lt", "9" * 19), False),
        (node_requirement("slots", "Lt", "9" * 5000), False),
        (node_requirement("zone", "Like", "a"), False),
        (node_requirement("metadata.name", "In", "n1", is_field=True), True),
        (node_requirement("metadata.name", "NotIn", "n1", is_field=True), False),
        (node_requirement("metadata.name", "In", "n1"), False),
        (node_requirement("zone", "In", "a", is_field=True), False),
    ],
)
def test_requirements(requirement: NodeRequirement, is_met: bool) -> None:
    assert reaches(reach_of(NodeReach(terms=((requirement,),))), NODE) is is_met


@pytest.mark.parametrize(
    ("reach", "is_reached"),
    [
        (on("n1"), True),
        (on("n2"), False),
        (ANYWHERE, True),
        (NodeReach(), False),
        (NodeReach(terms=((),)), False),
        (NodeReach(terms=((), (node_requirement("zone", "Exists"),))), True),
        (NodeReach(terms=((node_requirement("zone", "Exists"), node_requirement("absent", "Exists")),)), False),
    ],
)
def test_one_term_has_to_fit_in_all_its_parts(reach: NodeReach, is_reached: bool) -> None:
    assert reaches(reach_of(reach), NODE) is is_reached
    assert in_reach(slice_of("s", published(reach=reach)), NODE) is is_reached


def test_a_slice_of_devices_with_their_own_reach_is_where_one_of_them_is() -> None:
    near, far, nowhere = device("near", reach=on("n1")), device("far", reach=on("n2")), device("nowhere")
    one = slice_of("s", published(near, far, nowhere).model_copy(update={"reach": None}))
    assert in_reach(one, NODE)
    assert [device_in_reach(one, each, NODE) for each in one.devices] == [True, False, False]
    assert not in_reach(one, LabelledNode("n3", {}))


def test_shared_counters_are_in_reach_of_everybody() -> None:
    assert in_reach(slice_of("s", published(reach=on("n2"), counter_sets=(counters(),))), NODE)

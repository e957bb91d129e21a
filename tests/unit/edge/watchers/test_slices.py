"""The facts of ResourceSlices, and what they leave out."""

from typing import Any

import pytest

from gpuledger.edge.watchers.resources import slices
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.reach import REQUIREMENTS_MAX, NodeReach, NodeRequirement
from gpuledger.events.slice import (
    ATTRIBUTES_MAX,
    DEVICES_PER_SLICE_MAX,
    DeviceCapacity,
    RequestPolicy,
    SlicePublished,
    Taint,
    Version,
)
from support.dra_watched import IS_NAMED, NAMED, Json, payload_of, published, terms


def device(**more: Any) -> Json:
    return {"name": "gpu-0"} | more


def slice_fact(obj: Json) -> SlicePublished:
    payload = payload_of(slices.KIND, obj)
    assert isinstance(payload, SlicePublished)
    return payload


ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
IN_ZONE = NodeRequirement(key="zone", operator="In", values=("a", "b"))


@pytest.mark.parametrize(
    ("place", "reach"),
    [
        ({"nodeName": "w1"}, NodeReach(node="w1")),
        ({"allNodes": True}, NodeReach(all_nodes=True)),
        ({"allNodes": False}, NodeReach()),
        ({"nodeSelector": terms(ZONE)}, NodeReach(terms=((IN_ZONE,),))),
        ({"nodeSelector": terms(NAMED, where="matchFields")}, NodeReach(terms=((IS_NAMED,),))),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, NodeReach(terms=((),))),
        ({}, NodeReach()),
        ({"perDeviceNodeSelection": True}, None),
    ],
)
def test_which_nodes_a_slice_is_for(place: Json, reach: NodeReach | None) -> None:
    assert slice_fact(published(**place)).reach == reach
    (one,) = slice_fact(published([device(**place)], perDeviceNodeSelection=True)).devices
    assert one.reach == (reach or NodeReach())
    (one,) = slice_fact(published([device(**place)], allNodes=True)).devices
    assert one.reach is None


@pytest.mark.parametrize(
    "requirement",
    [
        {"key": "zone", "operator": "In", "values": [1]},
        {"key": "zone", "operator": "In", "values": ["\0"]},
        {"key": "zone", "operator": "In", "values": ["a"] * (REQUIREMENTS_MAX + 1)},
        {"operator": "Exists"},
        {"key": "zone"},
        "zone",
    ],
)
def test_a_term_that_is_not_understood_selects_no_node(requirement: Any) -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [ZONE, requirement]}, {"matchExpressions": [ZONE]}]}
    part = slices.read(published(nodeSelector=selector))
    assert slices.KIND.combine([part.content]).reach == NodeReach(terms=((IN_ZONE,),))
    assert part.problems


def test_a_slices_own_fields() -> None:
    payload = slice_fact(published())
    assert (payload.uid, payload.generation, payload.driver, payload.pool) == ("u", 3, "gpu.example.com", "p")
    assert (payload.pool_generation, payload.slice_count) == (2, 1)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ({"string": "H100"}, "H100"),
        ({"string": ""}, ""),
        ({"int": -7}, -7),
        ({"int": BIGINT_MAX}, BIGINT_MAX),
        ({"bool": False}, False),
        ({"version": "1.2.3-rc.1"}, Version(version="1.2.3-rc.1")),
    ],
)
def test_attributes_of_every_type(attribute: Json, value: object) -> None:
    part = slices.read(published([device(attributes={"a": attribute})]))
    (one,) = slices.KIND.combine([part.content]).devices
    assert one.attributes == {"a": value}
    assert type(one.attributes["a"]) is type(value)
    assert part.problems == ()


@pytest.mark.parametrize(
    ("attribute", "is_reported"),
    [
        ({"strings": ["a"]}, False),
        ({"ints": [1]}, False),
        ({"bools": [True]}, False),
        ({"versions": ["1.0.0"]}, False),
        ({"int": BIGINT_MAX + 1}, True),
        ({"int": True}, True),
        ({"bool": 1}, True),
        ({"string": "a\0"}, True),
        ({"string": "x" * 5_000}, True),
        ({}, True),
        ([], True),
    ],
)
def test_attributes_that_are_left_out(attribute: Any, is_reported: bool) -> None:
    part = slices.read(published([device(attributes={"a": attribute, "b": {"int": 1}})]))
    assert slices.KIND.combine([part.content]).devices[0].attributes == {"b": 1}
    assert bool(part.problems) == is_reported


def test_capacities_and_what_a_request_takes_of_them() -> None:
    allowed = {"min": "1Gi", "max": "8Gi", "step": "1024Mi"}
    capacity = {
        "memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi", "validRange": allowed}},
        "cores": {"value": 4, "requestPolicy": {"default": "2", "validValues": ["1", "2", "x"]}},
        "plain": {"value": "0.5"},
        "whole": {"value": "1", "requestPolicy": {}},
        "odd": {"value": "much"},
        "none": {},
    }
    part = slices.read(published([device(capacity=capacity, allowMultipleAllocations=True)]))
    (one,) = slices.KIND.combine([part.content]).devices
    assert one.shareable
    assert one.capacity == {
        "cores": DeviceCapacity(value="4", policy=RequestPolicy(default="2", values=("1", "2"))),
        "memory": DeviceCapacity(value="80Gi", policy=RequestPolicy(default="1Gi", min="1Gi", max="8Gi", step="1Gi")),
        "plain": DeviceCapacity(value="500m"),
        "whole": DeviceCapacity(value="1", policy=RequestPolicy()),
    }
    assert part.problems == (
        "devices[0].capacity[cores].validValues is 'x'",
        "devices[0].capacity[odd].value is 'much'",
    )


def test_counters_are_shared_and_consumed() -> None:
    counters = [{"name": "set", "counters": {"memory": {"value": "40Gi"}, "slices": {"value": "7"}}}]
    assert slice_fact(published(None, sharedCounters=counters)).counter_sets[0].counters == {
        "memory": "40Gi",
        "slices": "7",
    }
    consumed = [
        {"counterSet": "set", "counters": {"memory": {"value": "10240Mi"}}},
        {"counterSet": "other", "counters": {"slices": {"value": "1"}}},
        {"counters": {"slices": {"value": "1"}}},
    ]
    part = slices.read(published([device(consumesCounters=consumed)]))
    assert slices.KIND.combine([part.content]).devices[0].consumes == {
        "set": {"memory": "10Gi"},
        "other": {"slices": "1"},
    }
    assert part.problems == ("devices[0].consumesCounters[2].counterSet is None",)


def test_taints_of_a_device() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "b", "value": "x", "effect": "None"},
        {"key": "c"},
    ]
    part = slices.read(published([device(taints=taints)]))
    assert slices.KIND.combine([part.content]).devices[0].taints == (
        Taint(key="a", effect="NoSchedule"),
        Taint(key="b", value="x", effect="None"),
    )
    assert part.problems == ("devices[0].taints[2].effect is None",)


def test_what_an_event_cannot_hold_is_cut_and_noted() -> None:
    attributes = {f"a{index:03}": {"int": index} for index in range(ATTRIBUTES_MAX + 1)}
    devices = [{"name": f"gpu-{index}"} for index in range(DEVICES_PER_SLICE_MAX + 2)]
    devices[0]["attributes"] = attributes  # type: ignore[assignment] # a device holds more than texts
    part = slices.read(published(devices))
    payload = slices.KIND.combine([part.content])
    assert len(payload.devices) == DEVICES_PER_SLICE_MAX
    assert len(payload.devices[0].attributes) == ATTRIBUTES_MAX
    assert part.problems == (
        f"devices has {DEVICES_PER_SLICE_MAX + 2} entries; only {DEVICES_PER_SLICE_MAX} of them are recorded",
        f"devices[0].attributes has {ATTRIBUTES_MAX + 1} entries; only {ATTRIBUTES_MAX} of them are recorded",
    )


def test_a_slice_that_is_too_large_goes_without_attributes_or_not_at_all() -> None:
    attributes = {f"a{index:03}": {"string": "x" * 4_000} for index in range(ATTRIBUTES_MAX)}
    part = slices.read(published([device(attributes=attributes, name=f"gpu-{index}") for index in range(8)]))
    assert [one.attributes for one in slices.KIND.combine([part.content]).devices] == [{}] * 8
    assert part.problems == ("it is too large for an event; the attributes of its devices are left out",)
    capacity = {f"{index:03}{'x' * 240}": {"value": "1"} for index in range(ATTRIBUTES_MAX)}
    part = slices.read(published([device(capacity=capacity, name=f"gpu-{index}") for index in range(128)]))
    assert part.subject is None
    assert part.problems[-1] == "it is too large for an event, and left out"

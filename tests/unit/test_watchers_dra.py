"""What watchers make of the objects of dynamic resource allocation and of nodes' labels: values in, values out."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId
from gpuledger.events.claim import (
    RESULTS_MAX,
    ClaimAllocated,
    ClaimReleased,
    ClaimRequested,
    Constraint,
    Result,
    Toleration,
)
from gpuledger.events.node import LABELS_MAX, NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import BIGINT_MAX, NAME_LENGTH_MAX
from gpuledger.events.reach import REQUIREMENTS_MAX, NodeReach, NodeRequirement
from gpuledger.events.slice import (
    ATTRIBUTES_MAX,
    DEVICES_PER_SLICE_MAX,
    DeviceCapacity,
    DeviceClassDefined,
    DeviceClassRemoved,
    RequestPolicy,
    SlicePublished,
    SliceWithdrawn,
    Taint,
    TaintRuleLifted,
    TaintRuleSet,
    Version,
)
from gpuledger.watchers import claims, deviceclasses, nodelabels, slices, taintrules
from gpuledger.watchers.decide import Kind, View
from gpuledger.watchers.problems import PROBLEMS_MAX, SAID_BYTES_MAX, shown
from support.odd_objects import a_list, a_map, an_object, recorded, texts

KINDS = (slices.KIND, claims.KIND, deviceclasses.KIND, taintrules.KIND, nodelabels.KIND)

Json = dict[str, Any]


def published(devices: object = (), **spec: Any) -> Json:
    pool = {"name": "p", "generation": 2, "resourceSliceCount": 1}
    whole = {"driver": "gpu.example.com", "pool": pool, "devices": devices} | spec
    return {"metadata": {"name": "s", "uid": "u", "generation": 3}, "spec": whole}


def device(**more: Any) -> Json:
    return {"name": "gpu-0"} | more


def claim(*requests: Json, status: Json | None = None, **devices: Any) -> Json:
    metadata = {"name": "c", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests)} | devices}, "status": status or {}}


def result(**more: Any) -> Json:
    return {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"} | more


def allocated(*results: Json, **allocation: Any) -> Json:
    return {"allocation": {"devices": {"results": list(results)}} | allocation}


def exactly(**more: Any) -> Json:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1} | more}


def said_of(kind: Kind, obj: Json) -> Any:
    part = kind.read(obj)
    return None if part.subject is None else kind.combine([part.said])


def slice_said(obj: Json) -> SlicePublished:
    said = said_of(slices.KIND, obj)
    assert isinstance(said, SlicePublished)
    return said


def claim_said(obj: Json) -> Any:
    return said_of(claims.KIND, obj)


def terms(*requirements: Json, where: str = "matchExpressions") -> Json:
    return {"nodeSelectorTerms": [{where: list(requirements)}]}


ZONE = {"key": "zone", "operator": "In", "values": ["a", "b"]}
IN_ZONE = NodeRequirement(key="zone", operator="In", values=("a", "b"))
NAMED = {"key": "metadata.name", "operator": "In", "values": ["w1"]}
IS_NAMED = NodeRequirement(key="metadata.name", operator="In", values=("w1",), is_field=True)


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
    assert slice_said(published(**place)).reach == reach
    (one,) = slice_said(published([device(**place)], perDeviceNodeSelection=True)).devices
    assert one.reach == (reach or NodeReach())
    (one,) = slice_said(published([device(**place)], allNodes=True)).devices
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
    assert slices.combine([part.said]).reach == NodeReach(terms=((IN_ZONE,),))
    assert part.problems


def test_what_a_slice_says_of_itself() -> None:
    said = slice_said(published())
    assert (said.uid, said.generation, said.driver, said.pool) == ("u", 3, "gpu.example.com", "p")
    assert (said.pool_generation, said.slice_count) == (2, 1)


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
    (one,) = slices.combine([part.said]).devices
    assert one.attributes == {"a": value}
    assert type(one.attributes["a"]) is type(value)
    assert part.problems == ()


@pytest.mark.parametrize(
    ("attribute", "is_told"),
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
def test_attributes_that_are_left_out(attribute: Any, is_told: bool) -> None:
    part = slices.read(published([device(attributes={"a": attribute, "b": {"int": 1}})]))
    assert slices.combine([part.said]).devices[0].attributes == {"b": 1}
    assert bool(part.problems) == is_told


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
    (one,) = slices.combine([part.said]).devices
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
    assert slice_said(published(None, sharedCounters=counters)).counter_sets[0].counters == {
        "memory": "40Gi",
        "slices": "7",
    }
    consumed = [
        {"counterSet": "set", "counters": {"memory": {"value": "10240Mi"}}},
        {"counterSet": "other", "counters": {"slices": {"value": "1"}}},
        {"counters": {"slices": {"value": "1"}}},
    ]
    part = slices.read(published([device(consumesCounters=consumed)]))
    assert slices.combine([part.said]).devices[0].consumes == {"set": {"memory": "10Gi"}, "other": {"slices": "1"}}
    assert part.problems == ("devices[0].consumesCounters[2].counterSet is None",)


def test_taints_of_a_device() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "b", "value": "x", "effect": "None"},
        {"key": "c"},
    ]
    part = slices.read(published([device(taints=taints)]))
    assert slices.combine([part.said]).devices[0].taints == (
        Taint(key="a", effect="NoSchedule"),
        Taint(key="b", value="x", effect="None"),
    )
    assert part.problems == ("devices[0].taints[2].effect is None",)


def test_more_than_an_event_holds_is_cut_and_told() -> None:
    attributes = {f"a{index:03}": {"int": index} for index in range(ATTRIBUTES_MAX + 1)}
    devices = [{"name": f"gpu-{index}"} for index in range(DEVICES_PER_SLICE_MAX + 2)]
    devices[0]["attributes"] = attributes  # type: ignore[assignment] # a device holds more than texts
    part = slices.read(published(devices))
    said = slices.combine([part.said])
    assert len(said.devices) == DEVICES_PER_SLICE_MAX
    assert len(said.devices[0].attributes) == ATTRIBUTES_MAX
    assert part.problems == (
        f"devices has {DEVICES_PER_SLICE_MAX + 2} entries, of which {DEVICES_PER_SLICE_MAX} are told",
        f"devices[0].attributes has {ATTRIBUTES_MAX + 1} entries, of which {ATTRIBUTES_MAX} are told",
    )


def test_a_slice_that_is_too_large_goes_without_attributes_or_not_at_all() -> None:
    attributes = {f"a{index:03}": {"string": "x" * 4_000} for index in range(ATTRIBUTES_MAX)}
    part = slices.read(published([device(attributes=attributes, name=f"gpu-{index}") for index in range(8)]))
    assert [one.attributes for one in slices.combine([part.said]).devices] == [{}] * 8
    assert part.problems == ("it is too large for an event; the attributes of its devices are left out",)
    capacity = {f"{index:03}{'x' * 240}": {"value": "1"} for index in range(ATTRIBUTES_MAX)}
    part = slices.read(published([device(capacity=capacity, name=f"gpu-{index}") for index in range(128)]))
    assert part.subject is None
    assert part.problems[-1] == "it is too large for an event, and left out"


def test_a_claim_that_is_too_large_keeps_what_it_holds() -> None:
    selectors = [{"cel": {"expression": "x" * 10_000}}] * 32
    requests = [exactly(selectors=selectors, name="r") | {"name": f"r{index}"} for index in range(4)]
    part = claims.read(claim(*requests, status=allocated(result())))
    said = claims.combine([part.said])
    assert isinstance(said, ClaimAllocated)
    assert len(said.results) == 1
    assert [wish.selectors for request in said.requests for wish in request.wishes] == [()] * 4
    assert part.problems == ("it is too large for an event; the selectors of its requests are left out",)


def test_what_a_request_asks_for() -> None:
    one = exactly(
        count=2,
        selectors=[{"cel": {"expression": "true"}}, {"other": {}}],
        tolerations=[{"operator": "Exists"}, {"key": "a", "value": "x", "effect": "NoExecute"}],
        capacity={"requests": {"memory": "1024Mi"}},
    )
    ((wish,),) = [request.wishes for request in claim_said(claim(one)).requests]
    assert (wish.name, wish.device_class, wish.mode, wish.count, wish.admin_access) == (
        "r", "gpu", "ExactCount", 2, False,
    )  # fmt: skip
    assert wish.selectors == ("true",)
    assert wish.tolerations == (
        Toleration(operator="Exists"),
        Toleration(key="a", value="x", effect="NoExecute"),
    )
    assert wish.capacity == {"memory": "1Gi"}


@pytest.mark.parametrize(
    ("given", "mode", "count", "is_told"),
    [
        ({"allocationMode": "All", "count": None}, "All", 1, False),
        ({"count": None}, "ExactCount", 1, False),
        ({"allocationMode": "Some"}, "ExactCount", 1, True),
        ({"count": -2}, "ExactCount", 1, True),
        ({"count": BIGINT_MAX + 1}, "ExactCount", 1, True),
    ],
)
def test_how_many_a_request_asks_for(given: Json, mode: str, count: int, is_told: bool) -> None:
    part = claims.read(claim(exactly(**given)))
    ((wish,),) = [request.wishes for request in claims.combine([part.said]).requests]
    assert (wish.mode, wish.count, bool(part.problems)) == (mode, count, is_told)


def test_alternatives_stand_in_their_order() -> None:
    alternatives = [{"name": "big", "deviceClassName": "a"}, {"name": "small", "deviceClassName": "b", "count": 2}]
    (request,) = claim_said(claim({"name": "r", "firstAvailable": alternatives})).requests
    assert [(wish.name, wish.device_class, wish.count) for wish in request.wishes] == [
        ("big", "a", 1),
        ("small", "b", 2),
    ]


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": 1, "operator": "Exists"},
        {"key": "a", "effect": ["NoSchedule"]},
        {"key": "x" * 300, "operator": "Exists"},
    ],
)
def test_a_toleration_that_is_not_understood_tolerates_nothing(toleration: Json) -> None:
    part = claims.read(claim(exactly(tolerations=[toleration])))
    ((wish,),) = [request.wishes for request in claims.combine([part.said]).requests]
    assert wish.tolerations == ()
    assert part.problems


def test_constraints_of_requests() -> None:
    constraints = [
        {"matchAttribute": "a/b"},
        {"requests": ["r"], "distinctAttribute": "a/c"},
        {"requests": [1], "matchAttribute": "a/b"},
        {"matchAttribute": 1},
    ]
    part = claims.read(claim(exactly(), constraints=constraints))
    assert claims.combine([part.said]).constraints == (
        Constraint(match_attribute="a/b"),
        Constraint(requests=("r",), distinct_attribute="a/c"),
    )
    assert len(part.problems) == 2


def test_what_a_claim_was_given() -> None:
    share = result(shareID="s1", consumedCapacity={"memory": "2048Mi"}, device="gpu-1")
    said = claim_said(claim(exactly(), status=allocated(result(), share, result(adminAccess=True))))
    assert isinstance(said, ClaimAllocated)
    plain = Result(request="r", driver="gpu.example.com", pool="p", device="gpu-0")
    assert said.results == (
        plain,
        plain.model_copy(update={"device": "gpu-1", "share": "s1", "consumed": {"memory": "2Gi"}}),
        plain.model_copy(update={"admin_access": True}),
    )


@pytest.mark.parametrize(
    ("allocation", "reach"),
    [
        ({}, None),
        ({"nodeSelector": None}, None),
        ({"nodeSelector": {}}, NodeReach()),
        ({"nodeSelector": terms(NAMED, where="matchFields")}, NodeReach(terms=((IS_NAMED,),))),
    ],
)
def test_where_an_allocation_can_be_used(allocation: Json, reach: NodeReach | None) -> None:
    assert claim_said(claim(exactly(), status=allocated(result(), **allocation))).reach == reach


def test_a_claim_without_devices_can_be_allocated() -> None:
    assert isinstance(claim_said(claim()), ClaimRequested)
    assert isinstance(claim_said(claim(status={"allocation": {}})), ClaimAllocated)


def test_who_uses_a_claim_changes_nothing_in_it() -> None:
    before = claim(exactly(), status=allocated(result()))
    after = claim(
        exactly(), status=allocated(result()) | {"reservedFor": [{"name": "p"}], "devices": [{"device": "x"}]}
    )
    assert claims.read(before) == claims.read(after)


def test_the_pod_that_a_claim_was_made_for() -> None:
    owners = [{"kind": "Pod", "name": "a"}, {"kind": "Job", "name": "b", "controller": True}]
    obj = claim()
    obj["metadata"]["ownerReferences"] = [*owners, {"kind": "Pod", "name": "c", "controller": True}]
    assert claim_said(obj).owner == "c"
    obj["metadata"]["ownerReferences"] = owners
    assert claim_said(obj).owner is None


def test_more_results_than_an_event_holds_are_told() -> None:
    part = claims.read(claim(status=allocated(*[result()] * (RESULTS_MAX + 1))))
    said = claims.combine([part.said])
    assert isinstance(said, ClaimAllocated)
    assert len(said.results) == RESULTS_MAX
    assert part.problems


@pytest.mark.parametrize(
    ("namespace", "name"), [("n" * 63, "c" * NAME_LENGTH_MAX), ("ns", "c." * 126 + "c"), ("n", "c")]
)
def test_a_claim_of_any_name_can_be_recorded(namespace: str, name: str) -> None:
    obj = claim()
    obj["metadata"] |= {"namespace": namespace, "name": name}
    part = claims.read(obj)
    assert part.subject == f"{namespace}/{name}"
    assert recorded(claims.KIND, part.subject, part.said).subject == part.subject


def test_device_classes() -> None:
    selectors = [{"cel": {"expression": "a"}}, {"cel": {"expression": "b"}}]
    obj = {"metadata": {"name": "gpu", "uid": "u"}, "spec": {"selectors": selectors, "config": [{}]}}
    assert said_of(deviceclasses.KIND, obj) == DeviceClassDefined(uid="u", selectors=("a", "b"))


def rule(**spec: Any) -> Json:
    return {"metadata": {"name": "t", "uid": "u"}, "spec": spec}


HARD = {"key": "k", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"driver": "d"}, {"driver": "d"}),
        ({"driver": "d", "pool": "p", "device": "x"}, {"driver": "d", "pool": "p", "device": "x"}),
    ],
)
def test_taint_rules(selector: Json | None, expected: Json) -> None:
    said = said_of(taintrules.KIND, rule(deviceSelector=selector, taint=HARD | {"value": "v"}))
    assert said == TaintRuleSet(uid="u", taint=Taint(key="k", value="v", effect="NoExecute"), **expected)


@pytest.mark.parametrize(
    "spec",
    [
        {"taint": {"key": "k"}},
        {"taint": {"effect": "NoExecute"}},
        {},
        {"taint": HARD, "deviceSelector": {"driver": 1}},
        {"taint": HARD, "deviceSelector": {"driver": "d", "pool": "x" * 300}},
    ],
)
def test_a_taint_rule_that_is_not_understood_taints_nothing(spec: Json) -> None:
    part = taintrules.read(rule(**spec))
    assert part.subject is None
    assert part.problems


def test_all_labels_of_a_node_but_those_that_tick() -> None:
    labels = {"a": "b", "kubernetes.io/hostname": "w1", "empty": "", "nvidia.com/gfd.timestamp": "1"}
    obj = {"metadata": {"name": "w1", "uid": "u", "labels": labels}}
    kept = {"a": "b", "empty": "", "kubernetes.io/hostname": "w1"}
    assert said_of(nodelabels.KIND, obj) == NodeLabelled(uid="u", labels=kept)
    assert said_of(nodelabels.KIND, {"metadata": {"name": "w1", "uid": "u"}}) == NodeLabelled(uid="u")
    assert said_of(nodelabels.KIND, {"metadata": {"name": "w1"}}) is None


def test_labels_that_no_event_holds_are_told() -> None:
    labels = {f"l{index:04}": "x" for index in range(LABELS_MAX + 2)} | {"long": "x" * 300}
    part = nodelabels.read({"metadata": {"name": "w1", "uid": "u", "labels": labels}})
    assert len(nodelabels.combine([part.said]).labels) == LABELS_MAX
    assert part.problems == (f"3 of its {LABELS_MAX + 3} labels are too long or too many",)


@pytest.mark.parametrize(
    ("kind", "farewell"),
    [
        (slices.KIND, SliceWithdrawn(uid="u")),
        (claims.KIND, ClaimReleased(uid="u")),
        (deviceclasses.KIND, DeviceClassRemoved(uid="u")),
        (taintrules.KIND, TaintRuleLifted(uid="u")),
        (nodelabels.KIND, NodeUnlabelled(uid="u")),
    ],
)
def test_what_says_that_something_is_gone(kind: Kind, farewell: object) -> None:
    assert kind.farewell("u") == farewell


def test_kinds_of_one_aggregate_have_sources_of_their_own() -> None:
    assert len({kind.source for kind in KINDS}) == len(KINDS)


def test_problems_are_few_and_short() -> None:
    part = slices.read(published([{"name": 1}] * 100))
    assert len(part.problems) == PROBLEMS_MAX
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    assert [shown(one) for one in (nested, {"a": 1}, 10**5_000, None, 1.5)] == [
        "a list", "an object", "a number", "None", "1.5",
    ]  # fmt: skip
    assert len(shown("x" * 10_000)) < 120


_amounts = a_map(an_object(value=texts))
_requirement = an_object(key=texts, operator=texts, values=a_list(texts))
_selector = an_object(
    nodeSelectorTerms=a_list(an_object(matchExpressions=a_list(_requirement), matchFields=a_list(_requirement)))
)
_taint = an_object(key=texts, value=texts, effect=texts)
_policy = an_object(default=texts, validValues=a_list(texts), validRange=an_object(min=texts, max=texts, step=texts))
_device = an_object(
    name=texts,
    attributes=a_map(an_object(string=texts, int=st.integers(), bool=st.booleans(), version=texts)),
    capacity=a_map(an_object(value=texts, requestPolicy=_policy)),
    consumesCounters=a_list(an_object(counterSet=texts, counters=_amounts)),
    taints=a_list(_taint),
    nodeName=texts,
    nodeSelector=_selector,
)
_wish = an_object(
    name=texts,
    deviceClassName=texts,
    allocationMode=texts,
    count=st.integers(),
    selectors=a_list(an_object(cel=an_object(expression=texts))),
    tolerations=a_list(an_object(key=texts, operator=texts, effect=texts, value=texts)),
    capacity=an_object(requests=a_map(texts)),
)
_request = an_object(name=texts, exactly=_wish, firstAvailable=a_list(_wish))
_constraint = an_object(requests=a_list(texts), matchAttribute=texts, distinctAttribute=texts)
_result = an_object(request=texts, driver=texts, pool=texts, device=texts, shareID=texts, consumedCapacity=a_map(texts))
_spec = an_object(
    driver=st.just("d"),
    pool=an_object(name=st.just("p"), generation=st.integers(), resourceSliceCount=st.integers()),
    devices=a_list(_device) | an_object(requests=a_list(_request), constraints=a_list(_constraint)),
    sharedCounters=a_list(an_object(name=texts, counters=_amounts)),
    perDeviceNodeSelection=st.booleans(),
    nodeSelector=_selector,
    nodeName=texts,
    taint=_taint,
    deviceSelector=an_object(driver=texts, pool=texts, device=texts),
    selectors=a_list(an_object(cel=an_object(expression=texts))),
)
_metadata = an_object(
    name=st.just("n") | texts,
    namespace=st.just("ns") | texts,
    uid=texts,
    generation=st.integers(),
    labels=a_map(texts),
    ownerReferences=a_list(an_object(kind=st.just("Pod"), name=texts, controller=st.just(value=True))),
)
_status = an_object(allocation=an_object(devices=an_object(results=a_list(_result)), nodeSelector=_selector))
_odd = st.fixed_dictionaries({}, optional={"metadata": _metadata, "spec": _spec, "status": _status})


@given(obj=_odd)
def test_any_object_can_be_read_recorded_and_understood(obj: Json) -> None:
    for kind in KINDS:
        part = kind.read(obj)
        assert len(part.said) <= SAID_BYTES_MAX
        assert View(kind, [part]).subjects() == ({part.subject} if part.subject else set())
        if part.subject is None:
            continue
        match recorded(kind, part.subject, part.said).data:
            case SlicePublished() as said:
                slice_of(part.subject, said)
            case ClaimAllocated() as said:
                list(holdings_of(ClaimId("ns", "n", said.uid), said))
            case TaintRuleSet() as said:
                rule_of(part.subject, said)


@given(obj=_odd)
def test_what_is_read_is_json(obj: Json) -> None:
    for kind in KINDS:
        part = kind.read(obj)
        assert part.subject is None or isinstance(orjson.loads(part.said), dict)

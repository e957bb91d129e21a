"""What watchers make of DeviceClasses, taint rules and nodes' labels, and of any object: values in, values out."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.dra.facts import holdings_of, rule_of, slice_of
from gpuledger.domain.dra.objects import ClaimId
from gpuledger.edge.watchers.decide import AnyKind, WatchedObjects
from gpuledger.edge.watchers.fields import PROBLEMS_MAX, shown
from gpuledger.edge.watchers.resources import claims, deviceclasses, nodes, slices, taintrules
from gpuledger.events.claim import ClaimAllocated, ClaimReleased
from gpuledger.events.node import LABELS_MAX, NodeLabelled, NodeUnlabelled
from gpuledger.events.payload import DATA_BYTES_MAX
from gpuledger.events.slice import (
    DeviceClassDefined,
    DeviceClassRemoved,
    SlicePublished,
    SliceWithdrawn,
    Taint,
    TaintRuleLifted,
    TaintRuleSet,
)
from support.dra_watched import Json, payload_of, published
from support.odd_objects import a_list, a_map, an_object, recorded, texts

KINDS = (slices.KIND, claims.KIND, deviceclasses.KIND, taintrules.KIND, nodes.LABELS_KIND)


def test_device_classes() -> None:
    selectors = [{"cel": {"expression": "a"}}, {"cel": {"expression": "b"}}]
    obj = {"metadata": {"name": "gpu", "uid": "u"}, "spec": {"selectors": selectors, "config": [{}]}}
    assert payload_of(deviceclasses.KIND, obj) == DeviceClassDefined(uid="u", selectors=("a", "b"))


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
    payload = payload_of(taintrules.KIND, rule(deviceSelector=selector, taint=HARD | {"value": "v"}))
    assert payload == TaintRuleSet(uid="u", taint=Taint(key="k", value="v", effect="NoExecute"), **expected)


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
    assert payload_of(nodes.LABELS_KIND, obj) == NodeLabelled(uid="u", labels=kept)
    assert payload_of(nodes.LABELS_KIND, {"metadata": {"name": "w1", "uid": "u"}}) == NodeLabelled(uid="u")
    assert payload_of(nodes.LABELS_KIND, {"metadata": {"name": "w1"}}) is None


def test_labels_that_no_event_holds_are_noted() -> None:
    labels = {f"l{index:04}": "x" for index in range(LABELS_MAX + 2)} | {"long": "x" * 300}
    part = nodes.read_labels({"metadata": {"name": "w1", "uid": "u", "labels": labels}})
    assert len(nodes.LABELS_KIND.combine([part.content]).labels) == LABELS_MAX
    assert part.problems == (f"3 of its {LABELS_MAX + 3} labels are too long or too many",)


@pytest.mark.parametrize(
    ("kind", "tombstone"),
    [
        (slices.KIND, SliceWithdrawn(uid="u")),
        (claims.KIND, ClaimReleased(uid="u")),
        (deviceclasses.KIND, DeviceClassRemoved(uid="u")),
        (taintrules.KIND, TaintRuleLifted(uid="u")),
        (nodes.LABELS_KIND, NodeUnlabelled(uid="u")),
    ],
)
def test_tombstones(kind: AnyKind, tombstone: object) -> None:
    assert kind.tombstone_of("u") == tombstone


def test_kinds_of_one_aggregate_have_different_sources() -> None:
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
        assert len(part.content) <= DATA_BYTES_MAX
        assert WatchedObjects(kind, [part]).subjects() == ({part.subject} if part.subject else set())
        if part.subject is None:
            continue
        match recorded(kind, part.subject, part.content).data:
            case SlicePublished() as payload:
                slice_of(part.subject, payload)
            case ClaimAllocated() as payload:
                list(holdings_of(ClaimId("ns", "n", payload.uid), payload))
            case TaintRuleSet() as payload:
                rule_of(part.subject, payload)


@given(obj=_odd)
def test_what_is_read_is_json(obj: Json) -> None:
    for kind in KINDS:
        part = kind.read(obj)
        assert part.subject is None or isinstance(orjson.loads(part.content), dict)

"""The facts of ResourceClaims: requests and allocations."""

from typing import Any

import pytest

from gpuledger.edge.watchers.resources import claims
from gpuledger.events.claim import RESULTS_MAX, ClaimAllocated, ClaimRequested, Constraint, Result, Toleration
from gpuledger.events.payload import BIGINT_MAX, NAME_LENGTH_MAX
from gpuledger.events.reach import NodeReach
from support.dra_watched import IS_NAMED, NAMED, Json, payload_of, terms
from support.odd_objects import recorded


def claim(*requests: Json, status: Json | None = None, **devices: Any) -> Json:
    metadata = {"name": "c", "namespace": "ns", "uid": "u"}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests)} | devices}, "status": status or {}}


def result(**more: Any) -> Json:
    return {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"} | more


def allocated(*results: Json, **allocation: Any) -> Json:
    return {"allocation": {"devices": {"results": list(results)}} | allocation}


def exactly(**more: Any) -> Json:
    return {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1} | more}


def claim_fact(obj: Json) -> Any:
    return payload_of(claims.KIND, obj)


def test_a_claim_that_is_too_large_keeps_what_it_holds() -> None:
    selectors = [{"cel": {"expression": "x" * 10_000}}] * 32
    requests = [exactly(selectors=selectors, name="r") | {"name": f"r{index}"} for index in range(4)]
    part = claims.read(claim(*requests, status=allocated(result())))
    payload = claims.KIND.combine([part.content])
    assert isinstance(payload, ClaimAllocated)
    assert len(payload.results) == 1
    assert [wish.selectors for request in payload.requests for wish in request.wishes] == [()] * 4
    assert part.problems == ("it is too large for an event; the selectors of its requests are left out",)


def test_the_fields_of_a_request() -> None:
    one = exactly(
        count=2,
        selectors=[{"cel": {"expression": "true"}}, {"other": {}}],
        tolerations=[{"operator": "Exists"}, {"key": "a", "value": "x", "effect": "NoExecute"}],
        capacity={"requests": {"memory": "1024Mi"}},
    )
    ((wish,),) = [request.wishes for request in claim_fact(claim(one)).requests]
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
    ("given", "mode", "count", "is_reported"),
    [
        ({"allocationMode": "All", "count": None}, "All", 1, False),
        ({"count": None}, "ExactCount", 1, False),
        ({"allocationMode": "Some"}, "ExactCount", 1, True),
        ({"count": -2}, "ExactCount", 1, True),
        ({"count": BIGINT_MAX + 1}, "ExactCount", 1, True),
    ],
)
def test_how_many_devices_a_request_needs(given: Json, mode: str, count: int, is_reported: bool) -> None:
    part = claims.read(claim(exactly(**given)))
    ((wish,),) = [request.wishes for request in claims.KIND.combine([part.content]).requests]
    assert (wish.mode, wish.count, bool(part.problems)) == (mode, count, is_reported)


def test_alternatives_stand_in_their_order() -> None:
    alternatives = [{"name": "big", "deviceClassName": "a"}, {"name": "small", "deviceClassName": "b", "count": 2}]
    (request,) = claim_fact(claim({"name": "r", "firstAvailable": alternatives})).requests
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
    ((wish,),) = [request.wishes for request in claims.KIND.combine([part.content]).requests]
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
    assert claims.KIND.combine([part.content]).constraints == (
        Constraint(match_attribute="a/b"),
        Constraint(requests=("r",), distinct_attribute="a/c"),
    )
    assert len(part.problems) == 2


def test_what_a_claim_was_given() -> None:
    share = result(shareID="s1", consumedCapacity={"memory": "2048Mi"}, device="gpu-1")
    payload = claim_fact(claim(exactly(), status=allocated(result(), share, result(adminAccess=True))))
    assert isinstance(payload, ClaimAllocated)
    plain = Result(request="r", driver="gpu.example.com", pool="p", device="gpu-0")
    assert payload.results == (
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
    assert claim_fact(claim(exactly(), status=allocated(result(), **allocation))).reach == reach


def test_a_claim_without_devices_can_be_allocated() -> None:
    assert isinstance(claim_fact(claim()), ClaimRequested)
    assert isinstance(claim_fact(claim(status={"allocation": {}})), ClaimAllocated)


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
    assert claim_fact(obj).owner == "c"
    obj["metadata"]["ownerReferences"] = owners
    assert claim_fact(obj).owner is None


def test_more_results_than_an_event_holds_are_noted() -> None:
    part = claims.read(claim(status=allocated(*[result()] * (RESULTS_MAX + 1))))
    payload = claims.KIND.combine([part.content])
    assert isinstance(payload, ClaimAllocated)
    assert len(payload.results) == RESULTS_MAX
    assert part.problems


@pytest.mark.parametrize(
    ("namespace", "name"), [("n" * 63, "c" * NAME_LENGTH_MAX), ("ns", "c." * 126 + "c"), ("n", "c")]
)
def test_a_claim_of_any_name_can_be_recorded(namespace: str, name: str) -> None:
    obj = claim()
    obj["metadata"] |= {"namespace": namespace, "name": name}
    part = claims.read(obj)
    assert part.subject == f"{namespace}/{name}"
    assert recorded(claims.KIND, part.subject, part.content).subject == part.subject

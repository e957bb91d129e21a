"""Slices and claims as objects of Kubernetes make the rows that a ledger of the same objects makes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.state import Availability
from gpuledger.events.claim import ClaimAllocated, Result
from gpuledger.events.slice import TaintRuleSet
from gpuledger.tools.present.objects import facts_of
from gpuledger.tools.present.slices import KINDS, availability_of
from gpuledger.tools.queries.availability import claim_rows, pool_rows, slice_rows
from support.dra_explanations import CLASS, DRIVER, available, devices, node, slice_of, wish
from support.dra_explanations import requesting as requesting_claim

Json = dict[str, Any]

CREATED, ALLOCATED = "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"
TIMES = ("since", "published_at")


def named(name: str, uid: str, namespace: str | None = None) -> Json:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": uid, "creationTimestamp": CREATED} | place


RESULT = {"request": "r", "driver": DRIVER, "pool": "w1", "device": "gpu-0"}
EXACTLY = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
OBJECTS: dict[str, list[Json]] = {
    "slices": [
        {
            "metadata": named("w1-slice", "u-w1-slice"),
            "spec": {
                "driver": DRIVER,
                "nodeName": "w1",
                "pool": {"name": "w1", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
            },
        }
    ],
    "claims": [
        {
            "metadata": named("train", "u-train", "team-a"),
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {"allocation": {"devices": {"results": [RESULT]}}},
        },
        {"metadata": named("wants", "u-asking", "team-a"), "spec": {"devices": {"requests": [EXACTLY]}}},
    ],
    "deviceclasses": [{"metadata": named("gpu", "u-gpu"), "spec": {}}],
    "taintrules": [
        {
            "metadata": named("rule", "u-rule"),
            "spec": {"deviceSelector": {"device": "gpu-1"}, "taint": {"key": "xid", "effect": "NoSchedule"}},
        }
    ],
    "nodelabels": [{"metadata": named("w1", "u-w1") | {"labels": {"kubernetes.io/hostname": "w1"}}}],
}


def state_of(objects: dict[str, list[Json]]) -> Availability:
    """The state that these objects make."""
    kinds = [(one, objects.get(one.kind.name, [])) for one in KINDS]
    return availability_of(fact for one, given in kinds for fact in facts_of(one.kind, map(one.read, given)))


def recorded() -> Availability:
    """The state that a ledger of the same objects makes."""
    asked = requesting_claim(wish(name="r")).requests
    return available(
        slice_of("w1", *devices("gpu-0", "gpu-1")),
        (
            "team-a/train",
            ClaimAllocated(
                uid="u-train", requests=asked, results=(Result(request="r", driver=DRIVER, pool="w1", device="gpu-0"),)
            ),
        ),
        ("team-a/wants", requesting_claim(wish())),
        (
            "rule",
            TaintRuleSet.model_validate(
                {"uid": "u", "device": "gpu-1", "taint": {"key": "xid", "effect": "NoSchedule"}}
            ),
        ),
        node("w1"),
        classes=[CLASS],
    )


def without_times(found: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in found]


@pytest.mark.parametrize("rows_of", [slice_rows, pool_rows, claim_rows])
def test_kubernetes_alone_gives_the_rows_of_a_ledger(rows_of: Any) -> None:
    assert without_times(rows_of(state_of(OBJECTS))) == without_times(rows_of(recorded()))
    assert list(rows_of(state_of(OBJECTS)))


def test_the_order_of_objects_does_not_matter() -> None:
    reverse = {kind: objects[::-1] for kind, objects in reversed(OBJECTS.items())}
    assert list(slice_rows(state_of(reverse))) == list(slice_rows(state_of(OBJECTS)))
    assert state_of(reverse).status("w1-slice") == state_of(OBJECTS).status("w1-slice")


def test_times_are_those_of_the_objects() -> None:
    claims = OBJECTS["claims"]
    allocation = {**claims[0]["status"]["allocation"], "allocationTimestamp": ALLOCATED}
    stamped = {**claims[0], "status": {"allocation": allocation}}
    written = [{"time": ALLOCATED, "fieldsV1": {"f:status": {"f:allocation": {"f:devices": {}}}}}]
    managed = {**claims[0], "metadata": claims[0]["metadata"] | {"managedFields": written}}
    for train in (stamped, managed):
        found = {row["name"]: row["since"] for row in claim_rows(state_of({**OBJECTS, "claims": [train, claims[1]]}))}
        assert found == {"train": datetime(2026, 1, 1, 2, tzinfo=UTC), "wants": datetime(2026, 1, 1, 1, tzinfo=UTC)}


def test_what_a_caller_does_not_need_is_not_listed() -> None:
    every = {table for one in KINDS for table in one.tables}
    assert every == {
        one.name
        for one in (rows.SLICE, rows.CLAIM, rows.ALLOCATION, rows.DEVICE_CLASS, rows.TAINT_RULE, rows.NODE_LABELS)
    }
    left_out = [one.kind.name for one in KINDS if not one.is_needed((rows.CLAIM.name, rows.DEVICE_CLASS.name))]
    assert left_out == ["deviceclasses"]

"""Status documents, word for word: the seed's five scenarios, and every kind of device."""

from typing import Any

import pytest

from gpuledger.events.claim import ClaimReleased, ClaimRequested
from gpuledger.events.slice import RequestPolicy, TaintRuleLifted, TaintRuleSet
from support.dra import ANYWHERE, RecordedSlices, device, given, published, result, share, shared, taint
from support.dra_documents import BOTH_FREE, FREE, TWO, holds, pool, summary


def test_an_exclusive_device() -> None:
    recorded = RecordedSlices(("s1", published(*TWO, generation=7)), ("ns/c", given(result("gpu-0"))))
    assert recorded.status("s1") == {
        "devices": [{"name": "gpu-0", "state": "Allocated", "allocations": [holds()]}, FREE],
        "summary": summary(2, 1, 1),
        "observedGeneration": 7,
        "poolStatus": pool(),
    }


def test_scenario_1_a_device_is_removed_while_a_claim_holds_it() -> None:
    recorded = RecordedSlices(
        ("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))), ("s1", published(TWO[1], generation=2))
    )
    error = "ResourceClaim ns/c references non-existent device 'gpu-0' in pool 'n1'"
    assert recorded.status("s1") == {
        "devices": [FREE],
        "summary": summary(1, 0, 1),
        "observedGeneration": 2,
        "poolStatus": pool(errors=(error,)),
    }
    recorded.record(("s1", published(*TWO)))
    assert recorded.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert recorded.status("s1")["poolStatus"] == pool()


@pytest.mark.parametrize("gone", [ClaimReleased(uid="uid-1"), ClaimRequested(uid="uid-1"), given()])
def test_scenario_2_a_claim_is_gone(gone: Any) -> None:
    recorded = RecordedSlices(("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))), ("ns/c", gone))
    assert recorded.status("s1") == BOTH_FREE


def test_scenario_3_a_device_is_new() -> None:
    recorded = RecordedSlices(
        ("s1", published(TWO[0])), ("ns/c", given(result("gpu-0"))), ("s1", published(*TWO, generation=2))
    )
    assert recorded.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert recorded.status("s1")["observedGeneration"] == 2


def test_scenario_4_the_status_is_of_the_slice_that_it_names() -> None:
    """A conflict of writes is the writer's business; what it writes anew is of the newest generation."""
    recorded = RecordedSlices(("s1", published(*TWO, generation=1)))
    assert [
        recorded.record(("s1", published(*TWO, generation=n))).status("s1")["observedGeneration"] for n in (2, 3)
    ] == [
        2,
        3,
    ]


def test_scenario_5_old_generations_are_ignored_until_their_slices_follow() -> None:
    recorded = RecordedSlices(("a", published(TWO[0], count=2)), ("b", published(TWO[1], count=2)))
    recorded.record(("b", published(TWO[0], pool_generation=2, count=2)))
    assert recorded.states("a") == {"gpu-0": "Unavailable/OutdatedGeneration"}
    assert recorded.states("b") == {"gpu-0": "Unavailable/PoolIncomplete"}
    assert "poolStatus" not in recorded.status("a")
    older = "slice a is of generation 1, the pool is of generation 2"
    assert recorded.status("b")["poolStatus"] == pool(1, 2, generation=2, undecided=older, errors=(older,))
    recorded.record(("a", published(TWO[1], pool_generation=2, count=2)))
    assert (recorded.states("a"), recorded.states("b")) == ({"gpu-1": "Available"}, {"gpu-0": "Available"})
    assert recorded.status("a")["poolStatus"] == pool(2, 2, generation=2)
    assert "poolStatus" not in recorded.status("b")


def test_a_shared_device() -> None:
    recorded = RecordedSlices(
        ("s1", published(shared("gpu-0", memory="80Gi", slots="7"), shared("gpu-1", memory="40Gi"))),
        ("ns/c", given(share("gpu-0", "s1", memory="20Gi", slots="1"), share("gpu-0", "s2", memory="512Mi"))),
        ("ns/b", given(result("gpu-1", request="r"), uid="uid-2")),
    )
    assert recorded.status("s1") == {
        "devices": [
            {
                "name": "gpu-0",
                "state": "PartiallyAllocated",
                "allocations": [holds(capacity={"memory": "20Gi", "slots": "1"}), holds(capacity={"memory": "512Mi"})],
                "capacity": {"memory": "80Gi", "slots": "7"},
                "availableCapacity": {"memory": "60928Mi", "slots": "6"},
            },
            {
                "name": "gpu-1",
                "state": "Allocated",
                "allocations": [holds("b", "uid-2")],
                "capacity": {"memory": "40Gi"},
                "availableCapacity": {"memory": "0"},
            },
        ],
        "summary": summary(
            2,
            2,
            0,
            1,
            totalCapacity={"memory": "120Gi", "slots": "7"},
            allocatedCapacity={"memory": "61952Mi", "slots": "1"},
            availableCapacity={"memory": "60928Mi", "slots": "6"},
        ),
        "observedGeneration": 1,
        "poolStatus": pool(),
    }


@pytest.mark.parametrize(
    ("value", "consumed", "left", "total"),
    [
        ("4", "5", "0", "4"),
        ("4", "-1", "4", "4"),
        ("-4", "1", "0", "0"),
        ("1Ki", "24", "1k", "1Ki"),
        ("4", "4", "0", "4"),
    ],
)
def test_amounts_are_neither_less_than_nothing_nor_more_than_all(
    value: str, consumed: str, left: str, total: str
) -> None:
    recorded = RecordedSlices(("s1", published(shared("gpu-0", m=value))), ("ns/c", given(share("gpu-0", m=consumed))))
    status = recorded.status("s1")
    assert status["devices"][0]["availableCapacity"] == {"m": left}
    assert status["summary"]["totalCapacity"] == {"m": total}
    assert status["summary"]["availableCapacity"] == {"m": left}


def test_what_a_policy_leaves_is_nothing_when_it_allows_no_less() -> None:
    halves = shared("gpu-0", RequestPolicy(values=("4", "8")), m="10")
    recorded = RecordedSlices(("s1", published(halves)), ("ns/c", given(share("gpu-0", m="8"))))
    assert recorded.states() == {"gpu-0": "Allocated"}
    assert recorded.status("s1")["devices"][0]["availableCapacity"] == {"m": "2"}


def test_administrators_access_is_no_allocation() -> None:
    recorded = RecordedSlices(("s1", published(*TWO)), ("ns/c", given(result("gpu-0", admin_access=True))))
    assert recorded.status("s1") == BOTH_FREE
    both = given(result("gpu-0", admin_access=True), result("gpu-0"))
    assert recorded.record(("ns/c", both)).status("s1")["devices"][0]["allocations"] == [holds()]


def test_tainted_devices() -> None:
    broken = [device("own", taints=(taint(),)), device("noted", taints=(taint("None"),)), device("gpu-0")]
    recorded = RecordedSlices(("s1", published(*broken)), ("ns/c", given(result("gpu-0"))))
    assert recorded.states() == {"own": "Unavailable/Tainted", "noted": "Available", "gpu-0": "Allocated"}
    recorded.record(("r", TaintRuleSet(uid="u", taint=taint("NoExecute"), device="noted")))
    assert recorded.states()["noted"] == "Unavailable/Tainted"
    recorded.record(("r", TaintRuleSet(uid="u", taint=taint(), pool="other")))
    assert recorded.states()["noted"] == "Available"
    recorded.record(("r", TaintRuleSet(uid="u", taint=taint())), ("ns/c", ClaimReleased()))
    assert set(recorded.states().values()) == {"Unavailable/Tainted"}
    assert recorded.record(("r", TaintRuleLifted())).states()["gpu-0"] == "Available"


def test_redacted_statuses_name_no_claim() -> None:
    recorded = RecordedSlices(
        ("s1", published(shared("gpu-0", memory="4"))),
        ("secret-ns/secret-claim", given(share("gpu-0", memory="1"), result("gone"), uid="secret-uid")),
    )
    status = recorded.status("s1", redacted=True)
    nobody = {"claimNamespace": "", "claimName": "", "claimUID": ""}
    assert status["devices"][0]["allocations"] == [{**nobody, "capacity": {"memory": "1"}}]
    assert status["poolStatus"]["validationErrors"] == [
        "A ResourceClaim references non-existent device 'gone' in pool 'n1'"
    ]
    assert "secret" not in str(status)
    assert "secret" in str(recorded.status("s1"))


def test_a_claim_that_is_made_anew_under_its_name_is_another() -> None:
    recorded = RecordedSlices(
        ("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))), ("ns/c", given(result("gpu-0"), uid="uid-2"))
    )
    assert recorded.status("s1")["devices"][0]["allocations"] == [holds(uid="uid-2")]


def test_two_claims_on_one_device_are_both_shown() -> None:
    recorded = RecordedSlices(
        ("s1", published(*TWO)), ("ns/d", given(result("gpu-0"), uid="2")), ("ns/c", given(result("gpu-0")))
    )
    assert recorded.status("s1")["devices"][0]["allocations"] == [holds(), holds("d", "2")]
    assert recorded.status("s1")["summary"] == summary(2, 1, 1)
    assert recorded.record(("ns/c", ClaimReleased())).states()["gpu-0"] == "Allocated"


def test_a_claim_may_consume_otherwise_of_what_it_has() -> None:
    recorded = RecordedSlices(("s1", published(shared("gpu-0", m="4"))), ("ns/c", given(share("gpu-0", m="1"))))
    recorded.record(("ns/c", given(share("gpu-0", m="3"))))
    assert recorded.status("s1")["devices"][0]["availableCapacity"] == {"m": "1"}


def test_an_empty_slice() -> None:
    recorded = RecordedSlices(("s1", published(reach=ANYWHERE)))
    assert recorded.status("s1") == {
        "devices": [], "summary": summary(0, 0, 0), "observedGeneration": 1, "poolStatus": pool()
    }  # fmt: skip
    assert recorded.state.status("s2") is None


def test_devices_are_shown_in_the_order_of_their_slice() -> None:
    recorded = RecordedSlices(("a", published(*TWO, count=2)), ("b", published(*TWO[::-1], count=2)))
    assert list(recorded.states("b")) == ["gpu-1", "gpu-0"]

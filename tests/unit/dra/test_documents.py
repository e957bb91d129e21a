"""Status documents, word for word: the seed's five scenarios, and every kind of device and pool."""

from typing import Any

import pytest

from gpuledger.domain.dra.documents import ERRORS_TOLD_MAX
from gpuledger.events.claim import ClaimReleased, ClaimRequested
from gpuledger.events.node import NodeLabelled
from gpuledger.events.slice import RequestPolicy, SliceWithdrawn, TaintRuleLifted, TaintRuleSet
from support.dra import (
    ANYWHERE,
    Document,
    Told,
    counters,
    device,
    given,
    labelled,
    on,
    partition,
    published,
    result,
    share,
    shared,
    taint,
)

TWO = (device("gpu-0"), device("gpu-1"))


def holds(name: str = "c", uid: str = "uid-1", **more: Any) -> Document:
    """How an allocation of a claim of the namespace `ns` is told."""
    return {"claimNamespace": "ns", "claimName": name, "claimUID": uid, "request": "r", **more}


def summary(total: int, allocated: int, available: int, partial: int = 0, **capacity: dict[str, str]) -> Document:
    return {
        "totalDevices": total,
        "allocatedDevices": allocated,
        "availableDevices": available,
        "partiallyAllocatedDevices": partial,
        **capacity,
    }


def pool(seen: int = 1, of: int = 1, generation: int = 1, invalid: str = "", errors: tuple[str, ...] = ()) -> Document:
    """What is told of a pool: how many slices of how many, why it is invalid, and its errors."""
    is_complete = seen == of
    message = f"{seen} of {of} slices of generation {generation} are there."
    valid = ("False", "ValidationFailed", invalid) if invalid else ("True", "ValidationPassed", "")
    if not is_complete:
        valid = ("True", "NotChecked", "An incomplete pool is not checked.")
    told = (("Complete", *_complete(is_complete), message), ("Valid", *valid))
    found: Document = {
        "conditions": [dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in told],
        "observedSliceCount": seen,
        "expectedSliceCount": of,
    }
    return found | ({"validationErrors": list(errors)} if errors else {})


def _complete(is_complete: bool) -> tuple[str, str]:
    return ("True", "SliceCountMatch") if is_complete else ("False", "SliceCountMismatch")


FREE = {"name": "gpu-1", "state": "Available"}
BOTH_FREE = {
    "devices": [{"name": "gpu-0", "state": "Available"}, FREE],
    "summary": summary(2, 0, 2),
    "observedGeneration": 1,
    "poolStatus": pool(),
}


def test_an_exclusive_device() -> None:
    told = Told(("s1", published(*TWO, generation=7)), ("ns/c", given(result("gpu-0"))))
    assert told.status("s1") == {
        "devices": [{"name": "gpu-0", "state": "Allocated", "allocations": [holds()]}, FREE],
        "summary": summary(2, 1, 1),
        "observedGeneration": 7,
        "poolStatus": pool(),
    }


def test_scenario_1_a_device_is_removed_while_a_claim_holds_it() -> None:
    told = Told(("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))), ("s1", published(TWO[1], generation=2)))
    error = "ResourceClaim ns/c references non-existent device 'gpu-0' in pool 'n1'"
    assert told.status("s1") == {
        "devices": [FREE],
        "summary": summary(1, 0, 1),
        "observedGeneration": 2,
        "poolStatus": pool(errors=(error,)),
    }
    told.say(("s1", published(*TWO)))
    assert told.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert told.status("s1")["poolStatus"] == pool()


@pytest.mark.parametrize("gone", [ClaimReleased(uid="uid-1"), ClaimRequested(uid="uid-1"), given()])
def test_scenario_2_a_claim_is_gone(gone: Any) -> None:
    told = Told(("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))), ("ns/c", gone))
    assert told.status("s1") == BOTH_FREE


def test_scenario_3_a_device_is_new() -> None:
    told = Told(("s1", published(TWO[0])), ("ns/c", given(result("gpu-0"))), ("s1", published(*TWO, generation=2)))
    assert told.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert told.status("s1")["observedGeneration"] == 2


def test_scenario_4_the_status_is_of_the_slice_that_it_names() -> None:
    """A conflict of writes is the writer's business; what it writes anew is of the newest generation."""
    told = Told(("s1", published(*TWO, generation=1)))
    assert [told.say(("s1", published(*TWO, generation=n))).status("s1")["observedGeneration"] for n in (2, 3)] == [
        2,
        3,
    ]


def test_scenario_5_old_generations_are_ignored_until_their_slices_follow() -> None:
    told = Told(("a", published(TWO[0], count=2)), ("b", published(TWO[1], count=2)))
    told.say(("b", published(TWO[0], pool_generation=2, count=2)))
    assert told.states("a") == {"gpu-0": "Unavailable/OutdatedGeneration"}
    assert told.states("b") == {"gpu-0": "Unavailable/PoolIncomplete"}
    assert "poolStatus" not in told.status("a")
    assert told.status("b")["poolStatus"] == pool(1, 2, generation=2)
    told.say(("a", published(TWO[1], pool_generation=2, count=2)))
    assert (told.states("a"), told.states("b")) == ({"gpu-1": "Available"}, {"gpu-0": "Available"})
    assert told.status("a")["poolStatus"] == pool(2, 2, generation=2)
    assert "poolStatus" not in told.status("b")


def test_generations_may_be_set_back() -> None:
    told = Told(("a", published(TWO[0], pool_generation=9)), ("ns/c", given(result("gpu-0"))))
    told.say(("a", SliceWithdrawn()), ("b", published(TWO[0], pool_generation=1)))
    assert told.states("b") == {"gpu-0": "Allocated"}
    assert told.status("b")["poolStatus"] == pool()
    assert told.say(("b", published(TWO[0], pool_generation=0))).status("b")["poolStatus"] == pool(generation=0)


def test_a_shared_device() -> None:
    told = Told(
        ("s1", published(shared("gpu-0", memory="80Gi", slots="7"), shared("gpu-1", memory="40Gi"))),
        ("ns/c", given(share("gpu-0", "s1", memory="20Gi", slots="1"), share("gpu-0", "s2", memory="512Mi"))),
        ("ns/b", given(result("gpu-1", request="r"), uid="uid-2")),
    )
    assert told.status("s1") == {
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
    told = Told(("s1", published(shared("gpu-0", m=value))), ("ns/c", given(share("gpu-0", m=consumed))))
    status = told.status("s1")
    assert status["devices"][0]["availableCapacity"] == {"m": left}
    assert status["summary"]["totalCapacity"] == {"m": total}
    assert status["summary"]["availableCapacity"] == {"m": left}


def test_what_a_policy_leaves_is_nothing_when_it_allows_no_less() -> None:
    halves = shared("gpu-0", RequestPolicy(values=("4", "8")), m="10")
    told = Told(("s1", published(halves)), ("ns/c", given(share("gpu-0", m="8"))))
    assert told.states() == {"gpu-0": "Allocated"}
    assert told.status("s1")["devices"][0]["availableCapacity"] == {"m": "2"}


def partitioned(**more: Any) -> Told:
    parts = (partition("whole", memory="4"), partition("half-0", memory="2"), partition("half-1", memory="2"))
    said = {"count": 2, **more}
    return Told(
        ("devices", published(*parts, **said)), ("counters", published(counter_sets=(counters(memory="4"),), **said))
    )


def test_a_device_in_partitions() -> None:
    told = partitioned()
    assert told.status("counters") == {
        "devices": [],
        "summary": summary(0, 0, 0),
        "observedGeneration": 1,
        "poolStatus": pool(2, 2),
    }
    told.say(("ns/c", given(result("half-0"))))
    short = "Unavailable/InsufficientSharedCapacity"
    assert told.states("devices") == {"whole": short, "half-0": "Allocated", "half-1": "Available"}
    assert told.status("devices")["summary"] == summary(3, 1, 1)
    assert told.status("counters")["poolStatus"] == pool(2, 2)


def test_an_overdrawn_counter_is_told_and_blocks_all() -> None:
    told = partitioned().say(("ns/c", given(result("half-0"), result("whole"))))
    error = "counter gpu-0/memory is overcommitted by 2"
    assert told.states("devices")["half-1"] == "Unavailable/InsufficientSharedCapacity"
    assert told.status("counters")["poolStatus"] == pool(2, 2, errors=(error,))
    assert {"counters", "devices"} <= set(told.state.take_touched())
    told.say(("ns/c", given(result("whole"))))
    assert told.status("counters")["poolStatus"] == pool(2, 2)
    assert "counters" in told.state.take_touched()


def test_counters_that_are_published_anew_count_for_devices_that_are_not() -> None:
    told = partitioned()
    told.say(("counters", published(counter_sets=(counters(memory="3"),), count=2)))
    short = "Unavailable/InsufficientSharedCapacity"
    assert told.states("devices") == {"whole": short, "half-0": "Available", "half-1": "Available"}


def test_counters_of_another_node_are_in_reach() -> None:
    told = Told(("s1", published(*TWO, pool="p", reach=on("n1"))))
    assert told.status("s1")["poolStatus"] == pool()
    told.say(("s2", published(pool="p", reach=on("n2"), counter_sets=(counters(memory="3"),))))
    assert told.status("s1")["poolStatus"] == pool(2, 1)


def test_what_vanishes_is_told_by_every_view_of_its_pool() -> None:
    told = Told(("a", published(*TWO, pool="p", reach=on("n1"))), ("b", published(pool="p", reach=on("n2"))))
    for said in (
        ("ns/c", given(result("gpu-0", "p"), result("gone", "p"))),
        ("a", published(TWO[1], pool="p", reach=on("n1"))),
        ("a", published(*TWO, pool="p", reach=on("n1"))),
        ("ns/c", ClaimReleased()),
    ):
        before = told.status("b")
        told.state.take_touched()
        assert told.say(said).status("b") != before
        assert "b" in told.state.take_touched()


def test_administrators_access_is_no_allocation() -> None:
    told = Told(("s1", published(*TWO)), ("ns/c", given(result("gpu-0", admin_access=True))))
    assert told.status("s1") == BOTH_FREE
    both = given(result("gpu-0", admin_access=True), result("gpu-0"))
    assert told.say(("ns/c", both)).status("s1")["devices"][0]["allocations"] == [holds()]


def test_tainted_devices() -> None:
    broken = [device("own", taints=(taint(),)), device("noted", taints=(taint("None"),)), device("gpu-0")]
    told = Told(("s1", published(*broken)), ("ns/c", given(result("gpu-0"))))
    assert told.states() == {"own": "Unavailable/Tainted", "noted": "Available", "gpu-0": "Allocated"}
    told.say(("r", TaintRuleSet(uid="u", taint=taint("NoExecute"), device="noted")))
    assert told.states()["noted"] == "Unavailable/Tainted"
    told.say(("r", TaintRuleSet(uid="u", taint=taint(), pool="other")))
    assert told.states()["noted"] == "Available"
    told.say(("r", TaintRuleSet(uid="u", taint=taint())), ("ns/c", ClaimReleased()))
    assert set(told.states().values()) == {"Unavailable/Tainted"}
    assert told.say(("r", TaintRuleLifted())).states()["gpu-0"] == "Available"


def test_an_incomplete_pool() -> None:
    told = Told(("s1", published(*TWO, count=2)), ("ns/c", given(result("gpu-0"))))
    assert told.states() == {"gpu-0": "Allocated", "gpu-1": "Unavailable/PoolIncomplete"}
    assert told.status("s1")["poolStatus"] == pool(1, 2)
    assert told.say(("s2", published(count=2))).status("s1")["poolStatus"] == pool(2, 2)
    assert told.say(("s3", published(count=2))).status("s1")["poolStatus"] == pool(3, 2)
    assert told.states()["gpu-1"] == "Unavailable/PoolIncomplete"


def test_an_invalid_pool_harms_no_other() -> None:
    twice = "device gpu-0 appears in both s1 and s2"
    told = Told(("s1", published(*TWO, count=2)), ("s2", published(device("gpu-0"), count=2)))
    told.say(("s3", published(*TWO, pool="n2")))
    assert told.states() == {"gpu-0": "Unavailable/PoolInvalid", "gpu-1": "Unavailable/PoolInvalid"}
    assert told.status("s1")["poolStatus"] == pool(2, 2, invalid=twice, errors=(twice,))
    assert told.states("s3") == {"gpu-0": "Available", "gpu-1": "Available"}


def test_one_pool_name_under_two_drivers() -> None:
    other = "nic.example.com"
    told = Told(("s1", published(*TWO)), ("s2", published(*TWO, driver=other, pool="n1")))
    told.say(("ns/c", given(result("gpu-0", driver=other))))
    assert told.status("s1") == BOTH_FREE
    assert told.states("s2") == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert told.status("s2")["poolStatus"] == pool()


def test_each_view_of_a_pool_is_told_by_its_own_first_slice() -> None:
    """One pool on two nodes and for the whole cluster; each node sees what is in its reach."""
    told = Told(
        ("d", published(device("near"), pool="p", reach=on("n1"))),
        ("c", published(device("near"), pool="p", reach=on("n1"), count=2)),
        ("b", published(device("far"), pool="p", reach=on("n2"))),
        ("a", published(device("net"), pool="p", reach=labelled("zone", "a"))),
    )
    owners = {name: status.get("poolStatus", {}).get("observedSliceCount") for name, status in told.statuses().items()}
    assert owners == {"a": 4, "b": 1, "c": 2, "d": None}
    told.say(("n2", NodeLabelled(uid="u", labels={"zone": "a"})))
    assert told.status("b")["poolStatus"]["observedSliceCount"] == 4


def test_redacted_statuses_name_no_claim() -> None:
    told = Told(
        ("s1", published(shared("gpu-0", memory="4"))),
        ("secret-ns/secret-claim", given(share("gpu-0", memory="1"), result("gone"), uid="secret-uid")),
    )
    status = told.status("s1", redacted=True)
    nobody = {"claimNamespace": "", "claimName": "", "claimUID": ""}
    assert status["devices"][0]["allocations"] == [{**nobody, "capacity": {"memory": "1"}}]
    assert status["poolStatus"]["validationErrors"] == [
        "A ResourceClaim references non-existent device 'gone' in pool 'n1'"
    ]
    assert "secret" not in str(status)
    assert "secret" in str(told.status("s1"))


def test_a_claim_that_is_made_anew_under_its_name_is_another() -> None:
    told = Told(
        ("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))), ("ns/c", given(result("gpu-0"), uid="uid-2"))
    )
    assert told.status("s1")["devices"][0]["allocations"] == [holds(uid="uid-2")]


def test_two_claims_on_one_device_are_both_told() -> None:
    told = Told(("s1", published(*TWO)), ("ns/d", given(result("gpu-0"), uid="2")), ("ns/c", given(result("gpu-0"))))
    assert told.status("s1")["devices"][0]["allocations"] == [holds(), holds("d", "2")]
    assert told.status("s1")["summary"] == summary(2, 1, 1)
    assert told.say(("ns/c", ClaimReleased())).states()["gpu-0"] == "Allocated"


def test_a_claim_may_consume_otherwise_of_what_it_has() -> None:
    told = Told(("s1", published(shared("gpu-0", m="4"))), ("ns/c", given(share("gpu-0", m="1"))))
    told.say(("ns/c", given(share("gpu-0", m="3"))))
    assert told.status("s1")["devices"][0]["availableCapacity"] == {"m": "1"}


def test_slices_move_between_pools_and_nodes() -> None:
    told = Told(("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))))
    told.say(("s1", published(*TWO, pool="n2")))
    assert told.states() == {"gpu-0": "Available", "gpu-1": "Available"}
    told.say(("s1", published(*TWO, pool="n1", reach=on("n9"))))
    assert told.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert [str(one) for one in told.state.pools()] == ["gpu.example.com/n1"]


def test_an_empty_slice() -> None:
    told = Told(("s1", published(reach=ANYWHERE)))
    assert told.status("s1") == {
        "devices": [], "summary": summary(0, 0, 0), "observedGeneration": 1, "poolStatus": pool()
    }  # fmt: skip
    assert told.state.status("s2") is None


def test_devices_are_told_in_the_order_of_their_slice() -> None:
    told = Told(("a", published(*TWO, count=2)), ("b", published(*TWO[::-1], count=2)))
    assert list(told.states("b")) == ["gpu-1", "gpu-0"]


def test_very_many_errors_are_counted() -> None:
    told = Told(("s1", published()), *((f"ns/c{n}", given(result(f"gone-{n}"))) for n in range(ERRORS_TOLD_MAX + 5)))
    errors = told.status("s1")["poolStatus"]["validationErrors"]
    assert (len(errors), errors[-1]) == (ERRORS_TOLD_MAX + 1, "5 more")


def test_a_condition_keeps_its_time_while_its_status_does() -> None:
    def times() -> list[str]:
        status = told.state.status("s1")
        assert status is not None
        return [one["lastTransitionTime"] for one in status["poolStatus"]["conditions"]]

    told, found = Told(), []
    for at, said in ((1, published(count=2)), (2, published(count=3)), (3, published()), (2.5, published(count=2))):
        told.say(("s1", said), at=at)
        found.append(times())
    first, third = "2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z"
    assert found == [[first, first], [first, first], [third, first], [third, first]]

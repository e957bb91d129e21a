"""Pools in status documents, word for word: whole or not, valid or not, and from where they are seen."""

from typing import Any

import pytest

from gpuledger.domain.dra.status import ERRORS_MAX
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.node import NodeLabelled
from gpuledger.events.slice import SlicePublished, SliceWithdrawn
from support.dra import RecordedSlices, counters, device, given, labelled, on, partition, published, result
from support.dra_documents import BOTH_FREE, TWO, pool, summary
from support.events import hour

TOO_MANY = "2 slices of generation 1 are there, and no more than 1 announced"


def test_generations_may_be_set_back() -> None:
    recorded = RecordedSlices(("a", published(TWO[0], pool_generation=9)), ("ns/c", given(result("gpu-0"))))
    recorded.record(("a", SliceWithdrawn()), ("b", published(TWO[0], pool_generation=1)))
    assert recorded.states("b") == {"gpu-0": "Allocated"}
    assert recorded.status("b")["poolStatus"] == pool()
    assert recorded.record(("b", published(TWO[0], pool_generation=0))).status("b")["poolStatus"] == pool(generation=0)


def partitioned(**more: Any) -> RecordedSlices:
    parts = (partition("whole", memory="4"), partition("half-0", memory="2"), partition("half-1", memory="2"))
    facts = {"count": 2, **more}
    return RecordedSlices(
        ("devices", published(*parts, **facts)), ("counters", published(counter_sets=(counters(memory="4"),), **facts))
    )


def test_a_device_in_partitions() -> None:
    recorded = partitioned()
    assert recorded.status("counters") == {
        "devices": [],
        "summary": summary(0, 0, 0),
        "observedGeneration": 1,
        "poolStatus": pool(2, 2),
    }
    recorded.record(("ns/c", given(result("half-0"))))
    short = "Unavailable/InsufficientSharedCapacity"
    assert recorded.states("devices") == {"whole": short, "half-0": "Allocated", "half-1": "Available"}
    assert recorded.status("devices")["summary"] == summary(3, 1, 1)
    assert recorded.status("counters")["poolStatus"] == pool(2, 2)


def test_an_overdrawn_counter_is_an_error_and_blocks_all() -> None:
    recorded = partitioned().record(("ns/c", given(result("half-0"), result("whole"))))
    error = "counter gpu-0/memory is overcommitted by 2"
    assert recorded.states("devices")["half-1"] == "Unavailable/InsufficientSharedCapacity"
    assert recorded.status("counters")["poolStatus"] == pool(2, 2, errors=(error,))
    assert {"counters", "devices"} <= set(recorded.state.take_touched())
    recorded.record(("ns/c", given(result("whole"))))
    assert recorded.status("counters")["poolStatus"] == pool(2, 2)
    assert "counters" in recorded.state.take_touched()


def test_counters_that_are_published_anew_count_for_devices_that_are_not() -> None:
    recorded = partitioned()
    recorded.record(("counters", published(counter_sets=(counters(memory="3"),), count=2)))
    short = "Unavailable/InsufficientSharedCapacity"
    assert recorded.states("devices") == {"whole": short, "half-0": "Available", "half-1": "Available"}


def test_counters_of_another_node_are_in_reach() -> None:
    recorded = RecordedSlices(("s1", published(*TWO, pool="p", reach=on("n1"))))
    assert recorded.status("s1")["poolStatus"] == pool()
    recorded.record(("s2", published(pool="p", reach=on("n2"), counter_sets=(counters(memory="3"),))))
    assert recorded.status("s1")["poolStatus"] == pool(2, 1, invalid=TOO_MANY, errors=(TOO_MANY,))


def test_every_view_of_a_pool_shows_what_vanishes() -> None:
    recorded = RecordedSlices(
        ("a", published(*TWO, pool="p", reach=on("n1"))), ("b", published(pool="p", reach=on("n2")))
    )
    for facts in (
        ("ns/c", given(result("gpu-0", "p"), result("gone", "p"))),
        ("a", published(TWO[1], pool="p", reach=on("n1"))),
        ("a", published(*TWO, pool="p", reach=on("n1"))),
        ("ns/c", ClaimReleased()),
    ):
        before = recorded.status("b")
        recorded.state.take_touched()
        assert recorded.record(facts).status("b") != before
        assert "b" in recorded.state.take_touched()


def test_an_incomplete_pool() -> None:
    recorded = RecordedSlices(("s1", published(*TWO, count=2)), ("ns/c", given(result("gpu-0"))))
    assert recorded.states() == {"gpu-0": "Allocated", "gpu-1": "Unavailable/PoolIncomplete"}
    assert recorded.status("s1")["poolStatus"] == pool(1, 2)
    assert recorded.record(("s2", published(count=2))).status("s1")["poolStatus"] == pool(2, 2)
    more = "3 slices of generation 1 are there, and no more than 2 announced"
    recorded.record(("s3", published(count=2)))
    assert recorded.status("s1")["poolStatus"] == pool(3, 2, invalid=more, errors=(more,))
    assert recorded.states()["gpu-1"] == "Unavailable/PoolIncomplete"


TWICE = "device gpu-0 appears in both s1 and s2"


def test_an_incomplete_pool_is_checked_as_far_as_its_slices_go() -> None:
    recorded = RecordedSlices(("s1", published(*TWO, count=3)), ("s2", published(device("gpu-0"), count=3)))
    assert recorded.states() == {"gpu-0": "Unavailable/PoolIncomplete", "gpu-1": "Unavailable/PoolIncomplete"}
    assert recorded.status("s1")["poolStatus"] == pool(2, 3, invalid=TWICE, errors=(TWICE,))
    assert recorded.record(("s2", published(count=3))).status("s1")["poolStatus"] == pool(2, 3)


def test_slices_of_several_generations_are_an_error_and_the_newest_can_be_had() -> None:
    recorded = RecordedSlices(("s1", published(TWO[0], pool_generation=2)), ("s2", published(TWO[1])))
    older = "slice s2 is of generation 1, the pool is of generation 2"
    assert recorded.states("s1") == {"gpu-0": "Available"}
    assert recorded.states("s2") == {"gpu-1": "Unavailable/OutdatedGeneration"}
    assert recorded.status("s1")["poolStatus"] == pool(generation=2, invalid=older, errors=(older,))
    assert recorded.record(("s2", SliceWithdrawn())).status("s1")["poolStatus"] == pool(generation=2)


def test_slices_that_announce_different_numbers_are_an_error() -> None:
    recorded = RecordedSlices(("s1", published(TWO[0], count=2)), ("s2", published(TWO[1], count=3)))
    differ = "the slices announce different numbers of slices: 2 by slice s1; 3 by slice s2"
    assert recorded.status("s1")["poolStatus"] == pool(2, 2, invalid=differ, errors=(differ,))
    assert recorded.record(("s2", published(TWO[1], count=2))).status("s1")["poolStatus"] == pool(2, 2)


def test_errors_of_the_slices_come_before_those_of_claims() -> None:
    recorded = RecordedSlices(("s1", published(*TWO, count=3)), ("s2", published(device("gpu-0"), count=3)))
    recorded.record(("ns/c", given(result("gone"))))
    gone = "ResourceClaim ns/c references non-existent device 'gone' in pool 'n1'"
    assert recorded.status("s1")["poolStatus"] == pool(2, 3, invalid=TWICE, errors=(TWICE, gone))


@pytest.mark.parametrize(
    "fault",
    [
        ("s2", published(device("gpu-0"), count=1)),
        ("s2", published(device("gpu-0"), count=4)),
        ("s2", published(device("gpu-0"), pool_generation=9, count=4)),
        ("s1", published(*TWO, *TWO, count=3)),
        ("s2", published(partition("half", memory="2"))),
    ],
)
def test_a_fault_in_a_pool_changes_no_other(fault: tuple[str, SlicePublished]) -> None:
    """Neither a pool of the same driver, nor one of the same name of another driver."""
    recorded = RecordedSlices(
        ("s1", published(*TWO)),
        ("t1", published(*TWO, pool="n2")),
        ("u1", published(*TWO, pool="n1", driver="nic.example.com")),
    )
    before = recorded.statuses()
    recorded.state.take_touched()
    after = recorded.record(fault).statuses()
    assert after["s1"] != before["s1"]
    assert [after["t1"], after["u1"]] == [before["t1"], before["u1"]]
    assert set(recorded.state.take_touched()) == {"s1", fault[0]}


def test_an_invalid_pool_harms_no_other() -> None:
    recorded = RecordedSlices(("s1", published(*TWO, count=2)), ("s2", published(device("gpu-0"), count=2)))
    recorded.record(("s3", published(*TWO, pool="n2")))
    assert recorded.states() == {"gpu-0": "Unavailable/PoolInvalid", "gpu-1": "Unavailable/PoolInvalid"}
    assert recorded.status("s1")["poolStatus"] == pool(2, 2, invalid=TWICE, errors=(TWICE,))
    assert recorded.states("s3") == {"gpu-0": "Available", "gpu-1": "Available"}


def test_one_pool_name_under_two_drivers() -> None:
    other = "nic.example.com"
    recorded = RecordedSlices(("s1", published(*TWO)), ("s2", published(*TWO, driver=other, pool="n1")))
    recorded.record(("ns/c", given(result("gpu-0", driver=other))))
    assert recorded.status("s1") == BOTH_FREE
    assert recorded.states("s2") == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert recorded.status("s2")["poolStatus"] == pool()


def test_each_view_of_a_pool_is_shown_by_its_own_first_slice() -> None:
    """One pool on two nodes and for the whole cluster; each node sees what is in its reach."""
    recorded = RecordedSlices(
        ("d", published(device("near"), pool="p", reach=on("n1"))),
        ("c", published(device("near"), pool="p", reach=on("n1"), count=2)),
        ("b", published(device("far"), pool="p", reach=on("n2"))),
        ("a", published(device("net"), pool="p", reach=labelled("zone", "a"))),
    )
    owners = {
        name: status.get("poolStatus", {}).get("observedSliceCount") for name, status in recorded.statuses().items()
    }
    assert owners == {"a": 4, "b": 1, "c": 2, "d": None}
    recorded.record(("n2", NodeLabelled(uid="u", labels={"zone": "a"})))
    assert recorded.status("b")["poolStatus"]["observedSliceCount"] == 4


def test_slices_move_between_pools_and_nodes() -> None:
    recorded = RecordedSlices(("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))))
    recorded.record(("s1", published(*TWO, pool="n2")))
    assert recorded.states() == {"gpu-0": "Available", "gpu-1": "Available"}
    recorded.record(("s1", published(*TWO, pool="n1", reach=on("n9"))))
    assert recorded.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert [str(one) for one in recorded.state.pools()] == ["gpu.example.com/n1"]


def test_very_many_errors_are_counted() -> None:
    recorded = RecordedSlices(
        ("s1", published()), *((f"ns/c{n}", given(result(f"gone-{n}"))) for n in range(ERRORS_MAX + 5))
    )
    errors = recorded.status("s1")["poolStatus"]["validationErrors"]
    assert (len(errors), errors[-1]) == (ERRORS_MAX + 1, "5 more")


def test_a_condition_keeps_its_time_while_its_status_does() -> None:
    def times() -> list[str]:
        status = recorded.state.status("s1")
        assert status is not None
        return [one["lastTransitionTime"] for one in status["poolStatus"]["conditions"]]

    recorded, found = RecordedSlices(), []
    for at, facts in ((1, published(count=2)), (2, published(count=3)), (3, published()), (2.5, published(count=2))):
        recorded.record(("s1", facts), at=at)
        found.append(times())
    first, third = "2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z"
    assert found == [[first, first], [first, first], [third, third], [third, third]]


def test_what_is_unknown_and_what_fails_are_statuses_of_their_own() -> None:
    """A condition that goes from True through Unknown to False has changed twice."""
    recorded, found = RecordedSlices(), []
    for at, facts in ((1, published()), (2, published(count=2)), (3, published(*TWO, *TWO, count=2))):
        recorded.record(("s1", facts), at=at)
        (valid,) = [row for row in recorded.state.condition.rows.values() if row.type == "Valid"]
        found.append((valid.shown_status, valid.changed_at))
    assert found == [("True", hour(1)), ("Unknown", hour(2)), ("False", hour(3))]

"""What status documents say of pools, word for word: whole or not, valid or not, and from where they are seen."""

from typing import Any

from gpuledger.domain.dra.status import ERRORS_MAX
from gpuledger.events.claim import ClaimReleased
from gpuledger.events.node import NodeLabelled
from gpuledger.events.slice import SliceWithdrawn
from support.dra import Told, counters, device, given, labelled, on, partition, published, result
from support.dra_documents import BOTH_FREE, TWO, pool, summary


def test_generations_may_be_set_back() -> None:
    told = Told(("a", published(TWO[0], pool_generation=9)), ("ns/c", given(result("gpu-0"))))
    told.say(("a", SliceWithdrawn()), ("b", published(TWO[0], pool_generation=1)))
    assert told.states("b") == {"gpu-0": "Allocated"}
    assert told.status("b")["poolStatus"] == pool()
    assert told.say(("b", published(TWO[0], pool_generation=0))).status("b")["poolStatus"] == pool(generation=0)


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


def test_slices_move_between_pools_and_nodes() -> None:
    told = Told(("s1", published(*TWO)), ("ns/c", given(result("gpu-0"))))
    told.say(("s1", published(*TWO, pool="n2")))
    assert told.states() == {"gpu-0": "Available", "gpu-1": "Available"}
    told.say(("s1", published(*TWO, pool="n1", reach=on("n9"))))
    assert told.states() == {"gpu-0": "Allocated", "gpu-1": "Available"}
    assert [str(one) for one in told.state.pools()] == ["gpu.example.com/n1"]


def test_very_many_errors_are_counted() -> None:
    told = Told(("s1", published()), *((f"ns/c{n}", given(result(f"gone-{n}"))) for n in range(ERRORS_MAX + 5)))
    errors = told.status("s1")["poolStatus"]["validationErrors"]
    assert (len(errors), errors[-1]) == (ERRORS_MAX + 1, "5 more")


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

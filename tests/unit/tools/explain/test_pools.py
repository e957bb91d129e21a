"""Why a pod has no units of a pool: each finding and its sentence."""

import pytest

from gpuledger.tools.explain.pools import (
    Barrier,
    Finding,
    NodeConstraint,
    NodeConstraints,
    NodeUnits,
    PodState,
    PodUse,
    UnitRequest,
    answer,
)
from gpuledger.tools.explain.pools_wording import apart_words, pool_words
from support.events import hour
from support.pool_explanations import POOL, UNITS, cards, explained_pool, pod_on
from support.pools import PoolsLog, marked, pool, refused, released, state

CORDONED = (NodeConstraint(Barrier.CORDONED),)
TAINTED = (
    NodeConstraint(Barrier.TAINTED, "team=b:NoSchedule"),
    NodeConstraint(Barrier.NOT_SELECTED, "nodeSelector zone=1"),
)


def words(pools: PoolsLog, resource: str, pool_id: str) -> tuple[str, str]:
    """Finding and sentence about one unit of any pool."""
    found = answer(pools.state, UnitRequest(resource, pool_id, 1), (), PodState())
    return found.finding, pool_words(found)


def test_a_pool_that_is_not_there() -> None:
    assert words(cards(w1=1), "gpu.deckhouse.io/b", "team-a/b") == (
        Finding.NOT_FOUND, "there is no GPUPool team-a/b, which gpu.deckhouse.io/b stands for",
    )  # fmt: skip
    assert words(cards(w1=1), "cluster.gpu.deckhouse.io/b", "b") == (
        Finding.NOT_FOUND, "there is no ClusterGPUPool b, which cluster.gpu.deckhouse.io/b stands for",
    )  # fmt: skip


def test_a_name_of_the_other_kind_or_of_another_namespace() -> None:
    pools = cards(w1=1)
    pools.record("c", pool())
    finding, text = words(pools, "gpu.deckhouse.io/c", "team-a/c")
    assert (finding, text.partition("; ")[2]) == (
        Finding.OTHER_KIND, "there is a ClusterGPUPool of that name: request cluster.gpu.deckhouse.io/c",
    )  # fmt: skip
    finding, text = words(pools, "cluster.gpu.deckhouse.io/a", "a")
    assert (finding, text.partition("; ")[2]) == (
        Finding.OTHER_KIND, "there is a GPUPool of that name: request gpu.deckhouse.io/a in its namespace",
    )  # fmt: skip
    finding, text = words(pools, UNITS, "team-b/a")
    assert (finding, text.partition("; ")[2]) == (
        Finding.OTHER_NAMESPACE, "a GPUPool of that name is in another namespace, and only pods there can use it",
    )  # fmt: skip
    assert "team-a" not in text


def test_a_pool_that_is_being_deleted() -> None:
    pools = cards(w1=2)
    pools.record(POOL, pool(deleting=True))
    found = explained_pool(pools, 1)
    assert (found.finding, found.deleting) == (Finding.WITHOUT_CAPACITY, True)
    assert pool_words(found) == (
        f"GPUPool {POOL} is being deleted; 1 unit of {UNITS} requested, and GPUPool {POOL} offers none: "
        "2 Unassigning (PoolDeleted)"
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"backend": "DRA"},
            "Supported=False (BackendNotSupported: The backend is DRA; DevicePlugin is supported)",
        ),
        (
            {"unit": "MIG"},
            (
                "Misconfigured=True (MIGProfileMissing: spec.resource.migProfile: "
                "a pool of MIG devices needs one, such as 1g.10gb)"
            ),
        ),
        ({"maintenance": "enabled"}, "Maintenance=True (ByOperator)"),
    ],
)
def test_conditions_against_a_pool_come_first(fields: dict[str, str], expected: str) -> None:
    pools = PoolsLog().begin()
    pools.record(POOL, pool(**fields))
    first, _, rest = pool_words(explained_pool(pools, 1)).partition(f"; 1 unit of {UNITS} requested")
    assert first == f"GPUPool {POOL} is {expected}"
    assert rest in ("", f", and GPUPool {POOL} offers none, because it has no devices")


def test_a_name_that_another_pool_has() -> None:
    pools = cards(w1=1)
    pools.record("team-b/a", pool(uid="later"))
    found = answer(pools.state, UnitRequest(UNITS, "team-b/a", 1), (), PodState())
    assert [(one.type, one.reason) for one in found.against] == [("Configured", "NameCollision")]
    assert pool_words(found).startswith("GPUPool team-b/a is Configured=False (NameCollision: team-a/a had the name a")


def test_maintenance_does_not_take_units_that_are_free() -> None:
    pools = cards(w1=1)
    pools.record(POOL, pool(maintenance="enabled"))
    found = explained_pool(pools, 1)
    assert found.finding is Finding.FITS
    assert pool_words(found) == (
        f"1 unit of {UNITS} requested, and 1 is free on node w1: no unit is missing; "
        f"but GPUPool {POOL} is Maintenance=True (ByOperator)"
    )


def test_a_pool_without_any_decision() -> None:
    pools = PoolsLog()
    pools.record(POOL, pool())
    found = explained_pool(pools, 1)
    assert (found.finding, found.total) == (Finding.UNDECIDED, None)
    assert pool_words(found) == f"it is not decided yet what GPUPool {POOL} offers"


def test_devices_that_offer_nothing_are_grouped_by_what_keeps_them() -> None:
    pools = PoolsLog().begin("w1", devices=4)
    pools.record(POOL, pool())
    for number in range(4):
        pools.record(f"w1-{number}", marked("a"))
    pools.record("w1-0", refused(POOL, "MIGNotEnabled", "Reset the card."))
    pools.record("w1-1", state("Faulted"))
    found = explained_pool(pools, 2)
    assert (found.finding, found.total) == (Finding.WITHOUT_CAPACITY, 0)
    assert {(one.devices, one.state, one.reason) for one in found.idle} == {
        (2, "PendingAssignment", "AskedFor"),
        (1, "PendingAssignment", "MIGNotEnabled"),
        *((one.devices, one.state, one.reason) for one in found.idle if one.state == "Faulted"),
    }
    assert "2 PendingAssignment (AskedFor), " in pool_words(found)
    assert "1 PendingAssignment (MIGNotEnabled: Reset the card)" in pool_words(found)


def test_an_assigned_device_that_its_agent_has_no_more_offers_nothing() -> None:
    pools = cards(w1=2)
    pools.record("w1-0", released(POOL))
    found = explained_pool(pools, 2)
    assert [one.devices for one in found.idle] == [1]
    assert found.rooms == (NodeUnits("w1", 1, 0),)


def test_a_device_without_partitions_offers_nothing() -> None:
    pools = PoolsLog().begin("w1", devices=2)
    pools.record(POOL, pool(unit="MIG", mig_profile="1g.10gb", slices_per_unit=2))
    pools.assign("w1-0", POOL, 3).assign("w1-1", POOL, 0)
    found = explained_pool(pools, 7)
    assert (found.total, found.rooms) == (6, (NodeUnits("w1", 6, 0),))
    assert [(one.devices, one.state) for one in found.idle] == [(1, "Assigned")]


FULL = f"3 units of {UNITS} requested, "
ONE_NODE = "which have to be on one node"
CLOSED = "and free where the pod cannot run"
TWO_REASONS = "has a taint that the pod does not tolerate (team=b:NoSchedule) and is not what the pod selects"


@pytest.mark.parametrize(
    ("by_node", "uses", "constraints", "finding", "text"),
    [
        ({}, [], {}, Finding.WITHOUT_CAPACITY, f"and GPUPool {POOL} offers none, because it has no devices"),
        (
            {"w1": 2}, [], {}, Finding.TOO_MANY,
            f"and all of GPUPool {POOL} has 2, so the request can never be met as it is",
        ),
        ({"w1": 2, "w2": 2}, [], {}, Finding.NODES_TOO_SMALL, f"{ONE_NODE}, and no node offers more than 2 of 4"),
        ({"w1": 3}, [pod_on("w1", 3)], {}, Finding.IN_USE, "and none of 3 is free: 1 pod has them"),
        ({"w1": 3}, [pod_on("w1", 5)], {}, Finding.IN_USE, "and none of 3 is free: 1 pod has them"),
        (
            {"w1": 3, "w2": 1}, [pod_on("w1", 1), pod_on("w1", 1, "b/p")], {}, Finding.IN_USE,
            "and 2 of 4 are free: 2 pods have the others",
        ),
        (
            {"w1": 3, "w2": 1}, [pod_on("w1", 1)], {}, Finding.FRAGMENTED,
            f"{ONE_NODE}; 3 of 4 are free in all, but no node has so many: w1 has most, 2",
        ),
        ({"w1": 3}, [pod_on(None, 3)], {}, Finding.FITS, "and 3 are free on node w1: no unit is missing"),
        (
            {"w1": 3, "w2": 4, "w3": 3}, [], {}, Finding.FITS,
            "and 3 are free on node w1, and 2 more nodes have room: no unit is missing",
        ),
        ({"w1": 3, "w2": 3}, [], {"w1": CORDONED}, Finding.FITS, "and 3 are free on node w2: no unit is missing"),
        (
            {"w1": 3, "w2": 3}, [], {"w1": CORDONED, "w2": TAINTED}, Finding.NODES_CLOSED,
            f"{CLOSED}: w1 is cordoned, w2 {TWO_REASONS} (nodeSelector zone=1)",
        ),
        (
            {"w1": 3, "w2": 3}, [pod_on("w1", 1)], {"w2": CORDONED}, Finding.NODES_CLOSED,
            f"{CLOSED}: w2 is cordoned",
        ),
    ],
)  # fmt: skip
def test_where_units_are(
    by_node: dict[str, int], uses: list[PodUse], constraints: NodeConstraints, finding: Finding, text: str
) -> None:
    found = explained_pool(cards(**by_node), 3, *uses, constraints=constraints)
    assert found.finding is finding
    assert pool_words(found) == FULL + text


NOR = "; the pod cannot run on "
IN_USE, HAS_MOST = "and none of 3 is free: 1 pod has them", "w1 has most, 2"


@pytest.mark.parametrize(
    ("by_node", "uses", "constraints", "text"),
    [
        (
            {"w1": 3}, [pod_on("w1", 3)], {"w1": TAINTED},
            f"{IN_USE}{NOR}node w1 either: w1 {TWO_REASONS} (nodeSelector zone=1)",
        ),
        (
            {"w1": 3, "w2": 3}, [pod_on("w1", 3), pod_on("w2", 3, "b/p")], {"w1": CORDONED, "w2": CORDONED},
            f"2 pods have them{NOR}any of the 2 nodes that offer so many either: w1 is cordoned, w2 is cordoned",
        ),
        (
            {"w1": 3, "w2": 3}, [pod_on("w1", 3), pod_on("w2", 3, "b/p")], {"w2": CORDONED},
            f"2 pods have them{NOR}1 of the 2 nodes that offer so many either: w2 is cordoned",
        ),
        (
            {"w1": 3, "w2": 1}, [pod_on("w1", 1)], {"w1": CORDONED},
            f"{HAS_MOST}{NOR}the only node that offers so many either: w1 is cordoned",
        ),
        ({"w1": 3, "w2": 1}, [pod_on("w1", 1)], {"w2": CORDONED}, HAS_MOST),
        (
            {"w1": 2, "w2": 1}, [], {"w1": CORDONED, "w2": CORDONED},
            f"{NOR}any of the 2 nodes that offer units either: w1 is cordoned, w2 is cordoned",
        ),
        (
            {"w1": 2}, [pod_on("w2", 1)], {"w1": CORDONED},
            f"{NOR}the only node that offers units either: w1 is cordoned"),
        (
            {"w1": 3, "w2": 3}, [pod_on("w1", 1)], {"w1": CORDONED, "w2": CORDONED},
            f"{CLOSED}: w2 is cordoned{NOR}the only other node that offers so many either: w1 is cordoned",
        ),
        ({"w1": 3, "w2": 3}, [pod_on("w1", 1)], {"w1": CORDONED}, "no unit is missing"),
        ({}, [pod_on("w1", 1)], {"w1": CORDONED}, "because it has no devices"),
    ],
)  # fmt: skip
def test_what_else_keeps_the_pod_off_nodes_whose_units_are_missing(
    by_node: dict[str, int], uses: list[PodUse], constraints: NodeConstraints, text: str
) -> None:
    sentence = pool_words(explained_pool(cards(**by_node), 3, *uses, constraints=constraints))
    assert sentence.endswith(text)
    assert sentence.count(NOR) == text.count(NOR)


def test_a_pod_with_its_units_has_no_judged_node() -> None:
    for pod in (PodState("w1"), PodState("w1", ended="Failed")):
        found = explained_pool(cards(w1=3), 3, pod_on("w1", 3), pod=pod, constraints={"w1": CORDONED})
        assert NOR not in pool_words(found)


def test_from_one_node_others_are_not_seen() -> None:
    pools = cards(w1=3, w2=1)
    found = explained_pool(pools, 3, only="w2")
    assert found.finding is Finding.NODES_TOO_SMALL
    assert pool_words(found) == f"{FULL}and node w2 offers 1 of 4"
    assert explained_pool(pools, 3, only="w9").rooms == (NodeUnits("w9", 0, 0),)
    assert explained_pool(pools, 3, only="w1").fitting == ["w1"]


def test_devices_that_are_not_set_up_yet_are_counted() -> None:
    pools = cards(w1=1).begin("w2")
    pools.record("w2-0", marked("a"))
    text = pool_words(explained_pool(pools, 2))
    assert text.endswith("never be met as it is; 1 of its devices offers nothing: 1 PendingAssignment (AskedFor)")


@pytest.mark.parametrize(
    ("pod", "finding", "place"),
    [
        (PodState("w1"), Finding.HAS, "on node w1"),
        (PodState("w1", hour(3), running=True), Finding.HAS, "on node w1 since 2026-01-01T03:00:00Z"),
        (
            PodState("w1", running=False), Finding.HAS,
            "on node w1; `kubectl describe pod` shows why its containers do not run yet",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pools", [cards(w1=3), PoolsLog()], ids=["pool", "no pool"])
def test_a_bound_pod_has_its_units_whatever_the_conditions_are(
    pools: PoolsLog, pod: PodState, finding: Finding, place: str
) -> None:
    found = explained_pool(pools, 3, pod=pod)
    assert (found.finding, pool_words(found)) == (finding, f"it has its 3 units of {UNITS} {place}")


def test_a_pod_that_has_ended_has_no_units() -> None:
    found = explained_pool(cards(w1=3), 3, pod=PodState("w1", ended="Failed: Evicted"))
    assert found.finding is Finding.ENDED
    assert pool_words(found) == f"it has ended (Failed: Evicted), and has no units of {UNITS} any more"


def test_units_of_two_pools_have_to_be_on_one_node() -> None:
    pools = cards(w1=1, w2=1)
    first = explained_pool(pools, 1, constraints={"w1": CORDONED})
    second = explained_pool(pools, 1, constraints={"w2": CORDONED})
    assert apart_words([first, second]) == "each of these could be had, but no node has room for all of them"
    assert apart_words([first, explained_pool(pools, 1)]) == ""
    assert apart_words([first]) == ""
    assert apart_words([first, explained_pool(pools, 9)]) == ""

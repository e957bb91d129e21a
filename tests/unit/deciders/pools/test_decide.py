"""Which device belongs to which pool: every rule of taking, keeping and giving back, and the reason that is given."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.device import DeviceWithdrawn, Hardware
from gpuledger.events.node import NodeBootstrapWithdrawn, NodeGone, NodeLabelled, NodeUnlabelled
from gpuledger.events.pool import PoolGone
from gpuledger.events.settings import SettingsChanged
from support.pools import (
    MET,
    PoolsLog,
    applied,
    described,
    detected,
    isolated,
    marked,
    pool,
    prepared,
    refused,
    released,
    state,
    steps,
)

PENDING, ASSIGNED, UNASSIGNING = "Pending", "Assigned", "Unassigning"
FREE = (None, None)
ZONE_A = NodeLabelled(uid="n", labels={"zone": "a"})


@pytest.fixture
def world() -> PoolsLog:
    return PoolsLog().begin("n1", devices=2)


@pytest.mark.parametrize(
    ("pool_id", "mark"),
    [("ns/p", marked("p")), ("p", marked(cluster="p"))],
    ids=["GPUPool", "ClusterGPUPool"],
)
def test_a_requested_device_is_pending_then_assigned_then_released(world: PoolsLog, pool_id: str, mark: Any) -> None:
    world.record(pool_id, pool())
    assert steps(world.record("n1-0", mark)) == [("n1-0", pool_id, PENDING)]
    assert world.total(pool_id) == 0
    assert steps(world.record("n1-0", applied(pool_id))) == [("n1-0", pool_id, ASSIGNED)]
    assert world.total(pool_id) == 1
    assert steps(world.record("n1-0", marked())) == [("n1-0", pool_id, UNASSIGNING)]
    assert world.total(pool_id) == 0
    assert steps(world.record("n1-0", released(pool_id))) == [("n1-0", None, None)]
    assert world.why("n1-0") == "NotAskedFor"


def test_a_device_that_waits_for_its_agent_is_given_back_through_the_agent(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.record("n1-0", marked("p"))
    world.record("n1-0", marked())
    assert world.of("n1-0") == ("ns/p", UNASSIGNING)
    world.record("n1-0", applied("ns/p"))
    assert world.of("n1-0") == ("ns/p", UNASSIGNING)
    world.record("n1-0", released("ns/p"))
    assert world.of("n1-0") == FREE


def test_a_device_goes_from_pool_to_pool_only_when_the_first_has_released_it(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.record("q", pool())
    world.assign("n1-0", "ns/p")
    assert steps(world.record("n1-0", marked(cluster="q"))) == [("n1-0", "ns/p", UNASSIGNING)]
    decided = world.record("n1-0", released("ns/p"))
    assert steps(decided) == [("n1-0", None, None), ("n1-0", "q", PENDING)]
    first, second = [one for one in decided if one.subject == "n1-0"]
    assert second.causation_id == first.id
    assert second.correlation_id == first.correlation_id


def test_an_annotation_that_comes_back_while_the_device_leaves_counts_when_it_has_left(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    world.record("n1-0", marked())
    world.record("n1-0", marked("p"))
    assert world.of("n1-0") == ("ns/p", UNASSIGNING)
    world.record("n1-0", released("ns/p"))
    assert world.of("n1-0") == ("ns/p", PENDING)


@pytest.mark.parametrize(
    "mark",
    [marked("p", cluster="p"), marked("other"), marked(cluster="p"), marked("narrow")],
    ids=["both annotations", "unknown pool", "pool of the other kind", "no device that the pool means"],
)
def test_a_mismatch_assigns_nothing_and_is_decided_once(world: PoolsLog, mark: Any) -> None:
    world.record("ns/p", pool())
    world.record("ns/narrow", pool(include={"products": ["NVIDIA H100"]}))
    decided = world.record("n1-0", mark)
    assert steps(decided) == [("n1-0", None, None)]
    assert world.why("n1-0") == "AnnotationMismatch"
    assert world.record("n1-0", mark) == []


def test_a_mismatch_ends_when_the_pool_comes(world: PoolsLog) -> None:
    world.record("n1-0", marked("p"))
    assert world.why("n1-0") == "AnnotationMismatch"
    world.record("ns/p", pool())
    assert world.of("n1-0") == ("ns/p", PENDING)


@pytest.mark.parametrize(
    ("subject", "before", "after", "reason"),
    [
        ("n1-0", state("Validating"), state("Ready"), "DeviceNotReady"),
        ("n1-0", described(ignored=True), described(), "IgnoredByLabel"),
        ("n1-0", described(managed=False), described(), "NodeNotManaged"),
        ("n1-0", described(missing=True), described(), "NotObserved"),
        ("n1", prepared(ready=False), prepared(), "NodeNotReadyForPooling"),
        ("n1", NodeBootstrapWithdrawn(), prepared(), "NodeNotReadyForPooling"),
        ("n1", isolated(), isolated(aside=False), "NodeUnderMaintenance"),
        ("n1", isolated(), NodeGone(uid="u1"), "NodeUnderMaintenance"),
        ("ns/p", pool(maintenance="enabled"), pool(), "PoolTakesNoDevices"),
        ("ns/p", pool(unit="MIG"), pool(), "PoolTakesNoDevices"),
        ("ns/p", pool(backend="DRA"), pool(), "PoolTakesNoDevices"),
        ("ns/p", pool(deleting=True), pool(), "PoolTakesNoDevices"),
        ("ns/p", pool(slices_per_unit=9), pool(slices_per_unit=8), "PoolTakesNoDevices"),
    ],
)
def test_a_device_that_cannot_be_taken_yet_is_taken_later(
    world: PoolsLog, subject: str, before: Any, after: Any, reason: str
) -> None:
    world.record("ns/p", pool())
    world.record(subject, before)
    world.record("n1-0", marked("p"))
    assert (world.of("n1-0"), world.why("n1-0")) == (FREE, reason)
    world.record(subject, after)
    assert world.of("n1-0") == ("ns/p", PENDING)


def test_a_pool_keeps_what_it_has_of_a_node_under_maintenance(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.record("n1-0", marked("p"))
    world.record("n1-0", applied("ns/p"))
    assert world.record("n1", isolated()) == []
    assert world.of("n1-0") == ("ns/p", "Assigned")


@pytest.mark.parametrize("is_applied", [False, True], ids=["pending", "assigned"])
@pytest.mark.parametrize(
    ("subject", "fact", "reason"),
    [
        ("n1-0", marked(), "NotAskedFor"),
        ("n1-0", marked("other"), "AnnotationMismatch"),
        ("n1-0", marked("p", cluster="p"), "AnnotationMismatch"),
        ("n1-0", described(ignored=True), "IgnoredByLabel"),
        ("n1-0", described(managed=False), "NodeNotManaged"),
        ("n1-0", described(Hardware(product="another")), "Drift"),
        ("n1", NodeLabelled(uid="n", labels={"zone": "b"}), "NoLongerMatching"),
        ("n1", NodeUnlabelled(), "NoLongerMatching"),
        ("ns/p", pool(deleting=True), "PoolDeleted"),
        ("ns/p", PoolGone(), "PoolGone"),
    ],
)
def test_a_device_leaves(world: PoolsLog, subject: str, fact: Any, reason: str, *, is_applied: bool) -> None:
    selects = pool(include={"products": ["NVIDIA A100-PCIE-40GB"]}, node_selector={"labels": {"zone": "a"}})
    world.record("n1", ZONE_A)
    world.record("ns/p", selects)
    world.record("n1-0", marked("p"))
    if is_applied:
        world.record("n1-0", applied("ns/p"))
    world.record(subject, fact)
    assert (world.of("n1-0"), world.why("n1-0")) == (("ns/p", UNASSIGNING), reason)
    world.record("n1-0", released("ns/p"))
    assert world.of("n1-0") == FREE


@pytest.mark.parametrize("uid", ["u", "v"], ids=["the same object", "one before it"])
def test_a_pool_that_is_gone_does_not_come_back_by_what_is_recorded_late(world: PoolsLog, uid: str) -> None:
    world.record("n1-0", marked("p"))
    world.record("ns/p", PoolGone(uid="u"), at=50)
    world.record("ns/p", pool(uid=uid), at=40)
    world.record("ns/p", PoolGone(uid="u"), at=30)
    world.record("ns/p", pool(uid=uid), at=45)
    assert world.of("n1-0") == FREE
    assert world.state.pool.get("ns/p") is None
    world.record("ns/p", pool(uid="w"), at=51)
    assert world.of("n1-0") == ("ns/p", PENDING)
    assert not world.state.end.rows


@pytest.mark.parametrize(
    ("subject", "fact"),
    [
        ("n1", prepared(ready=False)),
        ("n1-0", described(missing=True)),
        ("ns/p", pool(maintenance="enabled")),
        (MODULE_CONFIG, SettingsChanged(approval_mode="Manual")),
    ],
)
def test_an_assigned_device_stays(world: PoolsLog, subject: str, fact: Any) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    world.record(subject, fact)
    assert world.of("n1-0") == ("ns/p", ASSIGNED)


def test_a_faulted_device_is_confirmed_anew(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    world.record("n1-0", state("Faulted"))
    assert (world.of("n1-0"), world.total("ns/p")) == (("ns/p", PENDING), 0)
    world.record("n1-0", state("Validating"))
    world.record("n1-0", state("Ready"))
    assert world.of("n1-0") == ("ns/p", PENDING)
    world.record("n1-0", applied("ns/p"))
    assert (world.of("n1-0"), world.total("ns/p")) == (("ns/p", ASSIGNED), 1)


@pytest.mark.parametrize(
    ("word", "message"),
    [(refused("ns/p", "Busy", "In use."), "In use."), (refused("ns/p", "Busy"), "Busy"), (released("ns/p"), "")],
)
def test_a_device_that_its_agent_takes_back_waits_until_it_is_set_up_anew(
    world: PoolsLog, word: Any, message: str
) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    assert steps(world.record("n1-0", word)) == [("n1-0", "ns/p", PENDING)]
    row = world.state.assignment.rows["n1-0"]
    assert (row.reason, row.message, world.total("ns/p")) == ("TakenBackByAgent", message, 0)
    world.record("ns/p", pool(maintenance="confirmed"))
    assert world.of("n1-0") == ("ns/p", PENDING)
    world.record("n1-0", applied("ns/p"))
    assert (world.of("n1-0"), world.total("ns/p")) == (("ns/p", ASSIGNED), 1)


def test_a_confirmation_waits_until_the_device_is_ready(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.record("n1-0", marked("p"))
    world.record("n1-0", state("Faulted"))
    world.record("n1-0", applied("ns/p"))
    assert world.of("n1-0") == ("ns/p", PENDING)
    world.record("n1-0", state("Ready"))
    assert world.of("n1-0") == ("ns/p", ASSIGNED)


def test_reports_of_agents_count_for_their_own_devices_and_pools_only(world: PoolsLog) -> None:
    world.begin("n2")
    world.record("ns/p", pool())
    world.record("n1-0", marked("p"))
    world.record("n1-0", applied("ns/p"), source="/nodes/n2/agent")
    world.record("n1-0", applied("other"))
    world.record("n1-1", applied("ns/p"))
    world.record("nobody-0", applied("ns/p"))
    assert (world.of("n1-0"), world.of("n1-1")) == (("ns/p", PENDING), FREE)


def test_the_latest_report_of_an_agent_counts(world: PoolsLog) -> None:
    world.record("ns/p", pool(unit="MIG", mig_profile="1g.5gb"))
    world.record("n1-0", marked("p"))
    world.record("n1-0", applied("ns/p", 7), at=50)
    world.record("n1-0", refused("ns/p"), at=49)
    assert (world.of("n1-0"), world.total("ns/p")) == (("ns/p", ASSIGNED), 7)


def test_reports_of_an_agent_whose_clock_is_behind_count(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.record("n1-0", marked("p"))
    world.record("n1-0", applied("ns/p"), at=-100)
    assert world.of("n1-0") == ("ns/p", ASSIGNED)
    row = world.state.assignment.rows["n1-0"]
    world.record("n1-0", marked(), at=-50)
    assert world.state.assignment.rows["n1-0"] == row  # Requests of people before that do not count.


def test_no_more_than_so_many_devices_of_a_node(world: PoolsLog) -> None:
    world.record("ns/p", pool(devices_per_node_max=1))
    world.record("n1-1", marked("p"))
    world.record("n1-0", marked("p"))
    assert (world.of("n1-1"), world.why("n1-0")) == (("ns/p", PENDING), "NodeLimitReached")
    world.record("n1-1", marked())
    assert world.of("n1-0") == FREE
    world.record("n1-1", released("ns/p"))
    assert world.of("n1-0") == ("ns/p", PENDING)
    world.record("n1-1", marked("p"))
    assert world.why("n1-1") == "NodeLimitReached"
    world.record("n1-0", DeviceWithdrawn())
    assert world.of("n1-1") == ("ns/p", PENDING)


def test_devices_that_wait_together_are_taken_by_name(world: PoolsLog) -> None:
    world.record("n1-1", marked("p"))
    world.record("n1-0", marked("p"))
    world.record("ns/p", pool(devices_per_node_max=1))
    assert (world.of("n1-0"), world.of("n1-1")) == (("ns/p", PENDING), FREE)


def test_a_withdrawn_device_leaves_nothing(world: PoolsLog) -> None:
    world.record("ns/p", pool())
    world.assign("n1-0", "ns/p")
    world.record("n1-0", DeviceWithdrawn())
    assert world.of("n1-0") == FREE
    assert world.total("ns/p") == 0
    assert "n1-0" not in world.state.setup.rows
    world.record("n1-0", detected("n1"))
    world.record("n1-0", state("Ready"))
    assert world.of("n1-0") == ("ns/p", PENDING)


@pytest.mark.parametrize(
    "before", [SettingsChanged(enabled=False), MET.model_copy(update={"met": False})], ids=["disabled", "no NFD"]
)
def test_nothing_is_decided_while_the_module_is_not_in_force(before: Any) -> None:
    world = PoolsLog().begin("n1")
    world.record(MODULE_CONFIG, before)
    for subject, fact in (("ns/p", pool()), ("n1-0", marked("p"))):
        assert world.record(subject, fact) == []
    world.record(MODULE_CONFIG, SettingsChanged() if isinstance(before, SettingsChanged) else MET)
    assert world.of("n1-0") == ("ns/p", PENDING)
    assert world.total("ns/p") == 0

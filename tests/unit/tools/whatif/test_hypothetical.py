"""A pool under another definition: which devices and capacities would differ, and why."""

from typing import Any

import pytest

from gpuledger.api.kinds import MODULE_CONFIG
from gpuledger.events.device import Hardware
from gpuledger.events.node import NodeLabelled
from gpuledger.events.pool import PoolGone
from gpuledger.events.settings import SettingsChanged
from gpuledger.tools.whatif.differences import offer_of
from support.hypothetical import MIG, compare, left_and_came_back
from support.pools import (
    A100,
    MET,
    PoolsLog,
    applied,
    described,
    detected,
    marked,
    pool,
    prepared,
    refused,
    released,
    state,
)

H100 = Hardware(product="NVIDIA H100", pci_vendor="10de", pci_device="2330")
MIG_A100 = A100.model_copy(update={"mig_profiles": ("1g.5gb", "2g.10gb", "7g.40gb")})
ONLY_H100: dict[str, Any] = {"include": {"products": [H100.product]}}
GOLD: dict[str, Any] = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}
POOL = "ns/p"


@pytest.fixture
def history() -> PoolsLog:
    """A pool that has n1-0 assigned; n1-1 is free, and so is n2-0, which is gold."""
    pools = PoolsLog().begin("n1", devices=2).begin("n2")
    pools.record(POOL, pool(slices_per_unit=2))
    pools.assign("n1-0", POOL)
    pools.record("n2-0", marked(tier="gold"))
    return pools


def test_what_is_recorded_changes_nothing(history: PoolsLog) -> None:
    found = compare(history, POOL, pool(slices_per_unit=2))
    assert (found.devices, found.pools, found.answered.devices) == ({}, {}, frozenset())


@pytest.mark.parametrize("since", [None, 0])
def test_a_device_joins_because_the_selector_selects_it(history: PoolsLog, since: int | None) -> None:
    history.record(POOL, pool(node_selector={"labels": {"zone": "a"}}))
    history.record("n1-1", marked("p"))
    assert history.of("n1-1") == (None, None)
    found = compare(history, POOL, pool(), since=since)
    assert found.moves()["n1-1"] == (None, POOL)
    assert (found.devices["n1-1"].would.phase, found.reasons("n1-1")) == ("Assigned", ["AskedFor"])
    assert found.devices["n1-1"][1:3] == ("n1", A100.product)


def test_a_device_leaves_because_the_selector_no_longer_selects_it(history: PoolsLog) -> None:
    found = compare(history, POOL, pool(slices_per_unit=2, node_selector={"labels": {"zone": "a"}}))
    assert found.moves() == {"n1-0": (POOL, None)}
    (why,) = found.devices["n1-0"].why
    assert (why.reason, "nodeSelector" in why.message) == ("NoLongerMatching", True)
    assert found.totals() == {POOL: (2, 0)}
    before, after = found.pools[POOL].was, found.pools[POOL].would
    assert before is not None
    assert after is not None
    low = [{one.type: one.status for one in offer.conditions}["CapacityLow"] for offer in (before, after)]
    assert low == ["False", "True"]


def test_a_lower_limit_keeps_what_is_there_and_takes_no_more(history: PoolsLog) -> None:
    history.record("n1-1", marked("p"))
    history.record("n1-1", applied(POOL))
    limited = pool(slices_per_unit=2, devices_per_node_max=1)
    assert compare(history, POOL, limited).devices == {}
    found = compare(history, POOL, limited, since=0)
    assert found.moves() == {"n1-1": (POOL, None)}
    assert found.reasons("n1-1") == ["NodeLimitReached"]
    assert found.totals() == {POOL: (4, 2)}


def test_a_pool_that_approves_takes_what_is_free(history: PoolsLog) -> None:
    found = compare(history, POOL, pool(slices_per_unit=2, **GOLD))
    assert found.moves() == {"n2-0": (None, POOL)}
    assert found.reasons("n2-0") == ["ApprovedAutomatically"]
    assert found.totals() == {POOL: (2, 4)}
    assert found.answered.devices == {"n2-0"}


@pytest.mark.parametrize("since", [None, 0])
def test_a_new_pool(history: PoolsLog, since: int | None) -> None:
    found = compare(history, "q", pool(**GOLD), since=since)
    assert found.moves() == {"n2-0": (None, "q")}
    assert found.totals() == {"q": (None, 1)}
    assert found.pools["q"].was is None


def test_a_device_passes_to_another_pool_that_waited_for_it(history: PoolsLog) -> None:
    history.record("auto", pool(**GOLD))
    history.record("n2-0", applied("auto"))
    history.record("other", pool(**GOLD))
    found = compare(history, "auto", pool(**ONLY_H100, **GOLD))
    assert found.moves() == {"n2-0": ("auto", "other")}
    assert (found.devices["n2-0"].would.phase, found.reasons("n2-0")) == (
        "Assigned",
        ["Drift", "ApprovedAutomatically"],
    )
    assert found.totals() == {"auto": (1, 0), "other": (0, 1)}


def test_room_that_becomes_free_is_taken(history: PoolsLog) -> None:
    history.record(POOL, pool(devices_per_node_max=1))
    history.record("n1-1", marked("p"))
    history.record("ns/new", pool())
    history.record("n1-0", marked("new"))
    assert history.of("n1-0") == (POOL, "Unassigning")
    assert compare(history, POOL, pool(devices_per_node_max=1)).devices == {}
    found = compare(history, POOL, pool(devices_per_node_max=2))
    assert found.moves() == {"n1-1": (None, POOL)}


def test_a_device_that_waits_for_its_agent_in_both_still_waits(history: PoolsLog) -> None:
    history.record("n1-1", marked("p"))
    found = compare(history, POOL, pool(slices_per_unit=4))
    assert (found.devices, found.totals()) == ({}, {POOL: (2, 4)})
    assert found.world.state.assignment.rows["n1-1"].phase == "Pending"


def test_what_an_agent_has_refused_stays_refused(history: PoolsLog) -> None:
    begun = len(history.log)
    history.record("n1-1", marked("p"))
    history.record("n1-1", refused(POOL))
    history.record(POOL, pool(node_selector={"labels": {"zone": "a"}}))
    found = compare(history, POOL, pool(slices_per_unit=2), since=begun)
    assert found.devices["n1-1"][3:5] == ((POOL, "Unassigning"), (POOL, "Pending"))
    assert "n1-1" not in found.answered.devices


def test_since_the_beginning_is_another_question_than_now(history: PoolsLog) -> None:
    """Now the device that the pool has stays; had the pool been so, it would never have come."""
    history.record("n1", prepared(ready=False))
    narrow = pool(slices_per_unit=2, maintenance="enabled")
    assert compare(history, POOL, narrow, sets_maintenance=True).devices == {}
    found = compare(history, POOL, narrow, since=0, sets_maintenance=True)
    assert found.moves() == {"n1-0": (POOL, None)}
    assert found.reasons("n1-0") == ["NodeNotReadyForPooling"]


def test_recorded_reports_of_agents_count_as_far_as_they_fit(history: PoolsLog) -> None:
    """The device is set up at the time at which it was, so a later fault is met as it was."""
    history.record("n1-0", state("Faulted"))
    assert history.of("n1-0") == (POOL, "Pending")
    assert compare(history, POOL, pool(slices_per_unit=2), since=0).devices == {}


def test_the_hypothesis_replaces_later_definitions_and_not_deletions(history: PoolsLog) -> None:
    history.record(POOL, pool(slices_per_unit=4, generation=2))
    history.record(POOL, pool(slices_per_unit=4, generation=2, deleting=True))
    found = compare(history, POOL, pool(slices_per_unit=3), since=0)
    assert found.world.replaced == 3
    assert found.devices == {}
    assert history.of("n1-0") == (POOL, "Unassigning")
    assert found.world.state.pool.rows[POOL].deleting
    history.record("n1-0", released(POOL))
    history.record(POOL, PoolGone())
    gone = compare(history, POOL, pool(slices_per_unit=3), since=0)
    assert (gone.devices, gone.pools) == ({}, {})


def test_a_pool_that_is_gone_is_created_again(history: PoolsLog) -> None:
    history.record("n1-0", marked())
    history.record("n1-0", released(POOL))
    history.record(POOL, PoolGone())
    found = compare(history, POOL, pool(**GOLD))
    assert found.moves() == {"n2-0": (None, POOL)}


def test_a_pool_that_came_later_would_have_been_the_older_one(history: PoolsLog) -> None:
    begun = len(history.log)
    history.record("first", pool(**GOLD))
    history.record("n2-0", applied("first"))
    history.record("second", pool(**GOLD))
    assert compare(history, "second", pool(**GOLD)).devices == {}
    found = compare(history, "second", pool(**GOLD), since=begun)
    assert found.moves() == {"n2-0": ("first", "second")}


@pytest.mark.parametrize(("uid", "taker"), [("u1", "second"), ("u2", "first")], ids=["is the same", "was made anew"])
def test_a_pool_that_was_created_later_takes_the_place_of_the_hypothetical_one(
    history: PoolsLog, uid: str, taker: str
) -> None:
    history.record("n2-0", marked())
    begun = len(history.log)
    history.record("second", pool(**GOLD, uid="u1"))
    history.record("first", pool(**GOLD))
    history.record("second", pool(**GOLD, uid=uid))
    history.record("n2-0", marked(tier="gold"))
    found = compare(history, "second", pool(**GOLD), since=begun)
    assert found.world.state.assignment.rows["n2-0"].pool == taker


def test_a_pool_that_came_first_keeps_its_place_beside_an_earlier_hypothesis(history: PoolsLog) -> None:
    history.record("n2-0", marked())
    begun = len(history.log)
    history.record("first", pool(**GOLD))
    history.record("second", pool(**GOLD))
    history.record("n2-0", marked(tier="gold"))
    assert compare(history, "second", pool(**GOLD), since=begun).moves() == {"n2-0": ("first", "second")}
    assert compare(history, "second", pool(**GOLD), since=begun + 1).devices == {}


def test_an_agents_report_counts_however_late_its_last_one_was(history: PoolsLog) -> None:
    history.record("n1-0", applied(POOL))
    assert compare(history, POOL, pool(node_selector={"labels": {"zone": "a"}})).moves() == {"n1-0": (POOL, None)}


def test_a_release_that_nobody_requested_there_does_not_count() -> None:
    history = PoolsLog().begin("n1")
    history.record("n1", NodeLabelled(uid="n", labels={"zone": "a"}))
    was = pool(node_selector={"labels": {"zone": "a"}})
    history.record(POOL, was)
    history.assign("n1-0", POOL)
    begun = len(history.log)
    history.record(POOL, pool(node_selector={"labels": {"zone": "b"}}))
    history.record("n1-0", released(POOL))
    for since in (0, begun):
        found = compare(history, POOL, was, since=since)
        assert found.moves() == {"n1-0": (None, POOL)}
        assert found.totals() == {POOL: (0, 1)}
        maintained = found.world.state.condition.get((POOL, "Maintenance"))
        assert maintained is None or maintained.status == "False"


def test_a_device_that_left_and_came_back_is_explained_by_how_it_stands() -> None:
    history, begun = left_and_came_back()
    found = compare(history, POOL, pool(**MIG, node_selector={"labels": {"zone": "a"}}), since=begun)
    assert found.devices["n1-0"][3:5] == ((POOL, "Assigned"), (POOL, "Pending"))
    assert found.reasons("n1-0") == ["AskedFor"]


def test_another_reason_is_a_difference() -> None:
    history = PoolsLog().begin("n1")
    history.record(POOL, pool(unit="MIG"))
    found = compare(history, POOL, pool(unit="MIG", mig_profile="all"))
    assert found.totals() == {POOL: (0, 0)}


def test_a_name_that_another_pool_has(history: PoolsLog) -> None:
    found = compare(history, "p", pool(**GOLD))
    assert found.devices == {}
    offer = found.pools["p"].would
    assert offer is not None
    assert {one.type: one.reason for one in offer.conditions}["Configured"] == "NameCollision"


@pytest.mark.parametrize(
    ("given", "maintenance", "status"),
    [(False, None, "True"), (True, None, "False"), (True, "confirmed", "False")],
    ids=["stays as it is", "is ended", "is confirmed"],
)
def test_maintenance_stays_unless_the_definition_sets_it(
    history: PoolsLog, given: bool, maintenance: str | None, status: str
) -> None:
    history.record(POOL, pool(maintenance="enabled"))
    found = compare(history, POOL, pool(maintenance=maintenance), sets_maintenance=given)
    offer = offer_of(found.world.state, POOL)
    assert offer is not None
    assert {one.type: one.status for one in offer.conditions}["Maintenance"] == status
    assert (found.pools == {}) is (not given)


def test_cards_are_divided_as_often_as_they_can_be() -> None:
    history = PoolsLog().begin("n1", devices=0)
    for number, card in enumerate((MIG_A100, MIG_A100, A100)):
        history.record(f"n1-{number}", detected("n1", card))
        history.record(f"n1-{number}", state("Ready"))
        history.record(f"n1-{number}", marked("p"))
    found = compare(history, POOL, pool(unit="MIG", mig_profile="2g.10gb", slices_per_unit=2))
    assert {one.device: one.would.phase for one in found.devices.values()} == {
        "n1-0": "Assigned", "n1-1": "Assigned", "n1-2": "Pending",
    }  # fmt: skip
    assert found.totals() == {POOL: (None, 12)}
    assert found.answered.indivisible == {"n1-2"}


def test_devices_that_the_pool_has_are_divided_anew_and_have_not_drifted() -> None:
    history = PoolsLog().begin("n1", devices=0)
    history.record("n1-0", detected("n1", MIG_A100))
    history.record("n1-0", state("Ready"))
    history.record(POOL, pool(unit="MIG", mig_profile="1g.5gb"))
    history.assign("n1-0", POOL, 7)
    found = compare(history, POOL, pool(unit="MIG", mig_profile="2g.10gb"))
    assert (found.devices, found.totals()) == ({}, {POOL: (7, 3)})
    changed = found.pools[POOL].would
    assert changed is not None
    assert {one.type: one.status for one in changed.conditions}["Maintenance"] == "False"
    assert found.answered.devices == {"n1-0"}
    whole = compare(history, POOL, pool())
    assert whole.totals() == {POOL: (7, 1)}
    unknown = compare(history, POOL, pool(unit="MIG", mig_profile="3g.20gb"))
    assert unknown.totals() == {POOL: (7, 0)}
    assert unknown.answered.indivisible == {"n1-0"}


def test_a_free_card_without_the_profile_would_stay_free() -> None:
    history = PoolsLog().begin("n1", devices=2)
    history.record("n1-0", described(MIG_A100))
    for device in ("n1-0", "n1-1"):
        history.record(device, marked("p"))
    found = compare(history, POOL, pool(unit="MIG", mig_profile="3g.20gb"))
    assert found.moves() == {"n1-1": (None, POOL)}
    assert found.answered.indivisible == {"n1-1"}


def test_a_device_that_is_not_ready_would_stay_pending_despite_its_agents_report(history: PoolsLog) -> None:
    begun = len(history.log)
    history.record("n1-1", described(hardware=H100))
    history.record("n1-1", marked("p"))
    history.record("n1-1", state("Faulted"))
    history.record(POOL, pool(slices_per_unit=2, include={"products": [A100.product]}))
    history.record("n1-1", released(POOL))
    found = compare(history, POOL, pool(slices_per_unit=2), since=begun)
    assert found.devices["n1-1"].would == (POOL, "Pending")
    assert found.answered.is_settled


def test_other_facts_than_definitions_are_replayed_unchanged(history: PoolsLog) -> None:
    history.record(MODULE_CONFIG, SettingsChanged(max_slices_per_device=1))
    history.record("n2", NodeLabelled(uid="n", labels={"zone": "a"}))
    history.record(MODULE_CONFIG, MET.model_copy(update={"met": False}))
    history.record("n1-1", marked("p"))
    assert compare(history, POOL, pool(slices_per_unit=2), since=0).devices == {}
    nothing = compare(history, POOL, pool(slices_per_unit=2, node_selector={"labels": {"zone": "a"}}))
    assert (nothing.devices, nothing.pools) == ({}, {})

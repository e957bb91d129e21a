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
from support.pools import A100, MET, Pools, applied, asks, described, detected, pool, prepared, refused, released, state

H100 = Hardware(product="NVIDIA H100", pci_vendor="10de", pci_device="2330")
MIG_A100 = A100.model_copy(update={"mig_profiles": ("1g.5gb", "2g.10gb", "7g.40gb")})
ONLY_H100: dict[str, Any] = {"include": {"products": [H100.product]}}
GOLD: dict[str, Any] = {"requires_annotation": False, "auto_approve": {"labels": {"tier": "gold"}}}
POOL = "ns/p"


@pytest.fixture
def told() -> Pools:
    """A pool that has n1-0 assigned; n1-1 is free, and so is n2-0, which is gold."""
    pools = Pools().begin("n1", devices=2).begin("n2")
    pools.say(POOL, pool(slices_per_unit=2))
    pools.assign("n1-0", POOL)
    pools.say("n2-0", asks(tier="gold"))
    return pools


def test_what_is_recorded_changes_nothing(told: Pools) -> None:
    found = compare(told, POOL, pool(slices_per_unit=2))
    assert (found.devices, found.pools, found.answered.devices) == ({}, {}, frozenset())


@pytest.mark.parametrize("since", [None, 0])
def test_a_device_joins_because_the_selector_means_it(told: Pools, since: int | None) -> None:
    told.say(POOL, pool(node_selector={"labels": {"zone": "a"}}))
    told.say("n1-1", asks("p"))
    assert told.of("n1-1") == (None, None)
    found = compare(told, POOL, pool(), since=since)
    assert found.moves()["n1-1"] == (None, POOL)
    assert (found.devices["n1-1"].would.phase, found.reasons("n1-1")) == ("Assigned", ["AskedFor"])
    assert found.devices["n1-1"][1:3] == ("n1", A100.product)


def test_a_device_leaves_because_the_selector_does_not_mean_it_any_more(told: Pools) -> None:
    found = compare(told, POOL, pool(slices_per_unit=2, node_selector={"labels": {"zone": "a"}}))
    assert found.moves() == {"n1-0": (POOL, None)}
    (why,) = found.devices["n1-0"].why
    assert (why.reason, "nodeSelector" in why.message) == ("NoLongerMatching", True)
    assert found.totals() == {POOL: (2, 0)}
    before, after = found.pools[POOL].was, found.pools[POOL].would
    assert before is not None
    assert after is not None
    low = [{one.type: one.status for one in offer.conditions}["CapacityLow"] for offer in (before, after)]
    assert low == ["False", "True"]


def test_a_lower_limit_keeps_what_is_there_and_takes_no_more(told: Pools) -> None:
    told.say("n1-1", asks("p"))
    told.say("n1-1", applied(POOL))
    limited = pool(slices_per_unit=2, devices_per_node_max=1)
    assert compare(told, POOL, limited).devices == {}
    found = compare(told, POOL, limited, since=0)
    assert found.moves() == {"n1-1": (POOL, None)}
    assert found.reasons("n1-1") == ["NodeLimitReached"]
    assert found.totals() == {POOL: (4, 2)}


def test_a_pool_that_approves_takes_what_is_free(told: Pools) -> None:
    found = compare(told, POOL, pool(slices_per_unit=2, **GOLD))
    assert found.moves() == {"n2-0": (None, POOL)}
    assert found.reasons("n2-0") == ["ApprovedAutomatically"]
    assert found.totals() == {POOL: (2, 4)}
    assert found.answered.devices == {"n2-0"}


@pytest.mark.parametrize("since", [None, 0])
def test_a_new_pool(told: Pools, since: int | None) -> None:
    found = compare(told, "q", pool(**GOLD), since=since)
    assert found.moves() == {"n2-0": (None, "q")}
    assert found.totals() == {"q": (None, 1)}
    assert found.pools["q"].was is None


def test_a_device_passes_to_another_pool_that_waited_for_it(told: Pools) -> None:
    told.say("auto", pool(**GOLD))
    told.say("n2-0", applied("auto"))
    told.say("other", pool(**GOLD))
    found = compare(told, "auto", pool(**ONLY_H100, **GOLD))
    assert found.moves() == {"n2-0": ("auto", "other")}
    assert (found.devices["n2-0"].would.phase, found.reasons("n2-0")) == (
        "Assigned",
        ["Drift", "ApprovedAutomatically"],
    )
    assert found.totals() == {"auto": (1, 0), "other": (0, 1)}


def test_room_that_becomes_free_is_taken(told: Pools) -> None:
    told.say(POOL, pool(devices_per_node_max=1))
    told.say("n1-1", asks("p"))
    told.say("ns/new", pool())
    told.say("n1-0", asks("new"))
    assert told.of("n1-0") == (POOL, "Unassigning")
    assert compare(told, POOL, pool(devices_per_node_max=1)).devices == {}
    found = compare(told, POOL, pool(devices_per_node_max=2))
    assert found.moves() == {"n1-1": (None, POOL)}


def test_what_waits_for_its_agent_in_both_worlds_still_waits(told: Pools) -> None:
    told.say("n1-1", asks("p"))
    found = compare(told, POOL, pool(slices_per_unit=4))
    assert (found.devices, found.totals()) == ({}, {POOL: (2, 4)})
    assert found.world.state.assignment.rows["n1-1"].phase == "Pending"


def test_what_an_agent_has_refused_stays_refused(told: Pools) -> None:
    begun = len(told.log)
    told.say("n1-1", asks("p"))
    told.say("n1-1", refused(POOL))
    told.say(POOL, pool(node_selector={"labels": {"zone": "a"}}))
    found = compare(told, POOL, pool(slices_per_unit=2), since=begun)
    assert found.devices["n1-1"][3:5] == ((POOL, "Unassigning"), (POOL, "Pending"))
    assert "n1-1" not in found.answered.devices


def test_since_the_beginning_is_another_question_than_now(told: Pools) -> None:
    """Now the device that the pool has stays; had the pool been so, it would never have come."""
    told.say("n1", prepared(ready=False))
    narrow = pool(slices_per_unit=2, maintenance="enabled")
    assert compare(told, POOL, narrow, sets_maintenance=True).devices == {}
    found = compare(told, POOL, narrow, since=0, sets_maintenance=True)
    assert found.moves() == {"n1-0": (POOL, None)}
    assert found.reasons("n1-0") == ["NodeNotReadyForPooling"]


def test_recorded_words_of_agents_count_as_far_as_they_fit(told: Pools) -> None:
    """The device is set up at the time at which it was, so a later fault is met as it was."""
    told.say("n1-0", state("Faulted"))
    assert told.of("n1-0") == (POOL, "Pending")
    assert compare(told, POOL, pool(slices_per_unit=2), since=0).devices == {}


def test_the_hypothesis_replaces_later_definitions_and_not_deletions(told: Pools) -> None:
    told.say(POOL, pool(slices_per_unit=4, generation=2))
    told.say(POOL, pool(slices_per_unit=4, generation=2, deleting=True))
    found = compare(told, POOL, pool(slices_per_unit=3), since=0)
    assert found.world.replaced == 3
    assert found.devices == {}
    assert told.of("n1-0") == (POOL, "Unassigning")
    assert found.world.state.pool.rows[POOL].deleting
    told.say("n1-0", released(POOL))
    told.say(POOL, PoolGone())
    gone = compare(told, POOL, pool(slices_per_unit=3), since=0)
    assert (gone.devices, gone.pools) == ({}, {})


def test_a_pool_that_is_gone_is_created_again(told: Pools) -> None:
    told.say("n1-0", asks())
    told.say("n1-0", released(POOL))
    told.say(POOL, PoolGone())
    found = compare(told, POOL, pool(**GOLD))
    assert found.moves() == {"n2-0": (None, POOL)}


def test_a_pool_that_came_later_would_have_been_the_older_one(told: Pools) -> None:
    begun = len(told.log)
    told.say("first", pool(**GOLD))
    told.say("n2-0", applied("first"))
    told.say("second", pool(**GOLD))
    assert compare(told, "second", pool(**GOLD)).devices == {}
    found = compare(told, "second", pool(**GOLD), since=begun)
    assert found.moves() == {"n2-0": ("first", "second")}


@pytest.mark.parametrize(("uid", "taker"), [("u1", "second"), ("u2", "first")], ids=["is the same", "was made anew"])
def test_a_pool_that_was_created_later_takes_the_place_of_the_hypothetical_one(
    told: Pools, uid: str, taker: str
) -> None:
    told.say("n2-0", asks())
    begun = len(told.log)
    told.say("second", pool(**GOLD, uid="u1"))
    told.say("first", pool(**GOLD))
    told.say("second", pool(**GOLD, uid=uid))
    told.say("n2-0", asks(tier="gold"))
    found = compare(told, "second", pool(**GOLD), since=begun)
    assert found.world.state.assignment.rows["n2-0"].pool == taker


def test_a_pool_that_came_first_keeps_its_place_beside_an_earlier_hypothesis(told: Pools) -> None:
    told.say("n2-0", asks())
    begun = len(told.log)
    told.say("first", pool(**GOLD))
    told.say("second", pool(**GOLD))
    told.say("n2-0", asks(tier="gold"))
    assert compare(told, "second", pool(**GOLD), since=begun).moves() == {"n2-0": ("first", "second")}
    assert compare(told, "second", pool(**GOLD), since=begun + 1).devices == {}


def test_an_agent_is_heard_however_late_it_spoke_last(told: Pools) -> None:
    told.say("n1-0", applied(POOL))
    assert compare(told, POOL, pool(node_selector={"labels": {"zone": "a"}})).moves() == {"n1-0": (POOL, None)}


def test_a_release_that_nobody_asks_for_there_is_not_heard() -> None:
    told = Pools().begin("n1")
    told.say("n1", NodeLabelled(uid="n", labels={"zone": "a"}))
    was = pool(node_selector={"labels": {"zone": "a"}})
    told.say(POOL, was)
    told.assign("n1-0", POOL)
    begun = len(told.log)
    told.say(POOL, pool(node_selector={"labels": {"zone": "b"}}))
    told.say("n1-0", released(POOL))
    for since in (0, begun):
        found = compare(told, POOL, was, since=since)
        assert found.moves() == {"n1-0": (None, POOL)}
        assert found.totals() == {POOL: (0, 1)}
        maintained = found.world.state.condition.get((POOL, "Maintenance"))
        assert maintained is None or maintained.status == "False"


def test_a_device_that_left_and_came_back_is_explained_by_how_it_stands() -> None:
    told, begun = left_and_came_back()
    found = compare(told, POOL, pool(**MIG, node_selector={"labels": {"zone": "a"}}), since=begun)
    assert found.devices["n1-0"][3:5] == ((POOL, "Assigned"), (POOL, "Pending"))
    assert found.reasons("n1-0") == ["AskedFor"]


def test_another_reason_is_a_difference() -> None:
    told = Pools().begin("n1")
    told.say(POOL, pool(unit="MIG"))
    found = compare(told, POOL, pool(unit="MIG", mig_profile="all"))
    assert found.totals() == {POOL: (0, 0)}


def test_a_name_that_another_pool_has(told: Pools) -> None:
    found = compare(told, "p", pool(**GOLD))
    assert found.devices == {}
    offer = found.pools["p"].would
    assert offer is not None
    assert {one.type: one.reason for one in offer.conditions}["Configured"] == "NameCollision"


@pytest.mark.parametrize(
    ("says", "maintenance", "status"),
    [(False, None, "True"), (True, None, "False"), (True, "confirmed", "False")],
    ids=["stays as it is", "is ended", "is confirmed"],
)
def test_maintenance_stays_unless_something_is_said_of_it(
    told: Pools, says: bool, maintenance: str | None, status: str
) -> None:
    told.say(POOL, pool(maintenance="enabled"))
    found = compare(told, POOL, pool(maintenance=maintenance), sets_maintenance=says)
    offer = offer_of(found.world.state, POOL)
    assert offer is not None
    assert {one.type: one.status for one in offer.conditions}["Maintenance"] == status
    assert (found.pools == {}) is (not says)


def test_cards_are_divided_as_often_as_they_can_be() -> None:
    told = Pools().begin("n1", devices=0)
    for number, card in enumerate((MIG_A100, MIG_A100, A100)):
        told.say(f"n1-{number}", detected("n1", card))
        told.say(f"n1-{number}", state("Ready"))
        told.say(f"n1-{number}", asks("p"))
    found = compare(told, POOL, pool(unit="MIG", mig_profile="2g.10gb", slices_per_unit=2))
    assert {one.device: one.would.phase for one in found.devices.values()} == {
        "n1-0": "Assigned", "n1-1": "Assigned", "n1-2": "Pending",
    }  # fmt: skip
    assert found.totals() == {POOL: (None, 12)}
    assert found.answered.indivisible == {"n1-2"}


def test_devices_that_the_pool_has_are_divided_anew_and_have_not_drifted() -> None:
    told = Pools().begin("n1", devices=0)
    told.say("n1-0", detected("n1", MIG_A100))
    told.say("n1-0", state("Ready"))
    told.say(POOL, pool(unit="MIG", mig_profile="1g.5gb"))
    told.assign("n1-0", POOL, 7)
    found = compare(told, POOL, pool(unit="MIG", mig_profile="2g.10gb"))
    assert (found.devices, found.totals()) == ({}, {POOL: (7, 3)})
    changed = found.pools[POOL].would
    assert changed is not None
    assert {one.type: one.status for one in changed.conditions}["Maintenance"] == "False"
    assert found.answered.devices == {"n1-0"}
    whole = compare(told, POOL, pool())
    assert whole.totals() == {POOL: (7, 1)}
    unknown = compare(told, POOL, pool(unit="MIG", mig_profile="3g.20gb"))
    assert unknown.totals() == {POOL: (7, 0)}
    assert unknown.answered.indivisible == {"n1-0"}


def test_a_free_card_that_is_known_to_lack_the_profile_would_stay_free() -> None:
    told = Pools().begin("n1", devices=2)
    told.say("n1-0", described(MIG_A100))
    for device in ("n1-0", "n1-1"):
        told.say(device, asks("p"))
    found = compare(told, POOL, pool(unit="MIG", mig_profile="3g.20gb"))
    assert found.moves() == {"n1-1": (None, POOL)}
    assert found.answered.indivisible == {"n1-1"}


def test_a_device_that_is_not_ready_would_be_pending_and_the_agents_word_would_not_end_that(told: Pools) -> None:
    begun = len(told.log)
    told.say("n1-1", described(hardware=H100))
    told.say("n1-1", asks("p"))
    told.say("n1-1", state("Faulted"))
    told.say(POOL, pool(slices_per_unit=2, include={"products": [A100.product]}))
    told.say("n1-1", released(POOL))
    found = compare(told, POOL, pool(slices_per_unit=2), since=begun)
    assert found.devices["n1-1"].would == (POOL, "Pending")
    assert found.answered.is_settled


def test_facts_that_are_no_definitions_are_heard_alike(told: Pools) -> None:
    told.say(MODULE_CONFIG, SettingsChanged(max_slices_per_device=1))
    told.say("n2", NodeLabelled(uid="n", labels={"zone": "a"}))
    told.say(MODULE_CONFIG, MET.model_copy(update={"met": False}))
    told.say("n1-1", asks("p"))
    assert compare(told, POOL, pool(slices_per_unit=2), since=0).devices == {}
    nothing = compare(told, POOL, pool(slices_per_unit=2, node_selector={"labels": {"zone": "a"}}))
    assert (nothing.devices, nothing.pools) == ({}, {})

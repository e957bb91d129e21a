"""What simulated agents do for pools: which devices they set up and release, and when they report it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.mig.geometry import partitions_of
from gpuledger.edge.kube.reflector import ChangeBatch, Changed, ChangeType, Listed
from gpuledger.tools.simulation.assignments import (
    NO_SUCH_PROFILE,
    Applied,
    AssignedDevice,
    Assignments,
    Refused,
    device_of,
    set_up,
)
from gpuledger.tools.simulation.fleet import Fleet, FleetSpec, SlotId
from gpuledger.tools.simulation.hardware import A100, H200

FLEET = Fleet(FleetSpec(1, 2, "a100"), 1)
(NODE,) = FLEET.nodes
POOL, OTHER = PoolRef("train", "team"), PoolRef("train")


@pytest.mark.parametrize(
    ("profiles", "fits"),
    [
        (A100.mig_profiles, (7, 1, 4, 3, 2, 1, 1)),
        (H200.mig_profiles, (7, 1, 4, 3, 2, 1, 1)),
    ],
)
def test_partitions_are_those_of_the_mig_user_guide(profiles: tuple[str, ...], fits: tuple[int, ...]) -> None:
    assert tuple(partitions_of(profile, profiles) for profile in profiles) == fits


@pytest.mark.parametrize(
    ("profile", "fits"),
    [("1g.24gb", 4), ("1g.24gb+me", 1), ("1g.24gb+gfx", 4), ("2g.48gb-me", 2), ("1c.2g.48gb", 4), ("2c.2g.48gb", 2)],
)
def test_only_the_media_engines_are_there_once(profile: str, fits: int) -> None:
    rtx_pro_6000 = ("1g.24gb", "1g.24gb+me", "1g.24gb+gfx", "2g.48gb", "2g.48gb-me", "4g.96gb")
    assert partitions_of(profile, rtx_pro_6000) == fits


@pytest.mark.parametrize("profile", ["", "1g.5gb", "whole", "0g.0gb"])
def test_a_profile_that_a_card_has_not_has_no_partitions(profile: str) -> None:
    assert partitions_of(profile, A100.mig_profiles) is None
    assert partitions_of("1g.10gb", ()) is None


def pool(unit: str, profile: str | None = None) -> dict[str, Any]:
    return {"spec": {"resource": {"unit": unit} | ({"migProfile": profile} if profile else {})}}


def test_a_card_is_set_up_as_the_pool_requests() -> None:
    assert set_up(pool("Card"), A100.mig_profiles) == Applied(None)
    assert set_up(pool("MIG", "3g.40gb"), A100.mig_profiles) == Applied(2)
    for definition in (pool("MIG", "1g.5gb"), pool("MIG")):
        came = set_up(definition, A100.mig_profiles)
        assert isinstance(came, Refused)
        assert came.reason == NO_SUCH_PROFILE
    assert isinstance(set_up(pool("MIG", "1g.10gb"), ()), Refused)


def live(state: str = "Ready", ref: PoolRef | None = None, *, unassigning: str | None = None) -> dict[str, Any]:
    hardware = {"uuid": "GPU-1", "pci": {"address": FLEET.nodes[NODE].addresses[0]}}
    status: dict[str, Any] = {"nodeName": NODE, "state": state, "hardware": hardware}
    if ref is not None:
        status["poolRef"] = {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})
    if unassigning is not None:
        status["conditions"] = [{"type": "Unassigning", "status": unassigning}]
    return {"metadata": {"name": "d"}, "status": status}


@pytest.mark.parametrize(
    ("given_", "waits", "leaves"),
    [
        (live(), False, False),
        (live("PendingAssignment"), False, False),
        (live("PendingAssignment", POOL), True, False),
        (live("PendingAssignment", POOL, unassigning="False"), True, False),
        (live("PendingAssignment", POOL, unassigning="True"), False, True),
        (live("Assigned", POOL), False, False),
        (live("Assigned", POOL, unassigning="True"), False, True),
        (live("Faulted", POOL, unassigning="True"), False, True),
        (live("Ready", None, unassigning="True"), False, False),
    ],
)
def test_what_a_device_shows(given_: dict[str, Any], waits: bool, leaves: bool) -> None:
    device = device_of(given_)
    assert (device.waits, device.leaves) == (waits, leaves)


def test_a_device_without_a_status_waits_for_nothing() -> None:
    assert device_of({"metadata": {"name": "d"}}) == AssignedDevice("d")


def changes(*devices: dict[str, Any], kind: ChangeType = "MODIFIED") -> ChangeBatch[AssignedDevice]:
    return ChangeBatch(tuple(Changed(kind, device_of(one)) for one in devices), "1")


def listed(*devices: dict[str, Any]) -> Listed[AssignedDevice]:
    return Listed([device_of(one) for one in devices], "1")


def names(devices: list[AssignedDevice]) -> list[str]:
    return [device.name for device in devices]


PENDING, LEAVING = live("PendingAssignment", POOL), live("Assigned", POOL, unassigning="True")


def test_a_device_is_set_up_once_and_again_after_something_else() -> None:
    assignments = Assignments(FLEET)
    assert names(assignments.follow(changes(PENDING, PENDING))) == ["d"]
    assert names(assignments.follow(changes(PENDING))) == []
    assert names(assignments.follow(changes(live("PendingAssignment", OTHER)))) == ["d"]
    assert names(assignments.follow(changes(live("Faulted", OTHER), live("PendingAssignment", OTHER)))) == ["d"]
    assert names(assignments.follow(listed(live("PendingAssignment", OTHER)))) == ["d"], "a list may hide something"


def test_a_device_of_another_fleet_is_left_alone() -> None:
    other = PENDING | {"status": PENDING["status"] | {"nodeName": "another"}}
    assert Assignments(FLEET).follow(changes(other)) == []


def test_a_device_leaves_once_nothing_holds_it() -> None:
    assignments = Assignments(FLEET)
    assignments.follow(changes(LEAVING))
    (device,) = assignments.leaving.values()
    assert assignments.slot_id(device) == SlotId(NODE, 0)
    assert list(assignments.free(lambda _: ["pod"])) == []
    assert list(assignments.free(lambda _: [])) == [device]
    assignments.follow(changes(LEAVING))
    assert list(assignments.free(lambda _: [])) == [], "it was reported already"
    assignments.follow(changes(live()))
    assignments.follow(changes(LEAVING))
    assert list(assignments.free(lambda _: [])) == [device]


@pytest.mark.parametrize(
    "after", [changes(live("Assigned", POOL)), changes(LEAVING, kind="DELETED"), listed(), listed(live())]
)
def test_a_device_that_stays_after_all_or_is_gone_leaves_no_more(after: Any) -> None:
    assignments = Assignments(FLEET)
    assignments.follow(changes(LEAVING))
    assignments.follow(after)
    assert not assignments.leaving


STATES = [
    live(),
    live("Assigned", POOL),
    live("Validating", POOL),
    PENDING,
    LEAVING,
    live("PendingAssignment", OTHER),
    live("Assigned", OTHER, unassigning="True"),
]


@given(st.lists(st.tuples(st.integers(0, len(STATES) - 1), st.booleans()), max_size=30))
def test_whatever_is_shown_the_last_word_is_answered(shown: list[tuple[int, bool]]) -> None:
    """Whoever waits or leaves at the end was answered since it began to, and no answer is for another pool."""
    assignments, answered = Assignments(FLEET), ""
    before = -1
    for index, relisted in shown:
        state = STATES[index]
        answered = answered if index == before else ""
        for device in assignments.follow(listed(state) if relisted else changes(state)):
            assert device == device_of(state)
            answered = "set up"
        for device in assignments.free(lambda _: []):
            assert device == device_of(state)
            answered = "let go"
        device = device_of(state)
        assert answered == ("set up" if device.waits else "let go" if device.leaves else "")
        before = index

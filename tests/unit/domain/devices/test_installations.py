"""Installations: which removal ends which insertion, what is stray, and what contradicts what."""

from itertools import permutations
from typing import Any

import pytest

from gpuledger.events.device import DeviceFailed, DeviceInserted, DeviceRemoved
from gpuledger.events.payload import Payload
from gpuledger.readmodels.projections import DevicesProjection
from support.events import AGENT, IMPORT, event, folded, hour, log_of, rows_of

DeviceFact = tuple[float, str, Payload]


def inserted(at: float, device: str = "d1", slot: str = "s1", **facts: str) -> DeviceFact:
    return (at, device, DeviceInserted(slot=slot, **facts))


def removed(at: float, device: str = "d1", slot: str = "s1", *, retired: bool = False) -> DeviceFact:
    return (at, device, DeviceRemoved(slot=slot, retired=retired))


def tables(*facts: DeviceFact, sources: tuple[str, ...] = (IMPORT,)) -> dict[str, list[Any]]:
    """The rows after these facts, recorded in this order by these sources in turn."""
    events = [
        event(data, device, number=number, at=at, source=sources[number % len(sources)])
        for number, (at, device, data) in enumerate(facts, 1)
    ]
    rows = rows_of(folded(DevicesProjection(), log_of(events)), positions=False)
    return {name: sorted(table.values(), key=str) for name, table in rows.items()}


def lives(rows: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    return [(row.valid_from, row.valid_to) for row in rows["installation"]]


@pytest.mark.parametrize(
    ("facts", "lives_h", "strays"),
    [
        ([inserted(1)], [(1, None)], 0),
        ([inserted(1), removed(2)], [(1, 2)], 0),
        ([inserted(1), removed(2), inserted(3)], [(1, 2), (3, None)], 0),
        ([inserted(1), inserted(3), removed(5)], [(1, 5)], 1),
        ([inserted(1), removed(5), removed(3)], [(1, 3)], 1),
        ([removed(2)], [], 1),
        ([inserted(2), removed(2)], [(2, 2)], 0),
        ([inserted(1), removed(2), inserted(2)], [(1, 2), (2, None)], 0),
    ],
)
def test_facts_pair_up_by_time_in_any_order(facts: list[DeviceFact], lives_h: list[Any], strays: int) -> None:
    expected = [(hour(start), None if end is None else hour(end)) for start, end in lives_h]
    for order in permutations(facts):
        rows = tables(*order)
        assert (lives(rows), len(rows["stray"])) == (expected, strays)


def test_a_removal_that_turns_stray_is_the_same_whichever_source_reported_it() -> None:
    facts = [inserted(1), removed(5), removed(3)]
    in_turn = [(IMPORT, AGENT), (AGENT, IMPORT), (IMPORT,)]
    strays = [tables(*order, sources=sources)["stray"] for order in permutations(facts) for sources in in_turn]
    assert all(found == strays[0] for found in strays)


def test_a_late_removal_ends_a_contradiction() -> None:
    both = [inserted(1, "d1"), inserted(3, "d2")]
    (row,) = tables(*both)["contradiction"]
    assert (row.kind, row.subject, row.first, row.second) == ("two-devices-in-slot", "s1", "d1", "d2")
    assert (row.valid_from, row.valid_to) == (hour(3), None)
    assert tables(*both, removed(2, "d1"))["contradiction"] == []
    (row,) = tables(*both, removed(4, "d1"))["contradiction"]
    assert (row.valid_from, row.valid_to) == (hour(3), hour(4))


def test_one_device_in_two_places_is_reported() -> None:
    rows = tables(inserted(1, slot="s1"), inserted(2, slot="s2"))
    (row,) = rows["contradiction"]
    assert (row.kind, row.subject, row.first, row.second) == ("device-in-two-slots", "d1", "s1", "s2")
    assert (rows["device"][0].slot, rows["device"][0].places) == ("s2", 2)


def test_lives_that_only_touch_do_not_contradict() -> None:
    assert tables(inserted(1, "d1"), removed(2, "d1"), inserted(2, "d2"))["contradiction"] == []
    assert tables(inserted(1, "d1"), inserted(2, "d2"), removed(2, "d2"))["contradiction"] == []


def test_a_stray_is_reported_until_a_late_fact_gives_it_a_life() -> None:
    rows = tables(inserted(1), inserted(5))
    assert [row.kind for row in rows["contradiction"]] == ["inserted-twice"]
    rows = tables(inserted(1), inserted(5), removed(3))
    assert (rows["contradiction"], rows["stray"]) == ([], [])
    assert [row.kind for row in tables(removed(1))["contradiction"]] == ["removed-not-inserted"]


@pytest.mark.parametrize(("retired", "state"), [(False, "Removed"), (True, "Retired")])
def test_the_last_removal_decides_whether_the_device_retired(retired: bool, state: str) -> None:
    (row,) = tables(inserted(1), removed(2, retired=not retired), inserted(3), removed(4, retired=retired))["device"]
    assert (row.state, row.slot, row.lives, row.removed_at) == (state, None, 2, hour(4))


def test_identity_is_the_latest_one_reported() -> None:
    (row,) = tables(inserted(1, serial="A", model="K20"), removed(2), inserted(3, serial="B"))["device"]
    assert (row.serial, row.model, row.uuid) == ("B", "K20", None)


def test_a_device_that_only_failed_has_no_place() -> None:
    (row,) = tables((1, "d1", DeviceFailed(kind="OTB")), (3, "d1", DeviceFailed(kind="DBE")))["device"]
    assert (row.state, row.failures, row.first_seen_at, row.last_failed_at) == ("Unplaced", 2, hour(1), hour(3))

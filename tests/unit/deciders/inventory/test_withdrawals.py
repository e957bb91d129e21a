"""Cards that leave for good: others take their slots, or people retire them while they are missing."""

import pytest

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.events.device import DeviceMarked, DeviceWithdrawn
from gpuledger.events.node import NodeGone
from support.events import folded, rows_of
from support.inventory import RecordedInventory, card, cards_seen, features, kinds, observed

NAME = "w1-0000-17-00-0"
RETIRED = DeviceMarked(annotations={"gpu.deckhouse.io/retired": "true"})


def recorded(*facts: tuple[str, object]) -> RecordedInventory:
    """The decider after these facts, an hour apart, on a cluster that has Node Feature Discovery."""
    inventory = RecordedInventory()
    for at, (subject, data) in enumerate((("cpu", observed()), *facts)):
        inventory.record(at, subject, data)  # type: ignore[arg-type] # payloads all
    return inventory


def test_a_card_in_whose_slot_another_one_is_found_is_withdrawn() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))))
    decided = inventory.record(5, "w1", cards_seen(card("GPU-b")))
    assert kinds(decided) == [
        "device.detached",
        "device.withdrawn",
        "device.detected",
        "device.attached",
    ]
    assert decided[1].data == DeviceWithdrawn(reason="Replaced")
    (only,) = inventory.devices()
    assert only.name.startswith("w1-0000-17-00-0-"), "the name of the slot was the other card's, and names are for life"
    assert (only.uuid, only.missing, only.slot) == ("GPU-b", False, "w1/0000:17:00.0")


def test_a_card_that_was_replaced_and_comes_into_another_slot_is_a_device_again() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen(card("GPU-b"))))
    inventory.record(5, "w1", cards_seen(card("GPU-b"), card("GPU-a", 1)))
    assert {(row.uuid, row.missing) for row in inventory.devices()} == {("GPU-a", False), ("GPU-b", False)}


def test_cards_that_exchange_their_slots_both_stay() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"), card("GPU-b", 1))))
    before = inventory.names()
    decided = inventory.record(5, "w1", cards_seen(card("GPU-b"), card("GPU-a", 1)))
    assert "device.withdrawn" not in kinds(decided)
    assert inventory.names() == before
    assert [row.missing for row in inventory.devices()] == [False, False]


@pytest.mark.parametrize("uuid", [None, "GPU-a"])
def test_a_slot_that_is_empty_or_holds_the_card_without_its_uuid_replaces_nothing(uuid: str | None) -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen()))
    inventory.record(5, "w1", cards_seen(card(uuid)))
    assert [(row.uuid, row.missing) for row in inventory.devices()] == [("GPU-a", False)]


def test_a_late_survey_of_the_card_that_was_there_before_brings_no_device_back() -> None:
    inventory = recorded()
    inventory.record(3, "w1", cards_seen(card("GPU-b")))
    assert "device.detected" not in kinds(inventory.record(2, "w1", cards_seen(card("GPU-a"))))
    assert [row.uuid for row in inventory.devices()] == ["GPU-b"]


def test_a_missing_card_that_people_retire_is_withdrawn_and_stays_away() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"), card("GPU-b", 1))), ("w1", cards_seen(card("GPU-b", 1))))
    decided = inventory.record(5, NAME, RETIRED)
    assert kinds(decided) == ["device.detached", "device.withdrawn"]
    assert decided[1].data == DeviceWithdrawn(reason="Retired")
    assert [row.uuid for row in inventory.devices()] == ["GPU-b"]
    inventory.record(6, NAME, DeviceMarked())
    assert inventory.record(7, "w1", cards_seen(card("GPU-b", 1))) == []
    assert [row.uuid for row in inventory.devices()] == ["GPU-b"]


def test_a_card_that_is_there_is_retired_when_it_is_missing() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))))
    assert inventory.record(5, NAME, RETIRED) == []
    assert "device.withdrawn" in kinds(inventory.record(6, "w1", cards_seen()))
    assert inventory.devices() == []


@pytest.mark.parametrize("slot", [0, 3])
def test_a_retired_card_that_comes_back_is_a_device_again(slot: int) -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen()), (NAME, RETIRED))
    assert "device.detected" in kinds(inventory.record(5, "w1", cards_seen(card("GPU-a", slot))))
    assert [(row.uuid, row.missing) for row in inventory.devices()] == [("GPU-a", False)]


def test_a_card_that_was_last_seen_without_its_uuid_leaves_nothing_behind() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen(card(None))), ("w1", cards_seen()))
    inventory.record(5, NAME, RETIRED)
    assert inventory.devices() == []
    assert inventory.record(6, "w1", cards_seen()) == []


def test_a_device_that_was_only_counted_can_be_retired() -> None:
    inventory = recorded(("w1", features("2203", "2203")), ("w1", features("2203")))
    _, device = inventory.devices()
    assert (device.provisional, device.missing) == (True, True)
    decided = inventory.record(5, device.name, RETIRED)
    assert [one.data for one in decided if isinstance(one.data, DeviceWithdrawn)] == [DeviceWithdrawn(reason="Retired")]
    assert inventory.names() == ["w1-0-10de-2203"]
    assert inventory.record(6, "w1", features("2203")) == []


@pytest.mark.parametrize("value", ["false", "", "True"])
def test_only_the_value_true_retires(value: str) -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen()))
    mark = DeviceMarked(annotations={"gpu.deckhouse.io/retired": value})
    assert inventory.record(5, NAME, mark) == []


def test_a_retired_card_whose_node_is_gone_left_with_its_node() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), (NAME, RETIRED))
    decided = inventory.record(5, "w1", NodeGone())
    assert [one.data for one in decided if isinstance(one.data, DeviceWithdrawn)] == [DeviceWithdrawn()]


def test_a_fold_of_the_log_forgets_the_same() -> None:
    inventory = recorded(("w1", cards_seen(card("GPU-a"))), ("w1", cards_seen()), (NAME, RETIRED))
    again = folded(InventoryProjection(), inventory.log)
    assert rows_of(again) == rows_of(inventory.fold)

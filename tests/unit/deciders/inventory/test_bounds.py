"""A hostile agent invents cards: the inventory keeps so many of a node, and new ones only as fast as others leave."""

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.inventory.folds import AGENT_CARDS_MAX, CARD_KEPT_MIN
from gpuledger.events.device import Card
from gpuledger.events.node import CARDS_PER_NODE_MAX, NodeDevicesObserved, NodeObserved
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.device_reports import card, own_slot
from support.events import AGENT, GENERATION, event, message

KEPT_HOURS = CARD_KEPT_MIN.total_seconds() / 3600


class Inventory:
    """The inventory of a node whose agent reports cards."""

    def __init__(self, *, bounded: bool = True) -> None:
        self.fold = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
        self._number = 0
        self.fold.apply(message(event(NodeObserved(uid="u", nfd_version="0.17.0"), "n1", source="/watchers/nodes"), 1))
        if bounded:
            self.fold.apply(message(event(RuleEnforced(), Rule.BOUNDS, source="/services/sources"), 2))

    def report(self, *uuids: str, at: float = 0, delay_hours: float = 0) -> int:
        """Report cards, each in a slot of its own, recorded so many hours after the start.

        Returns how many decisions follow.
        """
        return self.report_cards([card(uuid, own_slot(uuid)) for uuid in uuids], at=at, delay_hours=delay_hours)

    def report_cards(self, found: list[Card], *, at: float = 0, delay_hours: float = 0) -> int:
        self._number += 1
        data = NodeDevicesObserved(cards=tuple(found))
        one = event(data, "n1", number=self._number, source=AGENT, at=at)
        recorded = message(one, self._number + 2)
        self.fold.apply(recorded._replace(recorded_ns=recorded.recorded_ns + int(delay_hours * 3_600_000_000_000)))
        return len(self.fold.take_decided())

    @property
    def cards(self) -> set[str]:
        """The cards that are GPUDevices."""
        return {row.uuid for row in self.fold.state.tables()["gpu_device"].rows.values()}


def cards(name: str, count: int = CARDS_PER_NODE_MAX) -> list[str]:
    return [f"{name}-{number:03}" for number in range(count)]


def test_invented_cards_beyond_the_bound_lead_to_no_device_and_no_decision() -> None:
    inventory = Inventory()
    for number, name in enumerate("abcdef"):
        decisions = inventory.report(*cards(name), at=number)
        assert (decisions == 0) == (number > 2), "the third makes all cards absent"
    assert inventory.cards == {*cards("a"), *cards("b")}
    assert len(inventory.cards) == AGENT_CARDS_MAX


def test_a_new_card_takes_the_place_of_one_that_has_been_absent_long_enough() -> None:
    inventory = Inventory()
    inventory.report(*cards("a"))
    inventory.report(*cards("b"), at=1)
    inventory.report(*cards("b")[1:], "new", at=KEPT_HOURS - 0.01)
    assert inventory.cards == {*cards("a"), *cards("b")}
    inventory.report(*cards("b")[1:], "new", at=KEPT_HOURS)
    assert inventory.cards == {*cards("a")[1:], *cards("b"), "new"}
    inventory.report(*cards("b")[2:], "new", "late", at=KEPT_HOURS - 1)
    assert inventory.cards == {*cards("a")[1:], *cards("b"), "new"}, "no card was absent for so long by then"


def test_cards_take_no_place_by_surveys_that_are_late_or_dated_long_before_their_recording() -> None:
    inventory = Inventory()
    inventory.report(*cards("a"), at=0, delay_hours=500)
    inventory.report(*cards("b"), at=KEPT_HOURS, delay_hours=500)
    for number, name in enumerate("cdef", 2):
        assert inventory.report(*cards("b")[1:], name, at=number * KEPT_HOURS, delay_hours=500) == 0 or number == 2
    assert inventory.cards == {*cards("a"), *cards("b")}
    inventory.report(*cards("b"), at=500, delay_hours=500)
    inventory.report(*cards("b")[1:], "late", at=499.5, delay_hours=500)
    assert inventory.cards == {*cards("a"), *cards("b")}
    inventory.report(*cards("b")[1:], "new", at=501, delay_hours=501)
    assert inventory.cards == {*cards("a")[1:], *cards("b"), "new"}


def test_cards_that_a_full_node_has_are_reported_on() -> None:
    inventory = Inventory()
    inventory.report(*cards("a"))
    inventory.report(*cards("b"), at=1)
    assert inventory.report(*cards("a"), at=2) > 0
    rows = inventory.fold.state.tables()["gpu_device"].rows.values()
    assert {row.uuid for row in rows if not row.missing} == {*cards("a")}


def test_before_the_rule_every_card_is_kept() -> None:
    inventory = Inventory(bounded=False)
    for number, name in enumerate("abc"):
        inventory.report(*cards(name), at=number)
    assert len(inventory.cards) == 3 * CARDS_PER_NODE_MAX


def in_same_slots(uuids: list[str]) -> list[Card]:
    return [card(uuid, f"0000:{place:02x}:00.0") for place, uuid in enumerate(uuids)]


def test_cards_that_take_the_slots_of_others_leave_so_many_devices_and_reports_as_slots() -> None:
    inventory = Inventory()
    for number, name in enumerate("abcdef"):
        inventory.report_cards(in_same_slots(cards(name)), at=number)
        assert len(inventory.cards) <= AGENT_CARDS_MAX
        assert len(inventory.fold.state.tables()["inventory_card_report"].rows) <= AGENT_CARDS_MAX
    assert len(inventory.fold.state.tables()["inventory_slot"].rows) == CARDS_PER_NODE_MAX


def test_invented_addresses_are_forgotten_beyond_the_bound() -> None:
    inventory = Inventory()
    for number, name in enumerate("abcdef"):
        inventory.report(*cards(name), at=number * KEPT_HOURS, delay_hours=number * KEPT_HOURS)
        assert len(inventory.fold.state.tables()["inventory_slot"].rows) <= AGENT_CARDS_MAX

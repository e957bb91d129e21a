"""Who has a card that the agents of two nodes report: who had it keeps it for as long as its agent reports it."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from gpuledger.deciders.inventory.projection import InventoryProjection
from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.inventory.facts import CLAIM
from gpuledger.domain.inventory.reports import REJECTIONS_MAX
from gpuledger.events.device import (
    DeviceDetected,
    DeviceErrorsObserved,
    DeviceFailed,
    DeviceHealthChanged,
    DeviceReportAccepted,
    DeviceReportRejected,
    DeviceWithdrawn,
)
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import NodeDevicesObserved, NodeGone, NodeObserved
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from gpuledger.tools.log_restore import with_recorded_time
from support.device_reports import AWAY, HOME, UUID, Log, card, own_slot, restarted
from support.events import GENERATION, START, folded, rows_of

OTHER = "GPU-other"
FAILED = DeviceFailed(kind="XID 79")
REPORTS = [
    FAILED,
    DeviceHealthChanged(healthy=False, kind="XID 79"),
    DeviceErrorsObserved(kind="XID 31", cause="application", first_at=START),
]


class Verdict(NamedTuple):
    """A rejection: the device, the type of the report, and where the device is."""

    device: str
    type: str
    located_on: str


def rejected(decided: Sequence[Decoded]) -> list[Verdict]:
    return [
        Verdict(one.subject, one.data.type, one.data.located_on)
        for one in decided
        if isinstance(one.data, DeviceReportRejected)
    ]


def accepted(decided: Sequence[Decoded]) -> bool:
    return [type(one.data) for one in decided] == [DeviceReportAccepted]


def two_nodes(version: int = 4) -> Log:
    log = Log(version=version)
    log.card_on("n1")
    log.card_on("n2", OTHER)
    return log


def cards_of(log: Log) -> dict[str, list[str]]:
    nodes = {row.node for row in log.state.device.rows.values()}
    return {node: sorted(row.card for row in log.state.device.where("node", node)) for node in nodes}


def claims_of(log: Log, node: str) -> list[str]:
    return [row.card for row in log.state.report.where("node", node) if row.reporter == CLAIM]


def moves(decided: Sequence[Decoded]) -> list[tuple[str, str]]:
    """The GPUDevices that appear and disappear, and on which node or for which."""
    found = []
    for one in decided:
        if isinstance(one.data, DeviceWithdrawn):
            found.append(("withdrawn", one.data.moved_to or ""))
        if isinstance(one.data, DeviceDetected):
            found.append(("detected", one.data.node))
    return found


APART = {"n1": [UUID], "n2": [OTHER]}


@pytest.mark.parametrize("at", [0, 0.5, 23.9])
def test_a_card_that_its_agent_still_reports_stays_where_it_is(at: float) -> None:
    log = two_nodes()
    decided = log.survey("n2", OTHER, UUID, at=at)
    assert (moves(decided), cards_of(log)) == ([], APART)
    assert rejected(decided) == [(UUID, NodeDevicesObserved.TYPE, "n1")]
    for number in range(3):
        assert rejected(log.survey("n2", OTHER, UUID, at=at + number)) == [], "it was recorded"
        assert moves(log.survey("n1", UUID, at=1 + number)) == []
    assert (moves(log.survey("n2", UUID, at=9)), cards_of(log)) == ([], APART)


@pytest.mark.parametrize("data", REPORTS)
@pytest.mark.parametrize("at", [-1000, -1, 1, 23])
def test_who_claims_a_card_is_not_heard_about_it_and_its_node_is(data: Payload, at: float) -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=23.9)
    assert rejected(log.add(AWAY, UUID, data, at=at)) == [(UUID, data.TYPE, "n1")]
    assert accepted(log.add(HOME, UUID, data, at=at))
    log.survey("n2", OTHER, at=23.95)
    assert rejected(log.add(AWAY, UUID, data, at=at)) == [(UUID, data.TYPE, "n1")], "a claim is no evidence later on"


def test_decisions_about_a_node_are_not_ahead_of_the_log_because_another_claims_its_card() -> None:
    log = two_nodes()
    log.delay_s = 3_600
    log.survey("n2", OTHER, UUID, "GPU-new", at=23.9)
    log.survey("n1", UUID, "GPU-3", at=1)
    assert {"GPU-3", "GPU-new"} < {row.card for row in log.state.device.rows.values()}
    assert max(row.decided_at for row in log.state.node.rows.values()) <= time_of_ns(log.messages[-1].recorded_ns)


def test_a_card_that_its_node_no_longer_reports_moves_to_who_claims_it() -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    assert moves(log.survey("n1", at=2)) == [("detected", "n2"), ("withdrawn", "n2")]
    assert cards_of(log) == {"n2": [UUID, OTHER]}
    assert accepted(log.add(AWAY, UUID, FAILED, at=3))
    assert rejected(log.survey("n1", UUID, at=4)) == [(UUID, NodeDevicesObserved.TYPE, "n2")], "now it is the other's"
    assert cards_of(log) == {"n2": [UUID, OTHER]}
    log.survey("n2", OTHER, UUID, at=5)
    assert not claims_of(log, "n2")


def test_a_card_that_moves_at_once_moves_as_before() -> None:
    log = two_nodes()
    log.survey("n1", at=1)
    assert moves(log.survey("n2", OTHER, UUID, at=2)) == [("withdrawn", "n2"), ("detected", "n2")]
    assert not claims_of(log, "n2")
    assert accepted(log.add(HOME, UUID, FAILED, at=-0.5)), "it was there when it happened"
    assert rejected(log.add(HOME, UUID, FAILED, at=3)) == [(UUID, FAILED.TYPE, "n2")]


def test_a_card_whose_node_is_gone_moves_to_who_claims_it() -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    decided = log.add("/watchers/nodes", "n1", NodeGone(), at=2)
    assert sorted(moves(decided)) == [("detected", "n2"), ("withdrawn", "n2")]
    log.add("/watchers/nodes", "n1", NodeObserved(uid="again", nfd_version="0.17.0"), at=3)
    assert rejected(log.survey("n1", UUID, at=4)) == [(UUID, NodeDevicesObserved.TYPE, "n2")]


def test_a_card_that_was_claimed_and_moved_is_missing_when_it_is_no_longer_reported() -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    log.survey("n1", at=2)
    assert moves(log.survey("n2", OTHER, at=3)) == []
    assert {row.card: row.missing for row in log.state.device.where("node", "n2")} == {UUID: True, OTHER: False}
    assert moves(log.survey("n1", UUID, at=4)) == [("withdrawn", "n1"), ("detected", "n1")]
    assert accepted(log.add(AWAY, UUID, FAILED, at=1)), "it was there when it happened"


def test_a_card_that_came_to_a_node_that_is_gone_since_moves_on() -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    log.survey("n1", at=2)
    log.survey("n1", UUID, at=3)
    assert ("detected", "n1") in moves(log.add("/watchers/nodes", "n2", NodeGone(), at=4))
    assert cards_of(log) == {"n1": [UUID]}


def test_a_card_that_comes_into_a_place_is_the_device_that_was_seen_there_without_a_uuid() -> None:
    log = Log(version=4)
    log.card_on("n1")
    log.card_on("n2", None)
    log.survey("n2", UUID, at=1)
    log.survey("n1", at=2)
    assert cards_of(log) == {"n2": [UUID]}


def test_an_agents_late_survey_takes_nothing() -> None:
    log = two_nodes()
    log.survey("n1", UUID, at=5)
    log.survey("n2", OTHER, at=5)
    assert (log.survey("n2", OTHER, UUID, at=1), cards_of(log)) == ([], APART)
    assert rejected(log.add(AWAY, UUID, FAILED, at=0.5)) == [(UUID, FAILED.TYPE, "n1")]


def test_a_missing_card_stays_when_who_claimed_it_misses_it_too() -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    log.survey("n2", OTHER, at=2)
    assert (moves(log.survey("n1", at=3)), cards_of(log)) == ([], APART)


def test_while_nothing_is_decided_who_reported_a_card_first_has_it() -> None:
    log = Log(version=4)
    log.add("/watchers/moduleconfig", "gpu-control-plane", SettingsChanged(enabled=False))
    log.card_on("n1")
    log.card_on("n2", UUID, at=1)
    log.add("/watchers/moduleconfig", "gpu-control-plane", SettingsChanged(), at=2)
    assert cards_of(log) == {"n1": [UUID]}


def test_the_id_of_a_card_without_a_uuid_is_its_own_nodes() -> None:
    log = Log(version=4)
    log.card_on("n1", None)
    place = "n1/0000:17:00.0"
    assert cards_of(log) == {"n1": [place]}
    log.card_on("n2", place, at=1)
    assert cards_of(log) == {"n1": [place], "n2": [f"n2/{own_slot(place)}"]}
    assert {row.uuid for row in log.state.device.rows.values()} == {None}


@pytest.mark.parametrize(
    ("place", "located_on"),
    [("n1/0000:17:00.0", "n1"), ("n9/x", "n9"), ("/x", "/x"), ("n22/x", "n22"), ("n" * 300 + "/x", "n" * 253)],
)
@pytest.mark.parametrize("data", REPORTS)
def test_an_agent_names_no_place_in_another_node(data: Payload, place: str, located_on: str) -> None:
    log = two_nodes()
    assert rejected(log.add(AWAY, place, data, at=1)) == [(place, data.TYPE, located_on)]
    assert accepted(log.add(AWAY, "n2/0000:17:00.0", data, at=1))


def test_rejected_claims_are_bounded_as_rejected_reports_are() -> None:
    log = two_nodes()
    decided = [
        one
        for number in range(REJECTIONS_MAX + 9)
        for uuids in ((OTHER, UUID), (OTHER,))
        for one in log.survey("n2", *uuids, at=number / 100)
    ]
    assert len(rejected(decided)) == REJECTIONS_MAX
    last = [one.data for one in decided if isinstance(one.data, DeviceReportRejected)][-1]
    assert last.last_of_hour


def test_before_the_fourth_version_who_reported_a_card_last_has_it() -> None:
    log = two_nodes(version=3)
    assert moves(log.survey("n2", OTHER, UUID, at=1)) == [("withdrawn", "n2"), ("detected", "n2")]
    log.survey("n1", UUID, at=2)
    assert cards_of(log) == APART
    log.add("/services/sources", Rule.DEVICE_REPORTS, RuleEnforced(version=4))
    assert moves(log.survey("n2", OTHER, UUID, at=3)) == []
    assert cards_of(log) == APART


def test_a_card_that_moves_back_is_where_its_node_claims_it_now() -> None:
    """The node's row from before it left is still there, with the address of that time."""
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    log.survey("n1", at=2)
    moved = card().model_copy(update={"pci_address": "0000:99:00.0"})
    log.add(HOME, "n1", NodeDevicesObserved(cards=(moved,)), at=3)
    assert cards_of(log) == {"n2": [UUID, OTHER]}
    log.inventory = restarted(log.inventory)
    log.survey("n2", OTHER, at=4)
    assert {row.card: row.pci_address for row in log.state.device.where("node", "n1")} == {UUID: "0000:99:00.0"}


@pytest.fixture
def disputed() -> Log:
    """A log in which a card is claimed, and then moves."""
    log = two_nodes()
    log.delay_s = 3_600
    for at, node, uuids in ((23.9, "n2", (OTHER, UUID)), (0.5, "n1", (UUID,)), (0.7, "n1", ()), (1.5, "n2", (UUID,))):
        log.survey(node, *uuids, at=at)
    return log


@pytest.mark.parametrize("read_back", [0, 8, 12])
def test_a_fold_of_the_log_and_one_on_rows_that_are_read_back_decide_the_same(disputed: Log, read_back: int) -> None:
    again = Fold(InventoryProjection(), GENERATION, numbering=Numbering("own", 1))
    again.apply_all(disputed.messages[:read_back])
    again = restarted(again)
    again.apply_all(disputed.messages[read_back:])
    assert (again.outstanding(), rows_of(again)) == ([], rows_of(disputed.inventory))


def test_a_restored_log_makes_the_same_rows(disputed: Log) -> None:
    restored = [
        one._replace(data=with_recorded_time(one), recorded_ns=one.recorded_ns + 30 * 24 * 3_600 * 1_000_000_000)
        for one in disputed.messages
    ]
    rows, before = rows_of(folded(InventoryProjection(), restored)), rows_of(disputed.inventory)
    hour_of_recording = "inventory_report_hour"
    assert rows | {hour_of_recording: {}} == before | {hour_of_recording: {}}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_device_that_is_identified_as_a_card_has_it_in_any_process(restarts: bool) -> None:
    log = Log()
    log.card_on("n2", None)
    log.card_on("n1", at=3)
    log.add("/watchers/nodes", "n1", NodeGone(), at=4)
    log.survey("n2", UUID, at=2)
    assert cards_of(log) == {"n2": [UUID]}
    if restarts:
        log.inventory = restarted(log.inventory)
    log.add("/watchers/nodes", "n1", NodeObserved(uid="again", nfd_version="0.17.0"), at=5)
    assert cards_of(log) == {"n2": [UUID]}
    assert rows_of(log.inventory)


@pytest.mark.parametrize("claims_first", [True, False])
def test_a_card_that_is_reported_without_its_uuid_while_its_driver_is_not_loaded_stays(claims_first: bool) -> None:
    log = two_nodes()
    if claims_first:
        log.survey("n2", OTHER, UUID, at=1)
    assert moves(log.survey("n1", None, at=2)) == []
    assert (moves(log.survey("n2", OTHER, UUID, at=3)), cards_of(log)) == ([], APART)
    assert accepted(log.add(HOME, UUID, FAILED, at=3.5))
    assert (log.survey("n1", UUID, at=4), cards_of(log)) == ([], APART)


def test_a_card_without_a_uuid_is_not_one_of_another_kind_nor_one_that_was_there_before() -> None:
    log = two_nodes()
    log.survey("n2", OTHER, UUID, at=1)
    other_kind = card(None).model_copy(update={"pci_device": "20b5"})
    log.add(HOME, "n1", NodeDevicesObserved(cards=(other_kind,)), at=2)
    assert UUID in cards_of(log)["n2"]
    log = two_nodes()
    log.add(HOME, "n1", NodeDevicesObserved(cards=(card("GPU-next"),)), at=1)
    log.survey("n1", None, at=2)
    log.survey("n2", OTHER, UUID, at=3)
    assert cards_of(log) == {"n1": ["GPU-next"], "n2": [UUID, OTHER]}


def test_a_card_without_a_uuid_claims_no_card_that_another_node_has() -> None:
    log = two_nodes()
    log.survey("n1", at=1)
    log.survey("n2", OTHER, UUID, at=2)
    log.survey("n1", None, at=3)
    log.survey("n2", OTHER, at=4)
    assert cards_of(log)["n2"] == [UUID, OTHER]


def test_a_survey_counts_although_the_clock_was_ahead_before_it_was_bounded() -> None:
    log = Log(version=3)
    log.delay_s = 3_600
    log.card_on("n1", at=9)
    log.add("/services/sources", Rule.DEVICE_REPORTS, RuleEnforced(version=4))
    log.delay_s = 3 * 3_600
    log.survey("n1", "GPU-next", at=11)
    assert {row.card: row.missing for row in log.state.device.rows.values()} == {UUID: True, "GPU-next": False}
    log.delay_s = 4 * 3_600
    log.survey("n1", UUID, at=3.5)
    assert {row.card: row.missing for row in log.state.device.rows.values()} == {UUID: False, "GPU-next": True}
    log.survey("n1", "GPU-next", at=3.2)
    assert not log.state.device.rows["n1-0000-17-00-0"].missing, "a late survey is still late"


def test_claims_beyond_the_limit_of_an_hour_are_none_until_a_later_survey_claims_them_again() -> None:
    log = two_nodes()
    uuids = [f"GPU-{number:03}" for number in range(REJECTIONS_MAX + 9)]
    cards = tuple(
        card(uuid).model_copy(update={"pci_address": f"0000:{place:02x}:00.0"}) for place, uuid in enumerate(uuids)
    )
    survey = NodeDevicesObserved(cards=cards)
    log.add(HOME, "n1", survey, at=1)
    assert [one.device for one in rejected(log.add(AWAY, "n2", survey, at=2))] == uuids[:REJECTIONS_MAX]
    assert sorted(claims_of(log, "n2")) == uuids[:REJECTIONS_MAX]
    log.delay_s += 3_600
    assert [one.device for one in rejected(log.add(AWAY, "n2", survey, at=3))] == uuids[REJECTIONS_MAX:]
    assert sorted(claims_of(log, "n2")) == uuids
    assert rejected(log.add(AWAY, "n2", survey, at=4)) == []


def test_what_is_claimed_while_nothing_is_decided_is_rejected_later() -> None:
    log = two_nodes()
    log.add("/watchers/moduleconfig", "gpu-control-plane", SettingsChanged(enabled=False))
    assert (log.survey("n2", OTHER, UUID, at=1), claims_of(log, "n2")) == ([], [])
    log.add("/watchers/moduleconfig", "gpu-control-plane", SettingsChanged(), at=2)
    assert rejected(log.survey("n2", OTHER, UUID, at=3)) == [(UUID, NodeDevicesObserved.TYPE, "n1")]

"""What an answer means, when a request comes again, and which events are selected."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.edge.export.decide import Answer, FailureReason, event_of, failure_of, is_selected, retry_after_s
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Undecoded, encode, parse
from gpuledger.events.errors import EventError
from gpuledger.events.node import NodeDevicesWanted
from gpuledger.runtime.export_settings import Selection
from support.events import event, message
from support.exporting import reports

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (200, None),
        (202, None),
        (299, None),
        (301, FailureReason.NO_ENDPOINT),
        (400, FailureReason.REFUSED),
        (401, FailureReason.UNAUTHORIZED),
        (403, FailureReason.UNAUTHORIZED),
        (404, FailureReason.NO_ENDPOINT),
        (408, FailureReason.OVERLOADED),
        (410, FailureReason.NO_ENDPOINT),
        (413, FailureReason.REFUSED),
        (415, FailureReason.REFUSED),
        (422, FailureReason.REFUSED),
        (429, FailureReason.OVERLOADED),
        (500, FailureReason.SERVER_ERROR),
        (503, FailureReason.SERVER_ERROR),
        (999, FailureReason.SERVER_ERROR),
    ],
)
def test_what_an_answer_means(status: int, reason: FailureReason | None) -> None:
    assert failure_of(Answer(status)) is reason


@pytest.mark.parametrize(
    ("header", "pause_s"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("120", 120.0),
        ("Fri, 27 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 27 Nov 2026 11:00:00 GMT", 0.0),
        ("Fri, 27 Nov 2026 11:00:00 -0000", None),
        ("9" * 5000, 999_999_999.0),
    ],
)
def test_when_to_come_again(header: str | None, pause_s: float | None) -> None:
    assert retry_after_s(header, NOW) == pause_s


def undecoded(**fields: Any) -> Undecoded:
    return parse(encode(reports([1], **fields)[0]))


@pytest.mark.parametrize(
    ("selection", "is_one"),
    [
        (Selection("node.health-reported"), True),
        (Selection("node.*"), True),
        (Selection("device.*"), False),
        (Selection("node.registered"), False),
        (Selection("node.health-reported", {"fatal": (True,)}), True),
        (Selection("node.health-reported", {"fatal": (1,)}), False),
        (Selection("node.health-reported", {"fatal": (True,), "monitor": ("other",)}), False),
        (Selection("node.health-reported", {"entities.type": ("PCI", "GPU")}), True),
        (Selection("node.health-reported", {"entities.type": ("PCI",)}), False),
        (Selection("node.health-reported", {"codes": ("48",)}), True),
        (Selection("node.health-reported", {"component": (None,)}), True),
        (Selection("node.health-reported", {"monitor.name": ("m",)}), False),
    ],
)
def test_which_events_are_selected(selection: Selection, is_one: bool) -> None:
    found = undecoded(codes=("79", "48"), entities=({"type": "GPU", "value": "0"},))
    assert is_selected(found, [selection]) is is_one
    assert is_selected(found, [])
    assert is_selected(found, [Selection("pool.*"), selection]) is is_one


def test_lists_within_lists_are_looked_into_as_deep_as_events_of_ours_could_have_them() -> None:
    for depth, is_one in ((3, True), (900, False)):
        deep: Any = "79"
        for _ in range(depth):
            deep = [deep]
        found = undecoded()._replace(data={"codes": deep})
        assert is_selected(found, [Selection("node.health-reported", {"codes": ("79",)})]) is is_one


def test_an_event_counts_where_its_source_may_record_it() -> None:
    good = reports([1])[0]
    assert event_of(message(good, 1)).id == good.id


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        ("ledger.node.n2.node.n1.health-reported", None),
        ("ledger.node.n1.node.n2.health-reported", None),
        (None, b"no event"),
    ],
)
def test_what_no_projection_folds_is_rejected(subject: str | None, data: bytes | None) -> None:
    with pytest.raises(EventError):
        event_of(message(reports([1])[0], 1, subject=subject, data=data))


def test_an_agent_that_speaks_of_another_node_or_decides_is_rejected() -> None:
    source = "/nodes/n1/agent"
    other = reports([1])[0]._replace(subject="n2")
    decided = event(NodeDevicesWanted(devices=()), "n1", source=source)
    for one in (other, decided):
        with pytest.raises(EventError):
            event_of(message(one, 1))
    assert event_of(message(event(DeviceFailed(kind="DBE"), "d1", source=source), 1)).source == source

"""Importing JSON events, one a line: which are taken, in which order, and which are rejected."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.events.device import DeviceFailed, DeviceInserted
from gpuledger.events.source import SourceCompleted
from support.imports import jsonl, write


def _line(event: str = "device.inserted", **attributes: object) -> str:
    document: dict[str, object] = {
        "type": f"io.gpuledger.{event}.v1",
        "subject": "g1",
        "time": "2025-01-01T00:00:00Z",
        "data": {"slot": "a"},
    }
    return json.dumps(document | attributes)


GOOD = _line()


async def test_events_are_recorded_in_the_order_of_their_times_as_the_imports_own(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.jsonl",
        _line("device.failed", time="2025-01-02T01:00:00+01:00", data={"kind": "XID 79", "more": 1}),
        "",
        _line(subject="g2", id="x", source="/services/pools", sourceseq=7, imported=False, causationid="y"),
        GOOD,
    )
    imported = await jsonl(path)
    assert imported.reasons() == []
    assert [(event.subject, event.data) for event in imported.events] == [
        ("g2", DeviceInserted(slot="a")),
        ("g1", DeviceInserted(slot="a")),
        ("g1", DeviceFailed(kind="XID 79")),
        ("/import/jsonl", SourceCompleted(events=3)),
    ]
    assert {(event.source, event.epoch, event.imported, event.causation_id) for event in imported.events} == {
        ("/import/jsonl", imported.result.epoch, True, None)
    }
    assert [event.number for event in imported.events] == [1, 2, 3, 4]
    assert imported.result.end == datetime(2025, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "the line is not JSON: "),
        ("[]", "the line is not a JSON object"),
        ('{"type": "t", "data": {}}', "subject and time missing"),
        (_line(time="soon"), "time 'soon' is not an RFC 3339 time with a zone"),
        (_line(time="2025-01-01T00:00:00"), "it has no zone"),
        (_line(subject=""), "subject must be text of 1 to 317 characters"),
        (_line(subject="€" * 200), "subject does not fit into a subject"),
        (_line(data=[]), "data must be a JSON object"),
        (_line(data={}), "The data does not fit io.gpuledger.device.inserted.v1: slot: Field required"),
        (_line(data={"slot": "a\0"}), "The event holds a NUL character"),
        (_line(type=7), "type must be text"),
        (_line("device.melted"), "This build does not know the event type io.gpuledger.device.melted.v1"),
        (_line(type="io.gpuledger.device.inserted.v2"), "This build knows io.gpuledger.device.inserted.v1, not"),
        (
            _line("source.gap-detected", data={"epoch": "e", "first": 1, "last": 1}),
            "is published by sources and cannot",
        ),
        (_line("source.completed", data={"events": 1}), "the import itself records"),
        (GOOD[:-1] + ', "data": ' + '{"slot":' * 300 + "1" + "}" * 301, "the line cannot be stored as JSON"),
    ],
)
async def test_a_bad_line(tmp_path: Path, line: str, reason: str) -> None:
    imported = await jsonl(write(tmp_path / "e.jsonl", GOOD, line, GOOD))
    [reject] = imported.rejects
    assert reject.line == 2
    assert reason in reject.reason
    assert reject.text == line
    assert imported.result.events == 3

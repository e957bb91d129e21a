"""The envelope: what it holds, and every way in which bytes can fail to be one."""

import itertools
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest

from gpuledger.events.envelope import (
    ATTRIBUTE_LENGTH_MAX,
    SUBJECT_LENGTH_MAX,
    Decoded,
    Event,
    decode,
    encode,
    nats_subject_of,
    parse,
    with_payload,
)
from gpuledger.events.errors import EventError, MalformedEventError, PayloadError, UnknownEventTypeError
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.slot import SlotDeclared

T0 = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
MISSING = object()


def event(**changes: Any) -> Decoded:
    first: Decoded = Event(
        id="id-1",
        source="/import/titan",
        type=SlotDeclared.TYPE,
        subject="c0-0.n1",
        time=T0,
        data=SlotDeclared(node="n1", index=3),
        epoch="e1",
        number=7,
    )
    return first._replace(**changes)


def document(**changes: object) -> dict[str, Any]:
    changed = orjson.loads(encode(event())) | changes
    return {name: value for name, value in changed.items() if value is not MISSING}


def test_an_event_is_structured_cloudevents_json() -> None:
    assert document() == {
        "specversion": "1.0",
        "id": "id-1",
        "source": "/import/titan",
        "type": "io.gpuledger.slot.declared.v1",
        "subject": "c0-0.n1",
        "time": "2024-05-06T07:08:09.123456Z",
        "datacontenttype": "application/json",
        "dataschema": "urn:gpuledger:schema:slot.declared.v1",
        "sourceepoch": "e1",
        "sourceseq": 7,
        "data": {"node": "n1", "index": 3},
    }


def test_optional_attributes_come_back() -> None:
    full = event(causation_id="c", correlation_id="k", recorded_at=T0 + timedelta(days=1), imported=True)
    assert decode(encode(full)) == full
    written = orjson.loads(encode(full))
    assert (written["causationid"], written["correlationid"], written["imported"]) == ("c", "k", True)
    assert written["recordedtime"] == "2024-05-07T07:08:09.123456Z"


def test_a_time_in_another_zone_is_the_same_instant() -> None:
    elsewhere = T0.astimezone(timezone(timedelta(hours=5, minutes=30)))
    read = decode(encode(event(time=elsewhere)))
    assert read.time == T0
    assert read.time.tzinfo is UTC


def test_the_subject_on_the_wire_follows_from_the_event() -> None:
    assert nats_subject_of(event()) == "ledger.svc.import.slot.c0-0%2En1.declared"


def test_unknown_attributes_and_fields_are_ignored() -> None:
    newer = document(traceparent="00-1", data={"node": "n1", "index": 3, "colour": "green"})
    assert decode(orjson.dumps(newer)) == event()


def test_the_payload_is_decoded_only_on_demand() -> None:
    raw = orjson.dumps(document(type="io.gpuledger.slot.vanished.v1", data={"x": 1}))
    parsed = parse(raw)
    assert parsed.data == {"x": 1}
    with pytest.raises(UnknownEventTypeError):
        with_payload(parsed)


@pytest.mark.parametrize("type_", ["slot.declared", "io.gpuledger.slot.declared", "io.gpuledger.slot.declared.v0", "x"])
def test_a_type_of_another_form_is_unknown(type_: str) -> None:
    with pytest.raises(UnknownEventTypeError):
        decode(orjson.dumps(document(type=type_)))


@pytest.mark.parametrize("data", [{}, {"node": ""}, {"node": 5}, {"node": "n", "index": -1}, {"node": "n" * 254}])
def test_data_that_does_not_fit_is_a_payload_error(data: object) -> None:
    with pytest.raises(PayloadError, match=r"io\.gpuledger\.slot\.declared\.v1"):
        decode(orjson.dumps(document(data=data)))


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"NaN",
        b"{} trailing",
        b"\xff\xfe",
        b'{"id": "\xc3"}',
        b'{"id": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_json_object_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedEventError):
        parse(raw)


@pytest.mark.parametrize(
    "name", ["specversion", "id", "source", "type", "subject", "time", "data", "sourceepoch", "sourceseq"]
)
def test_a_missing_attribute_is_malformed_and_named(name: str) -> None:
    with pytest.raises(MalformedEventError, match=name):
        parse(orjson.dumps(document(**{name: MISSING})))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("specversion", "0.3"),
        ("specversion", 1.0),
        *itertools.product(("id", "source", "type", "sourceepoch"), (None, "", 5, "x" * (ATTRIBUTE_LENGTH_MAX + 1))),
        ("subject", ""),
        ("subject", None),
        ("subject", "x" * (SUBJECT_LENGTH_MAX + 1)),
        ("time", None),
        ("time", 1_700_000_000),
        ("time", "yesterday"),
        ("time", "2024-05-06T07:08:09"),
        ("time", "2024-02-30T00:00:00Z"),
        ("time", "2024-05-06T24:00:01Z"),
        ("time", "0001-01-01T00:00:00Z"),
        ("time", "0001-01-01T00:00:00+14:00"),
        ("time", "9999-12-31T23:59:59-14:00"),
        ("time", {}),
        ("recordedtime", "yesterday"),
        ("recordedtime", False),
        ("sourceseq", 0),
        ("sourceseq", -1),
        ("sourceseq", 1.0),
        ("sourceseq", True),
        ("sourceseq", "1"),
        ("sourceseq", BIGINT_MAX + 1),
        ("data", None),
        ("data", []),
        ("data", "{}"),
        ("imported", None),
        ("imported", 1),
        ("imported", "true"),
        ("causationid", ""),
        ("causationid", 5),
        ("correlationid", ""),
        ("correlationid", "x" * (ATTRIBUTE_LENGTH_MAX + 1)),
    ],
)
def test_an_attribute_of_another_kind_is_malformed(name: str, value: object) -> None:
    with pytest.raises(MalformedEventError, match=name):
        parse(orjson.dumps(document(**{name: value})))


def test_a_number_beyond_every_integer_is_malformed() -> None:
    raw = orjson.dumps(document()).replace(b'"sourceseq":7', b'"sourceseq":' + b"9" * 400)
    with pytest.raises(EventError):
        parse(raw)


@pytest.mark.parametrize(
    "changes",
    [
        {"subject": "a\0b"},
        {"data": {"node": "n\0"}},
        {"data": {"node": "n", "labels": {"k\0": "v"}}},
        {"data": {"node": "n", "extra": [[{"deep": ["\0"]}]]}},
    ],
)
def test_a_nul_character_is_malformed_wherever_it_stands(changes: dict[str, object]) -> None:
    with pytest.raises(MalformedEventError, match="NUL"):
        parse(orjson.dumps(document(**changes)))


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert parse(orjson.dumps(document(data={"node": "\\u0000"}))).data == {"node": "\\u0000"}


def test_a_nul_below_any_nesting_is_malformed_and_no_recursion() -> None:
    nested = b"[" * 900 + b'"\\u0000"' + b"]" * 900
    raw = orjson.dumps(document()).replace(b'"index":3', b'"index":3,"x":' + nested)
    with pytest.raises(MalformedEventError, match="NUL"):
        parse(raw)

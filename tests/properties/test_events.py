"""What holds for every name, event and document."""

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import RFC_4122, UUID, uuid5

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from gpuledger.events.envelope import Decoded, Event, decode, encode, nats_subject_of, parse
from gpuledger.events.errors import EventError, MalformedEventError
from gpuledger.events.ids import derived_id, imported_id
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.events.slot import SlotDeclared
from gpuledger.events.subjects import escape, origin_of, parse_subject, unescape
from gpuledger.runtime.clock import random_id

ATTRIBUTES = (
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "data",
    "sourceepoch",
    "sourceseq",
    "causationid",
    "correlationid",
    "recordedtime",
    "imported",
)
TOKEN = re.compile(r"[A-Za-z0-9_%-]+")

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
names = st.text(characters, min_size=1, max_size=80)
segments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=80)
counts = st.integers(0, BIGINT_MAX)
times = st.datetimes(datetime(1, 1, 2), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants it naive
sources = st.one_of(
    segments.map("/nodes/{}/agent".format),
    st.tuples(st.sampled_from(["services", "watchers", "gateways", "operators", "import"]), segments).map(
        lambda pair: f"/{pair[0]}/{pair[1]}"
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(characters),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(characters), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def events(draw: st.DrawFn) -> Decoded:
    data = SlotDeclared(node=draw(names), index=draw(counts))
    return Event(
        id=draw(names),
        source=draw(sources),
        type=SlotDeclared.TYPE,
        subject=draw(names),
        time=draw(times),
        data=data,
        epoch=draw(names),
        number=draw(st.integers(1, BIGINT_MAX)),
        causation_id=draw(st.none() | names),
        correlation_id=draw(st.none() | names),
        recorded_at=draw(st.none() | times),
        imported=draw(st.booleans()),
    )


@given(names | st.just("\0"))
@example("*.>")
@example("%2E")
def test_escaping_is_reversible_and_leaves_one_token(name: str) -> None:
    token = escape(name)
    assert TOKEN.fullmatch(token)
    assert unescape(token) == name


@given(names, names)
def test_two_names_have_two_tokens(first: str, second: str) -> None:
    assert (escape(first) == escape(second)) == (first == second)


@given(st.text())
def test_any_text_is_one_name_s_token_or_refused(token: str) -> None:
    with suppress(EventError):
        assert escape(unescape(token)) == token


@given(events())
def test_an_event_comes_back_as_it_was(event: Decoded) -> None:
    assert decode(encode(event)) == event


@given(events())
def test_the_subject_names_the_origin_and_the_aggregate(event: Decoded) -> None:
    subject = parse_subject(nats_subject_of(event))
    assert subject.origin == origin_of(event.source)
    assert (subject.aggregate, subject.id, subject.event) == ("slot", event.subject, "declared")
    assert str(subject) == nats_subject_of(event)


@given(st.binary())
def test_any_bytes_are_an_event_or_malformed(raw: bytes) -> None:
    with suppress(MalformedEventError):
        parse(raw)


@given(json_values)
def test_any_json_is_an_event_or_malformed(value: object) -> None:
    with suppress(MalformedEventError):
        parse(orjson.dumps(value))


@given(events(), st.dictionaries(st.sampled_from(ATTRIBUTES), json_values, max_size=4))
def test_an_event_with_anything_in_its_attributes_is_an_event_or_an_event_error(
    event: Decoded, changes: dict[str, Any]
) -> None:
    with suppress(EventError):
        decode(orjson.dumps(orjson.loads(encode(event)) | changes))


@given(names, names, names)
def test_the_same_cause_gives_the_same_id(causation_id: str, event_type: str, subject: str) -> None:
    assert derived_id(causation_id, event_type, subject) == derived_id(causation_id, event_type, subject)
    assert derived_id(causation_id, event_type, subject) != derived_id(causation_id, event_type, subject + "'")


@given(names, names, names, st.integers(1, 10**9))
def test_ids_are_uuids_of_version_5(causation_id: str, event_type: str, subject: str, line: int) -> None:
    """Recorded logs have the ids that the standard library made of the same names."""
    derived = uuid5(UUID("5a3f7f0e-6d0c-5c1e-9f57-6f1d1c2b7a10"), f"{causation_id}\n{event_type}\n{subject}")
    assert derived_id(causation_id, event_type, subject) == str(derived)
    imported = uuid5(UUID("8c1b0f3a-2b5e-5d47-8d0e-3f6a9b4c2e21"), f"{causation_id}\n{line}\n{subject}")
    assert imported_id(causation_id, line, subject) == str(imported)


def test_ids_that_are_drawn_are_uuids_of_version_4() -> None:
    drawn = {random_id() for _ in range(100)}
    assert len(drawn) == 100
    assert all(str(UUID(one)) == one and (UUID(one).version, UUID(one).variant) == (4, RFC_4122) for one in drawn)


@given(names, st.integers(1, 10**9), names)
def test_two_lines_of_a_file_have_two_ids(digest: str, line: int, kind: str) -> None:
    assert imported_id(digest, line, kind) != imported_id(digest, line + 1, kind)

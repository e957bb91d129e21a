"""Messages come back from a file byte for byte, and the columns beside them are those of their events."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.events.device import DeviceFailed
from gpuledger.ledger.api import Message
from gpuledger.tools.archive import events_file
from gpuledger.tools.archive.events_file import EventsFile, messages_at, messages_in, row_of, rows_in
from support.events import event, log_of, message

NS_MAX = 4 * 10**18
subjects = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
contents = st.binary(max_size=60) | st.sampled_from(
    [log_of([event(DeviceFailed(kind="DBE"), "d1", number=number)])[0].data for number in (1, 2)]
)
logs = st.lists(st.tuples(subjects, contents, st.integers(0, NS_MAX)), max_size=12).map(
    lambda found: [Message(subject, data, at, ns) for at, (subject, data, ns) in enumerate(found, 1)]
)


def file_of(messages: list[Message], generation: int = 1) -> bytes:
    file = EventsFile(generation)
    for one in messages:
        file.add(one)
        if file.is_group_full:
            file.flush()
    return file.finish()


@given(logs)
def test_any_messages_come_back(messages: list[Message]) -> None:
    data = file_of(messages)
    assert [one for group in messages_in(data) for one in group] == messages
    assert [row for group in rows_in(data) for row in group] == [row_of(one, 1) for one in messages]


def test_row_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_file, "GROUP_ROWS_MAX", 3)
    messages = [Message("s", b"x", at, 0) for at in range(1, 9)]
    assert [len(group) for group in messages_in(file_of(messages))] == [3, 3, 2]
    monkeypatch.setattr(events_file, "GROUP_BYTES_MAX", 4)
    assert [len(group) for group in messages_in(file_of(messages))] == [2, 2, 2, 2]


def test_columns_are_those_of_the_event() -> None:
    failed = event(DeviceFailed(kind="DBE"), "d1", number=7)
    row = row_of(message(failed, 3)._replace(recorded_ns=1_700_000_000_123_456_789), 2)
    assert (row.generation, row.position, row.type, row.aggregate, row.event) == (
        2,
        3,
        "io.gpuledger.device.failed.v1",
        "device",
        "failed",
    )
    assert (row.subject, row.id, row.epoch, row.number) == ("d1", failed.id, failed.epoch, 7)
    assert row.recorded == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert row_of(Message("s", b"\xff", 1, 0), 1).type is None


@given(st.lists(st.integers(1, 20), unique=True).map(sorted), st.integers(1, 9))
def test_messages_by_their_places(places: list[int], rows_max: int) -> None:
    """Only the row groups that have one of them are read."""
    messages = [Message("s", b"%d" % at, at, at) for at in range(1, 21)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(events_file, "GROUP_ROWS_MAX", rows_max)
        data = file_of(messages)
    groups = list(messages_at(data, places))
    assert [one for group in groups for one in group] == [messages[at - 1] for at in places]
    assert len(groups) == len({(at - 1) // rows_max for at in places})


def test_messages_by_the_beginning_of_their_subject() -> None:
    messages = [Message(subject, b"x", at, 0) for at, subject in enumerate(("a.b", "b.a", "a.c"), 1)]
    (found,) = messages_in(file_of(messages), "a.")
    assert found == [messages[0], messages[2]]


@pytest.mark.parametrize("data", [b"", b"PAR1 nothing PAR1"])
def test_what_is_no_file_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no Parquet file"):
        list(messages_in(data))

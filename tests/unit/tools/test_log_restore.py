"""A restored event keeps the time of its first recording, by which folds judge the event's own time."""

from datetime import datetime, timedelta

import pytest

from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import encode, parse
from gpuledger.tools.log_restore import RECORDED_TIME_BYTES, with_recorded_time
from support.events import START, event, message

RECORDED_AT = START + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, RECORDED_AT),
        (RECORDED_AT - timedelta(days=9), RECORDED_AT - timedelta(days=9)),
        (RECORDED_AT, RECORDED_AT),
        (RECORDED_AT + timedelta(days=900), RECORDED_AT),
    ],
)
def test_a_time_of_recording_that_had_not_come_yet_does_not_survive(before: datetime | None, after: datetime) -> None:
    """Else an event of the future that was rejected would count once its log is restored."""
    recorded = event(DeviceFailed(kind="DBE"), "d")._replace(recorded_at=before)
    restored = parse(with_recorded_time(message(recorded, 5, data=encode(recorded))))
    assert restored == parse(encode(recorded))._replace(recorded_at=after)


def test_what_is_no_event_stays_as_it_is() -> None:
    garbage = message(event(DeviceFailed(kind="DBE"), "d"), 5, data=b"{")
    assert with_recorded_time(garbage) == b"{"


@pytest.mark.parametrize("depth", [1, 300, 1000], ids="{} deep".format)
@pytest.mark.parametrize("end", ["", " \r\n\t"], ids=["", "space at the end"])
@pytest.mark.parametrize("other", ["", ',"recordedtime":null', ',"recordedtime":"2999-01-01T00:00:00Z"'])
def test_what_can_be_read_is_restored_even_if_it_cannot_be_written_again(depth: int, end: str, other: str) -> None:
    recorded = event(DeviceFailed(kind="DBE"), "d")
    before = encode(recorded).removesuffix(b"}") + f',"x":{"[" * depth}{"]" * depth}{other}}}{end}'.encode()
    restored = with_recorded_time(message(recorded, 5, data=before))
    assert parse(restored) == parse(encode(recorded))._replace(recorded_at=RECORDED_AT)
    assert restored.startswith(before.rstrip().removesuffix(b"}")), "its own bytes stay as they were"
    assert len(restored) <= len(before) + RECORDED_TIME_BYTES


def test_an_event_of_ours_is_restored_as_it_would_be_written() -> None:
    recorded = event(DeviceFailed(kind="DBE"), "d")
    restored = with_recorded_time(message(recorded, 5, data=encode(recorded)))
    assert restored == encode(recorded._replace(recorded_at=RECORDED_AT))

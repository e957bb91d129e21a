"""What hostile sources write into names and times does not stay in memory once its event is read."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest

from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import ATTRIBUTE_LENGTH_MAX, encode, parse
from gpuledger.events.errors import SubjectError
from gpuledger.events.publisher import publisher_of
from gpuledger.events.publishing import source_kind
from gpuledger.events.subjects import origin_of, subject_of
from support.events import AGENT, START, event

TEXTS = 200
KEPT_MAX = 100_000
"""How many bytes may stay, whatever the length of the texts."""


def kept(read: Callable[[int], object]) -> int:
    """How many bytes stay in memory after so many texts were read."""
    read(-1)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(TEXTS):
            read(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def source(number: int) -> str:
    """A source as long as an event may write it, in characters of four bytes."""
    return f"/nodes/{number:04}/agent".replace("/agent", "\U0001f4a5" * (ATTRIBUTE_LENGTH_MAX - 17) + "/agent")


@pytest.mark.parametrize("of_source", [origin_of, source_kind], ids=lambda one: one.__name__)
def test_a_source_that_is_too_long_is_not_kept(of_source: Callable[[str], object]) -> None:
    assert kept(lambda number: of_source(source(number))) < KEPT_MAX


@pytest.mark.parametrize("read", [publisher_of, lambda one: subject_of(one, "device", "d", "failed")])
def test_a_source_that_is_refused_is_not_kept(read: Callable[[str], object]) -> None:
    def refused(number: int) -> None:
        with pytest.raises(SubjectError):
            read(source(number))

    assert kept(refused) < KEPT_MAX


def test_a_time_with_any_number_of_digits_is_read_and_not_kept() -> None:
    raw = encode(event(DeviceFailed(kind="DBE"), "d", source=AGENT)._replace(recorded_at=START))
    written = b'"recordedtime":"2026-01-01T00:00:00'
    assert written in raw

    def read(number: int) -> None:
        digits = b"." + f"{number:06}".replace("-", "0").encode() + b"0" * 10_000
        assert parse(raw.replace(written, written + digits)).recorded_at is not None

    assert kept(read) < KEPT_MAX

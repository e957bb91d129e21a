"""When a generation is closed by itself."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from gpuledger.tools.archive.due import ClosingPolicy, is_due, parse_policy
from gpuledger.tools.errors import RequestError

GIB = 1 << 30
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("month", ClosingPolicy(True, None)),
        ("50GiB", ClosingPolicy(False, 50 * GIB)),
        ("month, 1GiB", ClosingPolicy(True, GIB)),
    ],
)
def test_a_policy_is_a_month_a_size_or_both(text: str, policy: ClosingPolicy) -> None:
    assert parse_policy(text) == policy


@pytest.mark.parametrize("text", ["", "never", "50", "0GiB", "50GB", "month,", "-1GiB"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="does not say when to close"):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "began", "size", "due"),
    [
        ("month", NOW, 10**15, False),
        ("month", NOW - timedelta(days=26), 0, True),
        ("month", datetime(2026, 12, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))), 0, False),
        ("month", datetime(2025, 12, 30, tzinfo=UTC), 0, True),
        ("1GiB", NOW - timedelta(days=400), GIB - 1, False),
        ("1GiB", NOW, GIB, True),
        ("month,1GiB", NOW, GIB, True),
        ("month,1GiB", NOW - timedelta(days=30), 0, True),
        ("month,1GiB", NOW, 0, False),
    ],
)
def test_what_began_in_an_earlier_month_or_is_large_enough_is_due(
    text: str, began: datetime, size: int, *, due: bool
) -> None:
    assert is_due(parse_policy(text), began, size, NOW) is due

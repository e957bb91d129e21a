"""Which codes a healthy report clears, and what has no room."""

from collections.abc import Collection

import pytest

from gpuledger.domain.health.codes import (
    NO_CODE,
    clears,
    codes_of_text,
    codes_text,
    is_cleared,
    reported_codes,
    with_cleared,
    with_reported,
    without_cleared,
)
from gpuledger.events.health import CODES_MAX
from support.events import hour


@pytest.mark.parametrize(
    ("cleared", "code", "is_over"),
    [
        ((), "79", True),
        ((), NO_CODE, True),
        (("79",), "79", True),
        (("79", "94"), "94", True),
        (("79",), "94", False),
        (("79",), NO_CODE, False),
    ],
)
def test_a_healthy_report_clears_the_codes_that_it_names_or_all(
    cleared: Collection[str], code: str, is_over: bool
) -> None:
    assert clears(cleared, code) == is_over
    after = without_cleared({code: hour(1)}, cleared, hour(2))
    assert (not after) == is_over
    assert is_cleared(with_cleared({}, cleared, hour(2)), code, hour(1)) == is_over


def test_what_was_reported_later_than_a_healthy_report_stands() -> None:
    standing = {"79": hour(1), "94": hour(3)}
    assert without_cleared(standing, (), hour(2)) == {"94": hour(3)}
    assert without_cleared(standing, ("94",), hour(2)) == standing
    assert not is_cleared({NO_CODE: hour(2)}, "94", hour(3))
    assert without_cleared(standing, (), hour(3)) == {}, "at one time the healthy report, recorded later, holds"


def test_codes_that_do_not_fit_stand_without_their_code_until_all_are_cleared() -> None:
    codes = [f"c{number:03}" for number in range(CODES_MAX + 2)]
    standing = with_reported({}, codes, hour(1))
    assert set(standing) == {*codes[:CODES_MAX], NO_CODE}
    assert without_cleared(standing, codes, hour(2)) == {NO_CODE: hour(1)}
    assert without_cleared(standing, (), hour(2)) == {}


def test_of_too_many_codes_that_were_cleared_the_earliest_are_forgotten() -> None:
    cleared = with_cleared({"first": hour(1)}, [f"c{number}" for number in range(CODES_MAX)], hour(2))
    assert (len(cleared), "first" in cleared) == (CODES_MAX, False)


def test_times_are_those_of_the_latest_report_and_rows_keep_them() -> None:
    standing = with_reported({"79": hour(3)}, reported_codes(["79", "94"]), hour(2))
    assert standing == {"79": hour(3), "94": hour(2)}
    assert codes_of_text(codes_text(standing)) == standing
    assert (codes_text({}), dict(codes_of_text(""))) == ("", {})
    assert reported_codes([]) == {NO_CODE}

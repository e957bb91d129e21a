"""How many pods our Deployments have, by the setting, the chart's number and the present one."""

from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.statuswriter.desired.replicas import (
    Availability,
    AvailabilitySetting,
    given_replicas,
    scaled_to,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = (None, True, False)
NUMBERS = st.integers(0, 6)


def setting(*values: bool | None) -> AvailabilitySetting | None:
    """The setting after these values, an hour apart."""
    state = Availability()
    for hour, value in enumerate(values):
        state.observe(START + timedelta(hours=hour), value)
    return state.latest


@pytest.mark.parametrize(
    ("values", "chart", "present", "number"),
    [
        ((), 2, 1, None),
        ((None,), 2, 3, None),
        ((True,), 2, 2, None),
        ((True,), 1, 1, 2),
        ((True,), 3, 1, 3),
        ((True,), 2, 5, None),
        ((False,), 2, 2, 1),
        ((False,), 2, 1, None),
        ((False, True), 2, 1, 2),
        ((False, None), 2, 1, 2),
        ((False, None), 2, 3, None),
        ((True, None), 1, 2, 1),
        ((True, None), 1, 3, None),
        ((True, None, None), 3, 3, None),
        ((True,), 2, 0, None),
        ((False,), 0, 0, None),
        ((False, None), 0, 1, None),
    ],
)
def test_the_setting_decides_and_otherwise_the_chart_where_it_was_set_before(
    values: tuple[bool | None, ...], chart: int, present: int, number: int | None
) -> None:
    assert scaled_to(setting(*values), given=chart, present=present) == number


@given(st.lists(st.sampled_from(SETTINGS), max_size=4), NUMBERS, NUMBERS)
def test_one_write_is_enough_and_nobody_is_started_or_stopped(
    values: list[bool | None], chart: int, present: int
) -> None:
    latest = setting(*values)
    number = scaled_to(latest, given=chart, present=present)
    if number is None:
        return
    assert present > 0
    assert number > 0
    assert scaled_to(latest, given=chart, present=number) is None


@given(NUMBERS, st.integers(1, 6))
def test_what_is_running_has_what_the_setting_says(chart: int, present: int) -> None:
    assert (scaled_to(setting(True), given=chart, present=present) or present) >= max(2, chart)
    assert (scaled_to(setting(False), given=chart, present=present) or present) == 1


@pytest.mark.parametrize("values", [(True, None), (None, False, None), (True, False)])
def test_the_order_of_recording_does_not_matter(values: tuple[bool | None, ...]) -> None:
    for order in permutations(enumerate(values)):
        state = Availability()
        for hour, value in order:
            state.observe(START + timedelta(hours=hour), value)
        found, expected = state.latest, setting(*values)
        assert found is not None
        assert expected is not None
        assert found == expected


@pytest.mark.parametrize(("text", "number"), [("3", 3), ("0", 0), ("-1", None), ("two", None), ("", None), (2, None)])
def test_an_annotation_that_is_no_number_gives_none(text: object, number: int | None) -> None:
    assert given_replicas({"a": text}, "a") == number
    assert given_replicas({}, "a") is None

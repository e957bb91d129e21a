"""Charts: the ticks of their axes, a terminal's output to the letter, and an SVG parsed back into numbers."""

import itertools
import os
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.cli.commands.report import CHARTS, RANGE_MIN, chart_of
from gpuledger.cli.errors import CliError
from gpuledger.cli.render.plot import (
    COUNT_TICKS_MAX,
    TIME_TICKS_MAX,
    Chart,
    Point,
    Series,
    count_ticks,
    time_label,
    time_ticks,
)
from gpuledger.cli.render.plot_svg import svg
from gpuledger.cli.render.plot_terminal import WIDTH_MIN, coloured, terminal_lines
from support.events import hour
from support.paths import ROOT

NOW = hour(40)

ROWS: list[dict[str, Any]] = [
    {"valid_from": hour(0), "valid_to": hour(3), "total": 8, "allocated": 0, "available": 8},
    {"valid_from": hour(3), "valid_to": hour(9), "total": 8, "allocated": 4, "available": 4},
    {"valid_from": hour(9), "valid_to": hour(12), "total": 8, "allocated": 8, "available": 0},
    {"valid_from": hour(12), "valid_to": hour(20), "total": 8, "allocated": 2, "available": 6},
    {"valid_from": hour(24), "valid_to": None, "total": 6, "allocated": 5, "available": 1},
]
POOL: dict[str, Any] = {"driver": "gpu.example.com", "pool": "n1", "node": "n1"}

PICTURE = ROOT / "tests" / "golden" / "plot.txt"
"""After an intended change: `GPULEDGER_UPDATE_GOLDEN=1 make test`, and review it."""


def test_a_terminal_shows_every_step() -> None:
    drawn = "".join(f"{line}\n" for line in terminal_lines(_chart(), 72))
    if os.environ.get("GPULEDGER_UPDATE_GOLDEN"):
        PICTURE.write_text(drawn)
    assert drawn == PICTURE.read_text()


def test_a_chart_is_never_wider_than_the_terminal() -> None:
    for width in (1, WIDTH_MIN, 79, 80, 200, 10_000):
        assert max(map(len, list(terminal_lines(_chart(), width))[1:])) <= max(width, WIDTH_MIN)


def test_colours_change_nothing_but_colours() -> None:
    painted = "\n".join(terminal_lines(_chart(), 60, coloured))
    bare = "\n".join(terminal_lines(_chart(), 60))
    for code in ("\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[0m"):
        assert code in painted
        painted = painted.replace(code, "")
    assert painted == bare


def test_a_number_that_was_there_for_a_moment_is_drawn() -> None:
    points = (Point(hour(0), 1), Point(hour(5) + timedelta(seconds=1), 4), Point(hour(5) + timedelta(seconds=2), 1))
    lines = list(terminal_lines(Chart("short", hour(0), hour(100), (Series("one", points),)), 60))
    assert lines[1].count("=") == 1


def test_an_svg_has_the_numbers_of_the_rows() -> None:
    root = fromstring(svg(_chart()))
    for name in ("total", "allocated", "available"):
        drawn = _drawn(root, name)
        assert {count for _, _, count in drawn} == {row[name] for row in ROWS}
        for at in (number / 2 for number in range(1, 80, 2)):
            expected = [row[name] for row in ROWS if row["valid_from"] < hour(at) < (row["valid_to"] or NOW)]
            assert [count for begins, ends, count in drawn if begins < at < ends] == expected, (name, at)


def test_an_svg_has_axes_with_numbers_and_times() -> None:
    root = fromstring(svg(_chart()))
    assert _texts(root, "count") == ["0", "2", "4", "6", "8"]
    assert _texts(root, "time") == ["00:00", "12:00", "00:00", "12:00"]
    assert _texts(root, "legend") == ["total", "allocated", "available"]
    assert _texts(root, "range") == ["2026-01-01T00:00:00Z to 2026-01-02T16:00:00Z, UTC"]
    ticks = [float(line.attrib["x1"]) for line in _of_class(root, "tick")]
    assert [round(hours, 2) for hours in map(_hours_of(root), ticks)] == [0, 12, 24, 36]


def test_names_are_only_text() -> None:
    title = '<script>&"\x1b[31m\n'
    chart = Chart(title, hour(0), hour(1), (Series('a"b<c', (Point(hour(0), 1),)),))
    root = fromstring(svg(chart))
    assert _texts(root, "title") == ['<script>&"\\x1b[31m\\n']
    assert "\x1b" not in "\n".join(terminal_lines(chart, 60))


def test_the_axis_of_a_pool_that_has_just_begun() -> None:
    chart = chart_of("availability", [POOL | ROWS[-1]], hour(24))
    assert chart.ends - chart.begins == RANGE_MIN
    assert fromstring(svg(chart)) is not None
    assert list(terminal_lines(chart, 60))


def test_rows_of_several_pools_are_not_one_chart() -> None:
    with pytest.raises(CliError, match=r"--pool gpu\.example\.com/n1"):
        chart_of("availability", [POOL | ROWS[0], POOL | {"pool": "n2"} | ROWS[0]], NOW)
    with pytest.raises(CliError, match="--node n1"):
        chart_of("availability", [POOL | {"node": None} | ROWS[0], POOL | ROWS[0]], NOW)


def test_reports_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(CliError, match="has no time axis"):
        chart_of("fleet", [{}], NOW)
    for report in CHARTS:
        with pytest.raises(CliError, match="nothing to draw"):
            chart_of(report, [], NOW)


def test_the_fleet_by_day() -> None:
    rows = [{"day": date(2024, 1, day), "in_service": count} for day, count in ((1, 3), (2, 5), (3, 4))]
    chart = chart_of("fleet-by-day", rows, NOW)
    assert (chart.begins, chart.ends) == (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 4, tzinfo=UTC))
    assert [chart.series[0].at(datetime(2024, 1, day, 12, tzinfo=UTC)) for day in (1, 2, 3)] == [3, 5, 4]


@given(st.integers(1, 10**12))
def test_ticks_of_numbers_reach_the_top_and_not_far_beyond(top: int) -> None:
    ticks = count_ticks(top)
    assert ticks[0] == 0
    assert ticks[-2] < top <= ticks[-1]
    assert len(ticks) <= COUNT_TICKS_MAX + 1
    assert len({after - before for before, after in itertools.pairwise(ticks)}) == 1


@given(
    st.floats(-10_000, 1_000_000),
    st.timedeltas(timedelta(seconds=1), timedelta(days=40_000)),
)
def test_ticks_of_times_lie_within_and_evenly_apart(after_start: float, lasts: timedelta) -> None:
    begins = hour(after_start)
    ticks = time_ticks(begins, begins + lasts)
    assert all(begins <= tick <= begins + lasts for tick in ticks)
    assert len(ticks) <= TIME_TICKS_MAX + 1
    assert len({after - before for before, after in itertools.pairwise(ticks)}) <= 1


@pytest.mark.parametrize(
    ("lasts", "labels"),
    [
        (timedelta(seconds=20), ["00:00:00", "00:00:05", "00:00:10", "00:00:15", "00:00:20"]),
        (timedelta(hours=1), ["00:00", "00:15", "00:30", "00:45", "01:00"]),
        (timedelta(days=4), ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04", "2024-01-05"]),
        (timedelta(days=15), ["2024-01-01", "2024-01-08", "2024-01-15"]),
    ],
)
def test_labels_are_as_fine_as_the_ticks(lasts: timedelta, labels: list[str]) -> None:
    begins = datetime(2024, 1, 1, tzinfo=UTC)
    ticks = time_ticks(begins, begins + lasts)
    assert [time_label(tick, ticks) for tick in ticks] == labels


def _chart() -> Chart:
    return chart_of("availability", [POOL | row for row in ROWS], NOW)


def _drawn(root: Element, name: str) -> list[tuple[float, float, int]]:
    """The level parts of a line: from which hour to which, and the number; read off the axes."""
    hours_of, count_of = _hours_of(root), _count_of(root)
    found: list[tuple[float, float, int]] = []
    for line in _of_class(root, name):
        corners = [tuple(map(float, corner.split(","))) for corner in line.attrib["points"].split()]
        for (x1, y1), (x2, y2) in itertools.pairwise(corners):
            assert x1 == x2 or y1 == y2
            if y1 == y2:
                found.append((round(hours_of(x1), 2), round(hours_of(x2), 2), count_of(y1)))
    return found


def _hours_of(root: Element) -> Callable[[float], float]:
    """What the horizontal axis stands for, whose lines go from the chart's beginning to its end."""
    grid = _of_class(root, "grid")[0]
    left, right = float(grid.attrib["x1"]), float(grid.attrib["x2"])
    return lambda x: (x - left) / (right - left) * 40


def _count_of(root: Element) -> Callable[[float], int]:
    lines = [float(line.attrib["y1"]) for line in _of_class(root, "grid")]
    numbers = [int(text) for text in _texts(root, "count")]
    return lambda y: round((y - lines[0]) / (lines[-1] - lines[0]) * numbers[-1])


def _texts(root: Element, kind: str) -> list[str]:
    return [element.text or "" for element in _of_class(root, kind)]


def _of_class(root: Element, kind: str) -> list[Element]:
    return [element for element in root.iter() if element.get("class") == kind]

"""A chart in a terminal: steps of plain characters, which every font and every pager has."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from gpuledger.cli.errors import visible
from gpuledger.cli.render.plot import Chart, Series, count_ticks, time_label, time_ticks
from gpuledger.cli.times import format_time

WIDTH_MIN: Final = 60
WIDTH_MAX: Final = 200
LINES_OF_STEPS: Final = 16
"""The most lines that the steps themselves take."""

GLYPHS: Final = "=#o+x"
SEVERAL: Final = "*"
EMPTY: Final = " "
COLOURS: Final = ("36", "33", "32", "35", "34")
_TICK_ROOM_CHARS: Final = 14

Paint = Callable[[str, str], str]
"""Gives text a colour, if the terminal has colours."""

Canvas = list[list[str]]


def plain(text: str, _colour: str) -> str:
    """The text as it is."""
    return text


def coloured(text: str, colour: str) -> str:
    """The text in a colour."""
    return f"\x1b[{colour}m{text}\x1b[0m"


def terminal_lines(chart: Chart, width: int, paint: Paint = plain) -> Iterator[str]:
    """The lines of a chart, the title first; the others fit a terminal of that width, or of `WIDTH_MIN`."""
    width = max(WIDTH_MIN, min(width, WIDTH_MAX))
    counts = count_ticks(chart.top)
    gutter = len(str(counts[-1]))
    canvas = _canvas(chart, counts, width - gutter - 2)
    labels = _labels(counts, len(canvas))
    yield visible(chart.title)
    for row in reversed(range(len(canvas))):
        steps = "".join(_painted(canvas[row], paint)).rstrip(EMPTY)
        yield f"{labels.get(row, ''):>{gutter}} |{steps}".rstrip(EMPTY)
    yield from _time_axis(chart, gutter + 2, width)
    yield f"{format_time(chart.begins)} to {format_time(chart.ends)}, UTC"
    yield "   ".join(_legend(chart.series, paint))


def _canvas(chart: Chart, counts: Sequence[int], columns: int) -> Canvas:
    """Characters by line, the lowest first, and column."""
    intervals = len(counts) - 1
    lines = intervals * max(1, (LINES_OF_STEPS - 1) // intervals) + 1
    canvas = [[EMPTY] * columns for _ in range(lines)]
    for glyph, one in zip(GLYPHS, chart.series, strict=False):
        for column, (low, high) in _ranges(chart, one, columns):
            for line in range(_line(low, counts, lines), _line(high, counts, lines) + 1):
                canvas[line][column] = glyph if canvas[line][column] == EMPTY else SEVERAL
    return canvas


def _ranges(chart: Chart, series: Series, columns: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """For each column the least and the largest number within it; a step at its beginning comes from the one before."""
    before: list[int] = []
    times = [chart.time_at(column / columns) for column in range(columns + 1)]
    for column in range(columns):
        counts = series.between(times[column], times[column + 1])
        if counts:
            yield column, (min(counts + before), max(counts + before))
        before = counts[-1:]


def _line(count: int, counts: Sequence[int], lines: int) -> int:
    return round(count * (lines - 1) / counts[-1])


def _labels(counts: Sequence[int], lines: int) -> dict[int, str]:
    return {_line(count, counts, lines): str(count) for count in counts}


def _painted(characters: Sequence[str], paint: Paint) -> Iterator[str]:
    for glyph, run in groupby(characters):
        text = "".join(run)
        yield paint(text, COLOURS[GLYPHS.index(glyph)]) if glyph in GLYPHS else text


def _time_axis(chart: Chart, left: int, width: int) -> Iterator[str]:
    """The axis with its ticks, and beneath it what they stand for, as far as there is room."""
    columns = width - left
    ticks = time_ticks(chart.begins, chart.ends, max(1, columns // _TICK_ROOM_CHARS))
    axis, labels = ["-"] * columns, ""
    for tick in ticks:
        column = min(columns - 1, int(chart.share_of(tick) * columns))
        axis[column] = "+"
        label = time_label(tick, ticks)
        begins = min(max(0, left + column - len(label) // 2), width - len(label))
        if not labels or begins > len(labels):
            labels = labels.ljust(begins) + label
    yield f"{'+':>{left}}{''.join(axis)}"
    yield labels


def _legend(series: Sequence[Series], paint: Paint) -> Iterator[str]:
    for glyph, colour, one in zip(GLYPHS, COLOURS, series, strict=False):
        yield f"{paint(glyph, colour)} {one.name}"
    if len(series) > 1:
        yield f"{SEVERAL} several at once"

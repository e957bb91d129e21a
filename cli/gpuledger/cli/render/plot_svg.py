"""A chart as SVG: one self-contained file with axes, step lines and a legend, for pages and mails."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from typing import Final, NamedTuple

from gpuledger.cli.errors import visible
from gpuledger.cli.render.plot import Chart, Point, Series, count_ticks, time_label, time_ticks
from gpuledger.cli.times import format_time

WIDTH: Final = 960
LEGEND_WIDTH: Final = 130
HEIGHT: Final = 400
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 40, 72
"""Room around the steps: for the numbers, the last time, the title, and times with the legend."""

FONT: Final = 'font-family="sans-serif" font-size="12"'
STYLES: Final = (
    ("#4c566a", "none"),
    ("#c2570c", "8 3"),
    ("#15803d", "3 3"),
    ("#7e22ce", "10 2 2 2"),
    ("#1d4ed8", "1 3"),
)
"""Colour and dashes of each line; the dashes tell lines apart without colours."""


class Scale(NamedTuple):
    """Where times and numbers are in the picture."""

    chart: Chart
    top: int

    def x(self, time: datetime) -> float:
        """From the left."""
        return LEFT + self.chart.share_of(time) * (WIDTH - LEFT - RIGHT)

    def y(self, count: int) -> float:
        """From above."""
        return HEIGHT - BOTTOM - count / self.top * (HEIGHT - TOP - BOTTOM)


def svg(chart: Chart) -> str:
    """The whole file."""
    counts = count_ticks(chart.top)
    scale = Scale(chart, counts[-1])
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" {FONT} fill="none">',
            f"<title>{_text(chart.title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
            _label("title", LEFT, TOP - 16, "start", chart.title),
            *_count_axis(scale, counts),
            *_time_axis(scale),
            *(line for number, one in enumerate(chart.series) for line in _series(scale, one, number)),
            "</svg>\n",
        ]
    )


def _count_axis(scale: Scale, counts: Sequence[int]) -> Iterator[str]:
    for count in counts:
        y = scale.y(count)
        yield _line("grid", (LEFT, y), (WIDTH - RIGHT, y), "#d8dee9" if count else "#4c566a")
        yield _label("count", LEFT - 8, y + 4, "end", str(count))


def _time_axis(scale: Scale) -> Iterator[str]:
    chart, bottom = scale.chart, HEIGHT - BOTTOM
    ticks = time_ticks(chart.begins, chart.ends)
    for tick in ticks:
        x = scale.x(tick)
        yield _line("tick", (x, bottom), (x, bottom + 6), "#4c566a")
        yield _label("time", x, bottom + 20, "middle", time_label(tick, ticks))
    span = f"{format_time(chart.begins)} to {format_time(chart.ends)}, UTC"
    yield _label("range", WIDTH - RIGHT, HEIGHT - 16, "end", span)


def _series(scale: Scale, series: Series, number: int) -> Iterator[str]:
    colour, dashes = STYLES[number % len(STYLES)]
    for run in _runs(scale, series):
        points = " ".join(f"{x:.3f},{y:.3f}" for x, y in run)
        yield (
            f'<polyline class="{_text(series.name)}" points="{points}" '
            f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
    x = LEFT + number * LEGEND_WIDTH
    yield (
        f'<line x1="{x}" y1="{HEIGHT - 20}" x2="{x + 28}" y2="{HEIGHT - 20}" '
        f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
    )
    yield _label("legend", x + 34, HEIGHT - 16, "start", series.name)


def _runs(scale: Scale, series: Series) -> Iterator[list[tuple[float, float]]]:
    """The corners of each line without a gap: level from one point to the next, then straight up or down."""
    run: list[tuple[float, float]] = []
    for point, end in zip(series.points, [*series.points[1:], Point(scale.chart.ends, None)], strict=True):
        if point.value is None:
            continue
        y = scale.y(point.value)
        run += [(scale.x(point.at), y), (scale.x(end.at), y)]
        if end.value is None:
            yield run
            run = []


def _line(kind: str, begins: tuple[float, float], ends: tuple[float, float], colour: str) -> str:
    (x1, y1), (x2, y2) = begins, ends
    return f'<line class="{kind}" x1="{x1:.3f}" y1="{y1:.3f}" x2="{x2:.3f}" y2="{y2:.3f}" stroke="{colour}"/>'


def _label(kind: str, x: float, y: float, anchor: str, text: str) -> str:
    return f'<text class="{kind}" x="{x:.3f}" y="{y:.3f}" text-anchor="{anchor}" fill="#2e3440">{_text(text)}</text>'


def _text(text: str) -> str:
    return escape(visible(text))

"""Which reports can be drawn, and the charts that their rows make."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.render.plot import Chart, Point, Series
from gpuledger.tools.queries.rows import RowDict

RANGE_MIN = timedelta(seconds=1)
"""What has just begun is drawn as if it had lasted this long."""

_COUNTED = ("total", "allocated", "available")


def chart_of(report: str, rows: Sequence[RowDict], now: datetime) -> Chart:
    """The chart of a report's rows; what still stands is drawn up to now.

    Raises:
        CliError: the report has no time axis, there are no rows, or they are about several pools.
    """
    if report not in CHARTS:
        hint = f"Draw {' or '.join(CHARTS)}, or leave out `-o`"
        raise CliError(f"The report {report} has no time axis", hint, ExitCode.USAGE)
    if not rows:
        raise CliError("There is nothing to draw", "`gpuledger get slicepools` lists the pools")
    return CHARTS[report](rows, now)


def _availability(rows: Sequence[Mapping[str, Any]], now: datetime) -> Chart:
    """The devices of one view of a pool."""
    found = {(row["driver"], row["pool"], row["node"]): None for row in rows}
    if len(found) > 1:
        raise CliError(f"These are {len(found)} pools", _how_to_choose(list(found)), ExitCode.USAGE)
    ((driver, pool, node),) = found
    begins, ends = rows[0]["valid_from"], rows[-1]["valid_to"] or now
    series = tuple(Series(name, tuple(_steps(rows, name))) for name in _COUNTED)
    title = f"{driver}/{pool}{'' if node is None else f' on {node}'}: devices"
    return Chart(title, begins, max(ends, begins + RANGE_MIN, rows[-1]["valid_from"]), series)


def _steps(rows: Sequence[Mapping[str, Any]], name: str) -> list[Point]:
    """A point where a number changes; nothing between the end of a row and a later beginning of the next."""
    points: list[Point] = []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        if not points or points[-1].value != row[name]:
            points.append(Point(row["valid_from"], row[name]))
        if following is not None and row["valid_to"] != following["valid_from"]:
            points.append(Point(row["valid_to"], None))
    return points


def _how_to_choose(found: Sequence[tuple[str, str, str | None]]) -> str:
    driver, pool, node = found[0]
    if len({one[:2] for one in found}) > 1:
        return f"Choose one, such as --pool {driver}/{pool}"
    nodes = [node for _, _, node in found if node is not None]
    return f"The pool is seen from several nodes: choose one, such as --node {node or nodes[0]}"


def _fleet_by_day(rows: Sequence[Mapping[str, Any]], _now: datetime) -> Chart:
    """Devices in service as each day ends."""
    points = tuple(Point(_midnight(row["day"]), int(row["in_service"])) for row in rows)
    ends = _midnight(rows[-1]["day"]) + timedelta(days=1)
    return Chart("Devices in service as each day ends", points[0].at, ends, (Series("in_service", points),))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


CHARTS: Mapping[str, Callable[[Sequence[Mapping[str, Any]], datetime], Chart]] = {
    "availability": _availability,
    "fleet-by-day": _fleet_by_day,
}
"""The reports with a time axis."""

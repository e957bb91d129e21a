"""`gpuledger report`: the documented views by name, as rows or drawn over time."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer
from psycopg.sql import SQL, Composed, Identifier, Literal

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.sql import answer_of_archive
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import ArchiveLocation, DataDir, NoHeaders
from gpuledger.cli.render import Console, Output, View, columns_of, quiet_pipe, render
from gpuledger.cli.render.plot import Chart, Point, Series
from gpuledger.cli.render.plot_svg import svg
from gpuledger.cli.render.plot_terminal import coloured, plain, terminal_lines
from gpuledger.cli.run import run
from gpuledger.db.views import REPORTS, view_of
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.sql import Result, result_now

ABOUT_POOLS = ("device-allocations", "availability", "exhausted", "never-released")
"""Reports with rows about pools of drivers; `describe pool` is for GPUPools."""

ABOUT_VIEWS = ("availability", "exhausted")
"""Reports with rows about a pool as one node or the cluster sees it."""

ABOUT_GPU_POOLS = ("pool-pods",)
"""Reports with rows about GPUPools and ClusterGPUPools."""

ABOUT_CONFIG_POOLS = ("config-rollouts", "config-updates", "config-drift")
"""Reports with rows about MachineConfigPools."""

ABOUT_NODES = (
    "gpu-hours-by-day",
    "container-allocations",
    "container-hours-by-day",
    "device-errors",
    "incidents",
    "repeated-codes",
    "flapping",
    "bad-slots",
    "preflight",
    "preflight-checks",
    "preflight-failures",
    "shared-gpus",
    "shared-allocations",
    "packing",
    "fragmentation",
    "oversubscription",
    "config-updates",
    "config-drift",
)
"""Reports with rows about nodes."""

ABOUT_NAMESPACES = (
    "device-allocations",
    "dra-gpu-hours",
    "never-released",
    "pool-pods",
    "container-allocations",
    "container-hours-by-day",
    "preflight-checks",
    "preflight-gangs",
    "shared-allocations",
)
"""Reports with rows about claims or pods of a namespace."""


RANGE_MIN = timedelta(seconds=1)
"""The shortest range of a chart."""

_COUNTED = ("total", "allocated", "available")


def chart_of(report: str, rows: Sequence[RowDict], now: datetime) -> Chart:
    """The chart of a report's rows; rows that are still valid extend to now.

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


class ReportOutput(StrEnum):
    """The formats of rows (those of `Output`), and drawings."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"
    PLOT = "plot"
    SVG = "svg"


DRAWN = (ReportOutput.PLOT, ReportOutput.SVG)

Name = Annotated[
    str, typer.Argument(help=f"One of {', '.join(REPORTS)}.", autocompletion=lambda: list(REPORTS), show_default=False)
]
Pool = Annotated[
    str | None,
    typer.Option(
        "--pool",
        metavar="DRIVER/POOL",
        help=f"Only this pool (for {', '.join(ABOUT_POOLS)}). For {', '.join(ABOUT_GPU_POOLS)}: NAMESPACE/NAME of a "
        f"GPUPool, or NAME of pools of either kind. For {', '.join(ABOUT_CONFIG_POOLS)}: NAME of a MachineConfigPool.",
    ),
]
Node = Annotated[
    str | None,
    typer.Option(
        "--node",
        help=f"Only this node (for {', '.join(ABOUT_NODES)}), or its own slices (for {', '.join(ABOUT_VIEWS)}).",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help=f"Only claims or pods of this namespace (for {', '.join(ABOUT_NAMESPACES)})."
    ),
]
Drawable = Annotated[
    ReportOutput | None,
    typer.Option(
        "--output",
        "-o",
        help=f"Output format; {' and '.join(CHARTS)} can be drawn.",
        show_default="table; plot for one pool's availability on a terminal",
    ),
]


def report(
    name: Name,
    pool: Pool = None,
    node: Node = None,
    namespace: Namespace = None,
    output: Drawable = None,
    no_headers: NoHeaders = False,
    archive: ArchiveLocation = None,
    data_dir: DataDir = None,
) -> None:
    """Display a report. docs/reports.md and comments in the database describe its columns.

    --archive shows it as it was when the archive was written.
    """
    report_name = name.replace("_", "-")
    if report_name not in REPORTS:
        raise CliError(f"There is no report {name!r}", f"Choose from {', '.join(REPORTS)}", ExitCode.USAGE)
    console = Console.standard()
    form = output or _default(report_name, pool, is_terminal=console.terminal)
    if form in DRAWN and report_name not in CHARTS:
        chart_of(report_name, (), system_clock())
    statement = selection(report_name, pool, node, namespace).as_string()
    if archive is None:
        columns, rows = run(answer(statement, data_dir, f"report {report_name}"))
    else:
        columns, rows = run(answer_of_archive(archive, statement))
    if form in DRAWN:
        _draw(chart_of(report_name, rows, system_clock()), form, console)
        return
    render(rows, View("row", columns_of(columns)), Output(form.value), headers=not no_headers)


def selection(report: str, pool: str | None, node: str | None, namespace: str | None = None) -> Composed:
    """The query of a report, for one pool, node and namespace where these are given.

    Raises:
        CliError: the report has no such column, or the text is no name of a pool.
    """
    conditions: list[Composed] = []
    if pool is not None:
        _check(report, "--pool", (*ABOUT_POOLS, *ABOUT_GPU_POOLS, *ABOUT_CONFIG_POOLS))
        conditions.append(_pool_condition(report, pool))
    if node is not None:
        _check(report, "--node", (*ABOUT_VIEWS, *ABOUT_NODES))
        conditions.append(SQL("node = {}").format(Literal(node)))
    if namespace is not None:
        _check(report, "--namespace", ABOUT_NAMESPACES)
        conditions.append(SQL("namespace = {}").format(Literal(namespace)))
    source = SQL("SELECT * FROM {}").format(Identifier(*view_of(report).split(".")))
    return SQL(" WHERE ").join([source, *([SQL(" AND ").join(conditions)] if conditions else [])])


def _pool_condition(report: str, pool: str) -> Composed:
    if report in ABOUT_CONFIG_POOLS:
        return SQL("pool = {}").format(Literal(pool))
    return _of_gpu_pool(pool) if report in ABOUT_GPU_POOLS else _of_pool(pool)


def _of_pool(pool: str) -> Composed:
    driver, slash, name = pool.partition("/")
    if not slash:
        hint = "Write DRIVER/POOL, as `gpuledger get slicepools -o name` does"
        raise CliError(f"{pool!r} names no pool", hint, ExitCode.USAGE)
    return SQL("driver = {} AND pool = {}").format(Literal(driver), Literal(name))


def _of_gpu_pool(pool: str) -> Composed:
    """The pool of this id; a name alone stands for a ClusterGPUPool, and for GPUPools of any namespace."""
    return SQL("({0} IN (pool, split_part(pool, '/', 2)))").format(Literal(pool))


async def answer(statement: str, data_dir: DataDir, command: str) -> Result:
    """The columns and rows of one read-only statement, on tables that are up to date."""
    async with open_backend(data_dir, command, asks=True) as backend:
        return await result_now(backend, statement)


def _default(report: str, pool: str | None, *, is_terminal: bool) -> ReportOutput:
    """A chart for one pool on a terminal; scripts always get columns."""
    is_drawn = is_terminal and pool is not None and report in CHARTS
    return ReportOutput.PLOT if is_drawn else ReportOutput.TABLE


def _check(report: str, option: str, reports: Sequence[str]) -> None:
    if report not in reports:
        raise CliError(f"{option} does not apply to {report}", f"It is for {', '.join(reports)}", ExitCode.USAGE)


def _draw(chart: Chart, output: ReportOutput, console: Console) -> None:
    with quiet_pipe(console.out):
        if output is ReportOutput.SVG:
            console.out.write(svg(chart))
            return
        paint = coloured if console.colour else plain
        width = shutil.get_terminal_size().columns
        console.out.writelines(f"{line}\n" for line in terminal_lines(chart, width, paint))

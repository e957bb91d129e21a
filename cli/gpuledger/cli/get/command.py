"""`gpuledger get`: the rows of one kind, now, at a past time, or as they were known; and Kubernetes objects."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.availability import Selected, show_availability, watch_availability
from gpuledger.cli.get.availability_nouns import AvailabilityNoun
from gpuledger.cli.get.kube_objects import Wanted, get_objects, watch_objects
from gpuledger.cli.get.nouns import KINDS, KubeNoun, Noun, noun_to_get
from gpuledger.cli.get.watch import watch_rows
from gpuledger.cli.options import AsRecorded, At, Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Output, render
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_as_recorded, parse_time
from gpuledger.db.readonly import read_only
from gpuledger.edge.kube.client import Selection
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.queries.backend import bring_current, named_projections
from gpuledger.tools.queries.moments import PointInTime, sequence_of
from gpuledger.tools.queries.rows import RowDict, RowFilter, current_rows, missing_names, rows_as_recorded, rows_at

KUBERNETES = "Kubernetes kinds"

Kind = Annotated[
    str, typer.Argument(help=f"One of {', '.join(KINDS)}.", autocompletion=lambda: list(KINDS), show_default=False)
]
Names = Annotated[
    list[str] | None, typer.Argument(help="Only these; as `-o name` writes them, too.", show_default=False)
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Go on with every change that comes, until Ctrl-C.")]
Kube = Annotated[
    bool, typer.Option("--kube", help="The Kubernetes kind of that name (nodes).", rich_help_panel=KUBERNETES)
]
Node = Annotated[str | None, typer.Option("--node", help="Only this node's (allocations).")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Only this namespace (claims and allocations, too).",
        rich_help_panel=KUBERNETES,
        show_default="all",
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="All namespaces.", rich_help_panel=KUBERNETES)
]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="By labels, as kubectl takes them.", rich_help_panel=KUBERNETES),
]
FieldSelector = Annotated[
    str | None,
    typer.Option("--field-selector", help="By fields (status.state=Ready).", rich_help_panel=KUBERNETES),
]


def get(
    kind: Kind,
    names: Names = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    node: Node = None,
    watch: Watch = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
    kube: Kube = False,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    field_selector: FieldSelector = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show devices, nodes, slots, workloads, failures, sources, contradictions, allocations, slices and the like.

    --at answers what was true at a time, with all we know today. --as-recorded answers what we knew then. The
    Kubernetes kinds are read from the API server, with its own columns: pools (gpupools and clustergpupools),
    gpudevices, gpunodestates, nodefeatures, and with --kube nodes.
    """
    noun = noun_to_get(kind, kube=kube)
    past = {"--at": at, "--as-recorded": as_recorded}
    _check_watch(past, output, watch=watch)
    narrowed_by = _narrowed_by(noun)
    if "node" not in narrowed_by:
        _refuse({"--node": node}, "it is for allocations", "Leave it out")
    if isinstance(noun, KubeNoun):
        _refuse(past, f"{noun.resource.plural} are read from Kubernetes, which has no past", "Ask for devices or nodes")
        selection = Selection(None if all_namespaces else namespace, selector or "", field_selector or "")
        wanted = Wanted(noun, selection, tuple(map(noun.bare, names or [])), KubeAccess(kubeconfig, context, data_dir))
        run(_objects(wanted, output, watch=watch, headers=not no_headers))
        return
    given = {"--selector": selector, "--field-selector": field_selector}
    given |= {} if "namespace" in narrowed_by else {"--namespace": namespace}
    _refuse(given, f"{noun.view.kinds} come from the ledger", "Leave it out, or choose a Kubernetes kind")
    moment = _parse_point_in_time(at, as_recorded, system_clock())
    namespace = None if all_namespaces else namespace
    if isinstance(noun, AvailabilityNoun):
        selected = Selected(noun, tuple(names or ()), namespace)
        _availability(selected, moment, output, data_dir, watch=watch, headers=not no_headers)
        return
    where = {"node": node, "namespace": namespace}
    chosen = RowFilter(
        [name.removeprefix(f"{noun.view.kind}/") for name in names or []],
        {column: value for column, value in where.items() if value is not None},
    )
    if watch:
        run(watch_rows(noun, chosen, data_dir, output, headers=not no_headers))
        return
    _show(noun, chosen, moment, output, data_dir, headers=not no_headers)


def _parse_point_in_time(at: str | None, as_recorded: str | None, now: datetime) -> PointInTime:
    """The point in time that `--at` and `--as-recorded` give.

    Raises:
        CliError: both are given, or one cannot be read.
    """
    if at is not None and as_recorded is not None:
        raise CliError("--at and --as-recorded exclude each other", "Choose one", ExitCode.USAGE)
    return PointInTime(
        None if at is None else parse_time(at, now),
        None if as_recorded is None else parse_as_recorded(as_recorded, now),
    )


def _narrowed_by(noun: Noun | AvailabilityNoun | KubeNoun) -> tuple[str, ...]:
    """By what a user may choose rows of a kind, beside their names."""
    if isinstance(noun, Noun):
        return noun.narrowed_by
    return ("namespace",) if isinstance(noun, KubeNoun) or noun.namespaced else ()


def _availability(
    wanted: Selected, moment: PointInTime, output: Output, data_dir: Path | None, *, watch: bool, headers: bool
) -> None:
    if watch:
        run(watch_availability(wanted, data_dir, output, headers=headers))
        return
    show_availability(wanted, moment, output, data_dir, headers=headers)


async def _objects(wanted: Wanted, output: Output, *, watch: bool, headers: bool) -> None:
    await (watch_objects if watch else get_objects)(wanted, output, headers=headers)


def _refuse(given: dict[str, str | None], why: str, hint: str) -> None:
    for option, value in given.items():
        if value is not None:
            raise CliError(f"{option} does not apply: {why}", hint, ExitCode.USAGE)


def _check_watch(past: dict[str, str | None], output: Output, *, watch: bool) -> None:
    if not watch:
        return
    _refuse(past, "the past does not change", "Leave out --watch")
    if output is Output.JSON:
        raise CliError("A JSON array has an end, --watch has none", "Use `-o jsonl`", ExitCode.USAGE)


def _show(
    noun: Noun, chosen: RowFilter, moment: PointInTime, output: Output, data_dir: Path | None, *, headers: bool
) -> None:
    rows = run(_rows(noun, chosen, moment, data_dir))
    if rows or not chosen.names:
        render(rows, noun.view, output, headers=headers)
    for name in missing_names(rows, noun.source, chosen.names):
        raise CliError(f"{noun.view.kind} {name!r} was not found", f"List them with `gpuledger get {noun.view.kinds}`")


async def _rows(noun: Noun, chosen: RowFilter, moment: PointInTime, data_dir: DataDir) -> list[RowDict]:
    async with open_backend(data_dir, f"get {noun.view.kinds}") as backend:
        if moment.recorded is not None:
            return await rows_as_recorded(backend, noun.source, await sequence_of(backend, moment.recorded), chosen)
        await bring_current(backend, named_projections([noun.projection]))
        async with read_only(backend.database_url, application_name="gpuledger get") as connection:
            if moment.at is not None:
                return await rows_at(connection, noun.source, moment.at, chosen)
            return await current_rows(connection, noun.source, chosen)

"""`gpuledger get`: the rows of one kind from the ledger, now, at a past time or as recorded; and Kubernetes objects."""

from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.config_nouns import CONFIG_NOUNS
from gpuledger.cli.get.ledger import TableQuery, show_rows, watch_rows
from gpuledger.cli.get.noun import KubeNoun, Noun
from gpuledger.cli.get.nouns import KINDS, MAINTENANCE, noun_to_get
from gpuledger.cli.options import AsRecorded, At, Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Output
from gpuledger.cli.run import run
from gpuledger.cli.source import announce_unless_ledger, is_present_only, refuse_in_present
from gpuledger.cli.times import parse_as_recorded, parse_time
from gpuledger.edge.kube.client import Selection
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.present.refusal import ANOTHER_WAY
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.rows import Lasting

if TYPE_CHECKING:
    from gpuledger.cli.get.availability import AvailabilityQuery
    from gpuledger.cli.get.availability_nouns import AvailabilityNoun

KUBERNETES = "Kubernetes kinds"

_ASK_LEDGER: Final = "Ask for devices or nodes"

_FILTERED: Final = {"node": "allocations, incidents, gpus and shares", "device": "incidents"}
"""The options that choose rows by a column, and the kinds of the ledger that have it."""

Kind = Annotated[
    str, typer.Argument(help=f"One of {', '.join(KINDS)}.", autocompletion=lambda: list(KINDS), show_default=False)
]
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Names of rows or objects, also as `-o name` prints them; all by default.", show_default=False),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="After listing, watch for changes until Ctrl-C.")]
Kube = Annotated[
    bool, typer.Option("--kube", help="List the Kubernetes kind with that name (nodes).", rich_help_panel=KUBERNETES)
]
Node = Annotated[str | None, typer.Option("--node", help="Only allocations, incidents, gpus or shares on this node.")]
Device = Annotated[str | None, typer.Option("--device", metavar="UUID", help="Only incidents of this card.")]
All = Annotated[bool, typer.Option("--all", help="Also incidents and shares that have ended.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Also incidents and shares that ended after this time: RFC 3339, a date, or relative such as -2h.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Only this namespace; works for claims, allocations and shares, too.",
        rich_help_panel=KUBERNETES,
        show_default="all",
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="List across all namespaces.", rich_help_panel=KUBERNETES)
]
Selector = Annotated[
    str | None,
    typer.Option("--selector", "-l", help="Label selector, as in kubectl.", rich_help_panel=KUBERNETES),
]
FieldSelector = Annotated[
    str | None,
    typer.Option("--field-selector", help="Field selector, such as status.state=Ready.", rich_help_panel=KUBERNETES),
]


def get(
    kind: Kind,
    names: Names = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    node: Node = None,
    device: Device = None,
    ended: All = False,
    since: Since = None,
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
    """Display rows of the ledger, or objects of Kubernetes.

    --at shows the state at a time, by everything recorded to date. --as-recorded shows the state as it was known then.
    The Kubernetes kinds come from the API server, with its own columns: pools (gpupools and clustergpupools),
    gpudevices, gpunodestates, nodefeatures, and with --kube nodes.
    """
    noun = noun_to_get(kind, kube=kube)
    past = Past(at, as_recorded, since, ended=ended)
    chosen = {"node": node, "device": device, "namespace": None if all_namespaces else namespace}
    shown = Shown(output, data_dir, headers=not no_headers, watch=watch)
    access = KubeAccess(kubeconfig, context, data_dir)
    if isinstance(noun, KubeNoun):
        _check_watch(past, shown)
        _refuse_filters(noun, chosen, past)
        _refuse(past.moments, f"{noun.resource.plural} are read from Kubernetes, which has no past", _ASK_LEDGER)
        announce_unless_ledger(data_dir, access)
        selection = Selection(chosen["namespace"], selector or "", field_selector or "")
        run(_objects(noun, selection, names or [], access, shown))
        return
    for_kube = {"--selector": selector, "--field-selector": field_selector}
    if "namespace" not in _filters_of(noun):
        for_kube["--namespace"] = namespace
        chosen["namespace"] = None
    _refuse(for_kube, f"{noun.view.kinds} come from the ledger", "Leave it out, or choose a Kubernetes kind")
    show_from_ledger(noun, names or [], chosen, past, shown, access)


def show_from_ledger(
    noun: "Noun | AvailabilityNoun",
    names: Sequence[str],
    chosen: Mapping[str, str | None],
    past: "Past",
    shown: "Shown",
    access: KubeAccess,
) -> None:
    """Show the rows of a kind of the ledger: those with these names, and with the values in columns that were chosen.

    Raises:
        CliError: an option contradicts another, or there is no row of a requested name.
    """
    _check_watch(past, shown)
    _refuse_filters(noun, chosen, past)
    now = system_clock()
    moment = _parse_point_in_time(past.at, past.as_recorded, now)
    query = _ledger_query(noun, names, chosen, past, now)
    output, data_dir, headers = shown.output, shown.data_dir, shown.headers
    if not isinstance(query, TableQuery) and is_present_only(data_dir, access):
        _refuse_what_a_ledger_does(past.moments, watch=shown.watch)
        run(_present_rows(query, access, output, headers=headers))
    elif shown.watch:
        run(watch_rows(query, output, data_dir, headers=headers))
    else:
        run(show_rows(query, moment, output, data_dir, headers=headers))


class Past(NamedTuple):
    """Which moment is asked for, as it was typed, and which rows that ended are shown beside those that have not."""

    at: str | None = None
    as_recorded: str | None = None
    since: str | None = None
    ended: bool = False

    @property
    def moments(self) -> dict[str, str | None]:
        """The options of the moment."""
        return {"--at": self.at, "--as-recorded": self.as_recorded}


class Shown(NamedTuple):
    """How rows are shown, and from which directory's ledger."""

    output: Output
    data_dir: Path | None
    headers: bool
    watch: bool


def _objects(
    noun: KubeNoun,
    selection: Selection,
    names: Sequence[str],
    access: KubeAccess,
    shown: Shown,
) -> Coroutine[Any, Any, None]:
    from gpuledger.cli.get.kube_objects import (  # noqa: PLC0415 - kinds of the ledger need no client of Kubernetes
        ObjectQuery,
        get_objects,
        watch_objects,
    )

    query = ObjectQuery(noun, selection, tuple(map(noun.bare, names)), access)
    return (watch_objects if shown.watch else get_objects)(query, shown.output, headers=shown.headers)


def _present_rows(
    query: "AvailabilityQuery", access: KubeAccess, output: Output, *, headers: bool
) -> Coroutine[Any, Any, None]:
    from gpuledger.cli.get.availability import show_present_rows  # noqa: PLC0415 - with all that reads Kubernetes

    return show_present_rows(query, access, output, headers=headers)


def _ledger_query(
    noun: "Noun | AvailabilityNoun", names: Sequence[str], chosen: Mapping[str, str | None], past: Past, now: datetime
) -> "TableQuery | AvailabilityQuery":
    bare, namespace = [name.removeprefix(f"{noun.view.kind}/") for name in names], chosen["namespace"]
    if noun is MAINTENANCE:
        from gpuledger.cli.get.maintenance import MaintenanceQuery  # noqa: PLC0415 - with its decider

        return MaintenanceQuery(noun, bare)
    if noun in CONFIG_NOUNS.values():
        from gpuledger.cli.get.config_query import ConfigQuery  # noqa: PLC0415 - with its decider

        assert isinstance(noun, Noun), "they are kinds of the ledger"
        return ConfigQuery(noun, bare)
    if isinstance(noun, Noun):
        where = dict(noun.always) | {column: value for column, value in chosen.items() if value is not None}
        return TableQuery(noun, bare, where, None if bare or past.ended else _lasting(noun, past.since, now))
    from gpuledger.cli.get.availability import AvailabilityQuery  # noqa: PLC0415 - with all rules of slices

    full = [name if namespace is None or "/" in name else f"{namespace}/{name}" for name in bare]
    return AvailabilityQuery(noun, full, namespace)


def _lasting(noun: Noun, since: str | None, now: datetime) -> Lasting | None:
    """Those rows of a kind that have not ended, or not before a time."""
    return None if noun.ends is None else Lasting(noun.ends, None if since is None else parse_time(since, now))


def _parse_point_in_time(at: str | None, as_recorded: str | None, now: datetime) -> PointInTime:
    """The point in time that `--at` and `--as-recorded` give.

    Raises:
        CliError: there are both, or one cannot be parsed.
    """
    if at is not None and as_recorded is not None:
        raise CliError("--at and --as-recorded exclude each other", "Choose one", ExitCode.USAGE)
    return PointInTime(
        None if at is None else parse_time(at, now),
        None if as_recorded is None else parse_as_recorded(as_recorded, now),
    )


def _refuse_filters(noun: "Noun | AvailabilityNoun | KubeNoun", chosen: Mapping[str, str | None], past: Past) -> None:
    """Refuse the options that choose rows of other kinds."""
    applying = _filters_of(noun)
    for option, kinds in _FILTERED.items():
        if option not in applying:
            _refuse({f"--{option}": chosen[option]}, f"it is for {kinds}", "Leave it out")
    if not (isinstance(noun, Noun) and noun.ends is not None):
        _refuse({"--since": past.since, "--all": past.ended or None}, "it is for incidents and shares", "Leave it out")
    if past.since is not None and past.ended:
        raise CliError("--since and --all exclude each other", "Choose one", ExitCode.USAGE)


def _refuse_what_a_ledger_does(past: dict[str, str | None], *, watch: bool) -> None:
    """Refuse what Kubernetes alone cannot answer."""
    for option, value in past.items():
        refuse_in_present(option, value)
    refuse_in_present("--watch", watch, f"Use `kubectl get --watch`. {ANOTHER_WAY}")


def _filters_of(noun: "Noun | AvailabilityNoun | KubeNoun") -> tuple[str, ...]:
    """The options, beside names, by which users may choose rows of a kind."""
    if isinstance(noun, Noun):
        return noun.narrowed_by
    return ("namespace",) if isinstance(noun, KubeNoun) or noun.namespaced else ()


def _refuse(options: Mapping[str, object], why: str, hint: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise CliError(f"{option} does not apply: {why}", hint, ExitCode.USAGE)


def _check_watch(past: Past, shown: Shown) -> None:
    if not shown.watch:
        return
    _refuse(past.moments, "the past does not change", "Leave out --watch")
    if shown.output is Output.JSON:
        raise CliError("A JSON array has an end, --watch has none", "Use `-o jsonl`", ExitCode.USAGE)

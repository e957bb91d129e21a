"""`gpuledger get`: the rows of one kind from the ledger, now, at a past time or as recorded; and Kubernetes objects."""

from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuledger.cli.errors import CliError, ExitCode
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

if TYPE_CHECKING:
    from gpuledger.cli.get.availability import AvailabilityQuery
    from gpuledger.cli.get.availability_nouns import AvailabilityNoun

KUBERNETES = "Kubernetes kinds"

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
Node = Annotated[str | None, typer.Option("--node", help="Only allocations on this node.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Only this namespace; works for claims and allocations, too.",
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
    past = {"--at": at, "--as-recorded": as_recorded}
    _check_watch(past, output, watch=watch)
    filters = _filters_of(noun)
    if "node" not in filters:
        _refuse({"--node": node}, "it is for allocations", "Leave it out")
    headers, in_namespace = not no_headers, None if all_namespaces else namespace
    access = KubeAccess(kubeconfig, context, data_dir)
    if isinstance(noun, KubeNoun):
        _refuse(past, f"{noun.resource.plural} are read from Kubernetes, which has no past", "Ask for devices or nodes")
        announce_unless_ledger(data_dir, access)
        selection = Selection(in_namespace, selector or "", field_selector or "")
        run(_objects(noun, selection, names or [], access, output, watch=watch, headers=headers))
        return
    kube_options = {"--selector": selector, "--field-selector": field_selector}
    kube_options |= {} if "namespace" in filters else {"--namespace": namespace}
    _refuse(kube_options, f"{noun.view.kinds} come from the ledger", "Leave it out, or choose a Kubernetes kind")
    moment = _parse_point_in_time(at, as_recorded, system_clock())
    query = _ledger_query(noun, names or [], {"node": node, "namespace": in_namespace})
    if not isinstance(query, TableQuery) and is_present_only(data_dir, access):
        _refuse_what_a_ledger_does(past, watch=watch)
        run(_present_rows(query, access, output, headers=headers))
    elif watch:
        run(watch_rows(query, output, data_dir, headers=headers))
    else:
        run(show_rows(query, moment, output, data_dir, headers=headers))


def _objects(
    noun: KubeNoun,
    selection: Selection,
    names: Sequence[str],
    access: KubeAccess,
    output: Output,
    *,
    watch: bool,
    headers: bool,
) -> Coroutine[Any, Any, None]:
    from gpuledger.cli.get.kube_objects import (  # noqa: PLC0415 - kinds of the ledger need no client of Kubernetes
        ObjectQuery,
        get_objects,
        watch_objects,
    )

    query = ObjectQuery(noun, selection, tuple(map(noun.bare, names)), access)
    return (watch_objects if watch else get_objects)(query, output, headers=headers)


def _present_rows(
    query: "AvailabilityQuery", access: KubeAccess, output: Output, *, headers: bool
) -> Coroutine[Any, Any, None]:
    from gpuledger.cli.get.availability import show_present_rows  # noqa: PLC0415 - with all that reads Kubernetes

    return show_present_rows(query, access, output, headers=headers)


def _ledger_query(
    noun: "Noun | AvailabilityNoun", names: list[str], filters: dict[str, str | None]
) -> "TableQuery | AvailabilityQuery":
    bare, namespace = [name.removeprefix(f"{noun.view.kind}/") for name in names], filters["namespace"]
    if noun is MAINTENANCE:
        from gpuledger.cli.get.maintenance import MaintenanceQuery  # noqa: PLC0415 - with its decider

        return MaintenanceQuery(noun, bare)
    if isinstance(noun, Noun):
        return TableQuery(noun, bare, {column: value for column, value in filters.items() if value is not None})
    from gpuledger.cli.get.availability import AvailabilityQuery  # noqa: PLC0415 - with all rules of slices

    full = [name if namespace is None or "/" in name else f"{namespace}/{name}" for name in bare]
    return AvailabilityQuery(noun, full, namespace)


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


def _refuse(options: dict[str, str | None], why: str, hint: str) -> None:
    for option, value in options.items():
        if value is not None:
            raise CliError(f"{option} does not apply: {why}", hint, ExitCode.USAGE)


def _check_watch(past: dict[str, str | None], output: Output, *, watch: bool) -> None:
    if not watch:
        return
    _refuse(past, "the past does not change", "Leave out --watch")
    if output is Output.JSON:
        raise CliError("A JSON array has an end, --watch has none", "Use `-o jsonl`", ExitCode.USAGE)

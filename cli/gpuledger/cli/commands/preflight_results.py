"""`gpuledger preflight list`, `show` and `gangs`: what came of preflight checks."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.command import Past, Shown, Watch, show_from_ledger
from gpuledger.cli.get.preflight_nouns import PREFLIGHT_CHECKS, PREFLIGHT_GANGS, bandwidth, seconds
from gpuledger.cli.namespaced import DEFAULT_NAMESPACE, POD_KINDS, full_name
from gpuledger.cli.options import AsRecorded, At, DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Column
from gpuledger.cli.render import Output as RowOutput
from gpuledger.cli.render.page import AnswerOutput, Output, Page, show_answer
from gpuledger.cli.run import run
from gpuledger.domain.preflight.results_rows import Outcome
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.preflight_story import preflight_story

Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Only pods of this namespace.", show_default="all")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="List across all namespaces.")]
Failed = Annotated[bool, typer.Option("--failed", help="Only attempts that found something wrong.")]
Node = Annotated[str | None, typer.Option("--node", help="Only checks on this node.")]
All = Annotated[bool, typer.Option("--all", help="Also what is over: earlier attempts, pods that are done.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Also what was over after this time, such as -2h."),
]
Pod = Annotated[str, typer.Argument(metavar="POD", help="A pod, or NAMESPACE/POD.", show_default=False)]
Pods = Annotated[
    list[str] | None, typer.Argument(metavar="[POD]...", help="Only these pods, as -n has it or as NAMESPACE/POD.")
]
Gangs = Annotated[
    list[str] | None, typer.Argument(metavar="[GANG]...", help="Only these gangs, as -n has it or as NAMESPACE/ID.")
]
InNamespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The pod's namespace, if POD has none.", show_default=DEFAULT_NAMESPACE),
]

CHECK_COLUMNS = (
    Column("Check", "check_name"),
    Column("Attempt", "attempt"),
    Column("State", "state"),
    Column("Outcome", "outcome"),
    Column("Exit code", "exit_code"),
    Column("Codes", "codes"),
    Column("Took", "duration_us", format=seconds),
    Column("Gang wait", "gang_wait_us", format=seconds),
    Column("GB/s", "bandwidth_bytes_s", format=bandwidth),
    Column("Ended", "ended_at"),
    Column("Message", "message"),
)
INCIDENT_COLUMNS = (
    Column("Incident", "incident"),
    Column("Check", "check_name"),
    Column("Entity", "entity"),
    Column("Opened", "opened_at"),
    Column("Fatal", "fatal"),
    Column("Cause", "last_cause"),
)
GANG_FIELDS = {
    "State": "state",
    "Expected": "expected",
    "Found": "found",
    "ConfigMap": "config_map",
    "Reason": "reason",
    "Message": "message",
}


def list_(
    pods: Pods = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    failed: Failed = False,
    node: Node = None,
    ended: All = False,
    since: Since = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    watch: Watch = False,
    output: OutputFormat = RowOutput.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Display the last attempts at checks of pods that go through them; --all and --since have those that are over."""
    chosen = {
        "namespace": None if all_namespaces else namespace,
        "node": node,
        "device": None,
        "outcome": Outcome.FAILED.value if failed else None,
    }
    shown = Shown(output, data_dir, headers=not no_headers, watch=watch)
    past = Past(at, as_recorded, since, ended=ended)
    full = _full_names(pods, namespace, PREFLIGHT_CHECKS.view.kind, *POD_KINDS)
    show_from_ledger(PREFLIGHT_CHECKS, full, chosen, past, shown, KubeAccess(None, None, data_dir))


def gangs(
    names: Gangs = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    ended: All = False,
    since: Since = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    watch: Watch = False,
    output: OutputFormat = RowOutput.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Display the gangs that go through checks together; --all and --since have those that were dissolved."""
    chosen = {"namespace": None if all_namespaces else namespace, "node": None, "device": None}
    shown = Shown(output, data_dir, headers=not no_headers, watch=watch)
    past = Past(at, as_recorded, since, ended=ended)
    full = _full_names(names, namespace, PREFLIGHT_GANGS.view.kind)
    show_from_ledger(PREFLIGHT_GANGS, full, chosen, past, shown, KubeAccess(None, None, data_dir))


def show(
    pod: Pod, namespace: InNamespace = None, output: Output = AnswerOutput.TABLE, data_dir: DataDir = None
) -> None:
    """Show the checks of a pod with all attempts, its gang, what came of it on the node, and what to do next."""
    name = full_name(pod, namespace, *POD_KINDS)
    found = run(_document(name, data_dir))
    if found is None:
        raise CliError(
            f"No preflight check of pod {name!r} was seen", "List them with `gpuledger preflight list --all`"
        )
    show_answer(found, output, _page)


def _full_names(names: list[str] | None, namespace: str | None, *kinds: str) -> list[str]:
    """The names with their namespaces. What `-o name` wrote has one, and a kind before it."""
    bare = [name.removeprefix(f"{kinds[0]}/") for name in names or ()]
    return [full_name(name, namespace, *kinds) for name in bare]


async def _document(pod: str, data_dir: Path | None) -> dict[str, Any] | None:
    async with open_backend(data_dir, "preflight show", asks=True) as backend:
        story = await preflight_story(backend, pod)
    return None if story is None else story.document()


def _page(found: dict[str, Any]) -> Page:
    page = Page()
    page.fields(
        {
            "Pod": found["pod"],
            "UID": found["uid"],
            "Node": found["node"],
            "Gang": found["gang"],
            "Done": found["done"],
            "Situation": found["situation"],
        }
    )
    page.table("Checks", found["checks"], CHECK_COLUMNS)
    if found["gangState"] is not None:
        gang = found["gangState"]
        fields = {name: gang[column] for name, column in GANG_FIELDS.items() if gang[column] not in (None, "")}
        page.fields({**fields, "Other pods": ", ".join(found["peers"]) or None}, title="Gang")
    page.table("Open incidents of checks on the node", found["incidents"], INCIDENT_COLUMNS)
    return page

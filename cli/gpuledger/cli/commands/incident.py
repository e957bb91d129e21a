"""`gpuledger incident`: what monitors and agents found unhealthy, as a list and one by one."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands import incident_bundle
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.command import All, Device, Past, Shown, Since, Watch, show_from_ledger
from gpuledger.cli.get.nouns import INCIDENTS
from gpuledger.cli.options import AsRecorded, At, DataDir, NoHeaders, OutputFormat
from gpuledger.cli.render import Output as RowOutput
from gpuledger.cli.render.incident_page import incident_part
from gpuledger.cli.render.page import AnswerOutput, Output, Page, show_answer
from gpuledger.cli.run import run
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.incidents import incident_story

app = typer.Typer(
    help="Show incidents: what monitors and agents found unhealthy, and for how long.", no_args_is_help=True
)

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids of incidents; all by default.", show_default=False)
]
Node = Annotated[str | None, typer.Option("--node", help="Only incidents on this node.")]
Id = Annotated[
    str, typer.Argument(metavar="ID", help="The incident's id, also as `-o name` prints it.", show_default=False)
]


@app.callback()
def incident() -> None:
    """Show incidents: what monitors and agents found unhealthy, and for how long."""


app.command()(incident_bundle.export)
app.command("open")(incident_bundle.open_)


@app.command("list")
def list_(
    names: Names = None,
    ended: All = False,
    since: Since = None,
    node: Node = None,
    device: Device = None,
    at: At = None,
    as_recorded: AsRecorded = None,
    watch: Watch = False,
    output: OutputFormat = RowOutput.TABLE,
    no_headers: NoHeaders = False,
    data_dir: DataDir = None,
) -> None:
    """Display the incidents that are open, as `gpuledger get incidents` does."""
    chosen = {"node": node, "device": device, "namespace": None}
    past = Past(at, as_recorded, since, ended=ended)
    shown = Shown(output, data_dir, headers=not no_headers, watch=watch)
    show_from_ledger(INCIDENTS, names or [], chosen, past, shown, KubeAccess(None, None, data_dir))


@app.command()
def show(incident_id: Id, output: Output = AnswerOutput.TABLE, data_dir: DataDir = None) -> None:
    """Show one incident: its reports in order, and the containers that had the card meanwhile."""
    found = run(_document(incident_id.removeprefix(f"{INCIDENTS.view.kind}/"), data_dir))
    if found is None:
        hint = "List them with `gpuledger incident list --all`"
        raise CliError(f"{INCIDENTS.view.kind} {incident_id!r} was not found", hint)
    show_answer(found, output, _page)


async def _document(incident_id: str, data_dir: Path | None) -> dict[str, Any] | None:
    async with open_backend(data_dir, "incident show", asks=True) as backend:
        story = await incident_story(backend, incident_id)
    return None if story is None else story.document()


def _page(found: dict[str, Any]) -> Page:
    page = Page()
    incident_part(page, found)
    return page

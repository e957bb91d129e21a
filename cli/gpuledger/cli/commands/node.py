"""`gpuledger node`: sets a node aside for maintenance, and gives it back. `node_drain` has its pods leave."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.nouns import KUBE_NOUNS
from gpuledger.cli.options import DataDir
from gpuledger.cli.render import message
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time, parse_time
from gpuledger.events.maintenance import (
    LABELS_PER_REQUEST_MAX,
    TAINTS_PER_REQUEST_MAX,
    NodeMaintenanceReleased,
    NodeMaintenanceRequested,
    NodeTaint,
)
from gpuledger.events.payload import NAME_LENGTH_MAX, TEXT_LENGTH_MAX
from gpuledger.runtime.clock import system_clock
from gpuledger.tools import maintenance

app = typer.Typer(help="Set nodes aside for maintenance, and give them back.", no_args_is_help=True)

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node, also as `-o name` prints it.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="The reason, which is recorded with your name.")]
DoneReason = Annotated[str, typer.Option("--reason", help="What is recorded with your name.")]
Owner = Annotated[
    str | None, typer.Option("--owner", help="Whose request it is.", show_default="operators/<your name>")
]
Text = Annotated[str, typer.Option("--message", help="Details, for whoever looks at it.")]
Taints = Annotated[
    list[str] | None,
    typer.Option(
        "--taint", metavar="KEY[=VALUE]:EFFECT", help="Put this taint on the node as well.", show_default=False
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Put this label on the node as well.", show_default=False),
]
For = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="End the request by itself, such as after 4h.", show_default=False),
]
Cordon = Annotated[bool, typer.Option("--cordon/--no-cordon", help="Keep new pods off the node.")]


@app.command()
def cordon(
    node: Node,
    reason: Reason,
    message: Text = "",
    taint: Taints = None,
    label: Labels = None,
    cordon: Cordon = True,
    duration: For = None,
    owner: Owner = None,
    data_dir: DataDir = None,
) -> None:
    """Set a node aside: it is cordoned until everybody who asked for that has released it.

    Replaces your previous request about the node. Pods that run stay.
    """
    data = NodeMaintenanceRequested(
        owner=owner_of(owner),
        reason=within(reason, "--reason", NAME_LENGTH_MAX),
        message=within(message, "--message", TEXT_LENGTH_MAX, 0),
        cordon=cordon,
        taints=tuple(maintenance.check_taint(_taint(one)) for one in _few(taint, "--taint", TAINTS_PER_REQUEST_MAX)),
        labels=dict(map(_label, _few(label, "--label", LABELS_PER_REQUEST_MAX))),
        expires=expires_after(duration),
    )
    run(_cordon(data_dir, bare(node), data))


@app.command()
def uncordon(node: Node, reason: DoneReason = "done", owner: Owner = None, data_dir: DataDir = None) -> None:
    """Release a node: once nobody needs it set aside any more, it is given back as it was."""
    reason = within(reason, "--reason", NAME_LENGTH_MAX)
    data = NodeMaintenanceReleased(owner=owner_of(owner), reason=reason)
    run(_uncordon(data_dir, bare(node), data))


async def _cordon(data_dir: Path | None, node: str, data: NodeMaintenanceRequested) -> None:
    async with open_backend(data_dir, "node cordon", records=True) as backend:
        recorded, is_there = await maintenance.request(backend, node, data)
    end = "" if data.expires is None else f" until {format_time(data.expires)}"
    message(f"Node {node} is to be set aside for {data.owner}{end}; recorded at {recorded}.")
    if not is_there:
        message(f"There is no node {node} yet; it will be set aside once it is there.")
    message(f"`gpuledger get maintenance {node}` shows what comes of it.")


async def _uncordon(data_dir: Path | None, node: str, data: NodeMaintenanceReleased) -> None:
    async with open_backend(data_dir, "node uncordon", records=True) as backend:
        recorded, others = await maintenance.release(backend, node, data)
    outcome = f"stays set aside for {', '.join(others)}" if others else "is to be given back"
    message(f"{data.owner} released node {node}, which {outcome}; recorded at {recorded}.")


def expires_after(duration: str | None) -> datetime | None:
    """When a request with this `--for` ends; None: with its release."""
    now = system_clock()
    return maintenance.expiry(now, None if duration is None else parse_time(f"+{duration}", now))


def bare(node: str) -> str:
    """The name of a node, which may come as `node/NAME`; raises RequestError where a Node cannot be called so."""
    name = KUBE_NOUNS["nodes"].bare(node)
    maintenance.check_node(name)
    return name


def owner_of(owner: str | None) -> str:
    """Whose request it is: that of `--owner`, else that of the user of the terminal."""
    return maintenance.own_name() if owner is None else within(owner, "--owner", NAME_LENGTH_MAX)


def within(text: str, option: str, length_max: int, length_min: int = 1) -> str:
    """An option's text without the spaces around it; raises CliError where it is too long or too short."""
    text = text.strip()
    if not length_min <= len(text) <= length_max:
        what = f"{option} has {length_min} to {length_max} characters"
        raise CliError(what, f"Give another {option}", ExitCode.USAGE)
    return text


def _few(texts: list[str] | None, option: str, count_max: int) -> list[str]:
    if texts is not None and len(texts) > count_max:
        raise CliError(f"A request has at most {count_max} {option}", "Give fewer", ExitCode.USAGE)
    return texts or []


def _taint(text: str) -> NodeTaint:
    """A taint as kubectl writes it."""
    content, colon, effect = text.rpartition(":")
    key, _, value = content.partition("=")
    if not colon or not key or effect not in EFFECTS:
        what = f"{text!r} is no taint of the form KEY[=VALUE]:EFFECT"
        raise CliError(what, f"The effect is {', '.join(EFFECTS)}; such as gpu/broken:NoSchedule", ExitCode.USAGE)
    return NodeTaint.model_construct(key=key, value=value, effect=effect)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise CliError(f"{text!r} is no label of the form KEY=VALUE", "Such as --label state=broken", ExitCode.USAGE)
    maintenance.check_label(key, value)
    return key, value

"""`gpuledger why`: why a claim has no devices, or a pod waits for devices or units of pools; now, or in the past.

What is asked of pools and devices is answered from the ledger. Kubernetes is asked what a pod asks for, what keeps it
off nodes, and which claims and pods may be named to whoever asks.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.kube import Access, Context, Kubeconfig
from gpuledger.cli.options import At, DataDir
from gpuledger.cli.render import Console, quiet_pipe
from gpuledger.cli.render.values import json_text, yaml_text
from gpuledger.cli.run import run
from gpuledger.cli.times import parse_time
from gpuledger.cli.why_answer import of_claim, of_pod
from gpuledger.cli.why_document import Document
from gpuledger.cli.why_page import why_page
from gpuledger.cli.why_question import Question
from gpuledger.clock import system_clock

app = typer.Typer(no_args_is_help=True)

DEFAULT_NAMESPACE = "default"


class WhyOutput(StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Name = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Which one.", show_default=False)]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="The namespace of a name that has none.", show_default=True)
]
Node = Annotated[
    str | None, typer.Option("--node", help="As this node sees it.", show_default="the pod's node, else all nodes")
]
Output = Annotated[WhyOutput, typer.Option("--output", "-o", help="How to show the answer.")]
NoKube = Annotated[bool, typer.Option("--no-kube", help="Ask the ledger alone.")]


@app.callback()
def why() -> None:
    """Explain why a claim has no devices, or why a pod waits for devices or units of pools."""


@app.command()
def claim(
    name: Name,
    namespace: Namespace = DEFAULT_NAMESPACE,
    at: At = None,
    node: Node = None,
    output: Output = WhyOutput.TABLE,
    no_kube: NoKube = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Explain which request of a ResourceClaim fails on which pools, and why."""
    access = None if no_kube else Access(kubeconfig, context, data_dir)
    question = Question(_full_name(name, namespace), _time(at), node, access, data_dir)
    _show(run(of_claim(question)), output)


@app.command()
def pod(
    name: Name,
    namespace: Namespace = DEFAULT_NAMESPACE,
    at: At = None,
    node: Node = None,
    output: Output = WhyOutput.TABLE,
    no_kube: NoKube = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Explain why a pod has no units of the pools that it asks for, or no devices for its claims.

    It needs all of them on one node. In the past, and where Kubernetes is not asked, the claims are those that were
    made for the pod, and where it may run otherwise is not looked at.
    """
    access = None if no_kube else Access(kubeconfig, context, data_dir)
    question = Question(_full_name(name, namespace), _time(at), node, access, data_dir)
    _show(run(of_pod(question)), output)


def _time(at: str | None) -> datetime | None:
    return None if at is None else parse_time(at, system_clock())


def _full_name(name: str, namespace: str) -> str:
    parts = name.split("/")
    if not all(parts) or len(parts) > 2:
        raise CliError(f"{name!r} is no name", "Write NAMESPACE/NAME", ExitCode.USAGE)
    return name if len(parts) == 2 else f"{namespace}/{name}"


def _show(document: Document, output: WhyOutput) -> None:
    if output is WhyOutput.TABLE:
        why_page(document).show()
        return
    console = Console.standard()
    with quiet_pipe(console.out):
        as_json = output is WhyOutput.JSON
        console.out.write(f"{json_text(document, indent=True)}\n" if as_json else yaml_text(document))

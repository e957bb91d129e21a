"""`gpuledger why`: explains why a claim has no devices, a pod does not start, or a node is set aside.

Pools and devices come from the ledger, now or in the past, or from Kubernetes where there is no ledger. Kubernetes adds
what the pod requests, what keeps it off nodes, and which claims and pods the user may read. A node's explanation comes
from the ledger alone.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.namespaced import DEFAULT_NAMESPACE, POD_KINDS, full_name
from gpuledger.cli.options import At, Context, DataDir, Kubeconfig
from gpuledger.cli.render.page import AnswerOutput, Document, Output, show_answer
from gpuledger.cli.render.why_node_page import why_node_page
from gpuledger.cli.render.why_page import why_page
from gpuledger.cli.run import run
from gpuledger.cli.state_source import open_source
from gpuledger.cli.times import format_time, parse_time
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.cluster import KubeAccess
from gpuledger.tools.explain.node import why_node
from gpuledger.tools.explain.query import WhyQuery
from gpuledger.tools.explain.why import why_claim, why_pod
from gpuledger.tools.queries.source import StateSource

Explain = Callable[[StateSource, WhyQuery], Awaitable[Document]]

app = typer.Typer(no_args_is_help=True)

CLAIM_KINDS = ("resourceclaim.resource.k8s.io", "resourceclaim")

Name = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="The claim or pod.", show_default=False)]
NodeName = Annotated[str, typer.Argument(metavar="NAME", help="The node.", show_default=False)]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace, if NAME has none.", show_default=DEFAULT_NAMESPACE),
]
Node = Annotated[
    str | None,
    typer.Option("--node", help="Explain for this node only.", show_default="the pod's node, else all nodes"),
]
NoKube = Annotated[bool, typer.Option("--no-kube", help="Use the ledger alone.")]


@app.callback()
def why() -> None:
    """Explain why a claim has no devices, why a pod does not start, or why a node is set aside."""


@app.command()
def claim(
    name: Name,
    namespace: Namespace = None,
    at: At = None,
    node: Node = None,
    output: Output = AnswerOutput.TABLE,
    no_kube: NoKube = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Explain why a ResourceClaim has no devices: which request fails on which pools."""
    access = None if no_kube else KubeAccess(kubeconfig, context, data_dir)
    query = _query(full_name(name, namespace, *CLAIM_KINDS), at, node, access)
    show_answer(run(_explain(why_claim, query, data_dir)), output, why_page)


@app.command()
def pod(
    name: Name,
    namespace: Namespace = None,
    at: At = None,
    node: Node = None,
    output: Output = AnswerOutput.TABLE,
    no_kube: NoKube = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Explain why a pod waits for units of pools, for devices for its claims, or for its preflight checks.

    A pod needs all units and devices on one node. In the past, and with --no-kube, less is known: see
    docs/kube-commands.md.
    """
    access = None if no_kube else KubeAccess(kubeconfig, context, data_dir)
    query = _query(full_name(name, namespace, *POD_KINDS), at, node, access)
    show_answer(run(_explain(why_pod, query, data_dir)), output, why_page)


@app.command()
def node(name: NodeName, at: At = None, output: Output = AnswerOutput.TABLE, data_dir: DataDir = None) -> None:
    """Explain why a node is set aside: from the report by rule, request and cordon to its outcome, hop by hop.

    Of reports that led to nothing it says why.
    """
    show_answer(run(_explain_node(name.removeprefix("node/"), at, data_dir)), output, why_node_page)


async def _explain_node(name: str, at: str | None, data_dir: Path | None) -> Document:
    time = None if at is None else parse_time(at, system_clock())
    moment = "now" if time is None else format_time(time)
    async with open_backend(data_dir, "why", asks=True) as backend:
        return await why_node(backend, name, time, moment)


def _query(name: str, at: str | None, node: str | None, access: KubeAccess | None) -> WhyQuery:
    time = None if at is None else parse_time(at, system_clock())
    return WhyQuery(name, time, "now" if time is None else format_time(time), node, access)


async def _explain(explain: Explain, query: WhyQuery, data_dir: Path | None) -> Document:
    at = None if query.at is None else query.moment
    async with open_source(data_dir, "why", query.access, at=at, namespace=query.namespace) as source:
        return await explain(source, query)

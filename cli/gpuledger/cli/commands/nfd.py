"""`gpuledger nfd`: whether Node Feature Discovery has labelled the GPU nodes as gpuledger needs it."""

from functools import cache
from typing import NamedTuple

import typer

from gpuledger.api.kinds import NODE_FEATURE_RULE, NODE_FEATURE_RULES, NODE_FEATURES, NODES
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.run import run
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.tools.cluster import KubeAccess, open_kube
from gpuledger.tools.nfd_coverage import (
    RARE_NODES,
    RARE_SHARE,
    Coverage,
    NodeFacts,
    UnknownRuleError,
    coverage,
    features_by_node,
)

VIEW = View(
    "finding",
    (
        Column("node"),
        Column("finding"),
        Column("label"),
        Column("expected"),
        Column("actual"),
        Column("detail"),
    ),
    "node",
)

app = typer.Typer(help="Look at what Node Feature Discovery made of the GPUs.", no_args_is_help=True)


class Seen(NamedTuple):
    """The cluster, and whether it has our rule at all."""

    nodes: list[NodeFacts]
    has_rule: bool


@app.callback()
def nfd() -> None:
    """Look at what Node Feature Discovery made of the GPUs."""


@app.command("coverage")
def nfd_coverage(
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Compare the labels of every GPU node with what the shipped NodeFeatureRule makes of its PCI devices.

    Exits with 1 where labels are missing, different or left over, or where a GPU is of a class that the rule does not
    look for. Rare models are pointed out, and are no failure.
    """
    seen = run(_seen(KubeAccess(kubeconfig, context, data_dir)))
    found = _coverage(seen.nodes)
    if found.rows or output is not Output.TABLE:
        render((row._asdict() for row in found.rows), VIEW, output, headers=not no_headers)
    _conclude(found, has_rule=seen.has_rule)


def _coverage(nodes: list[NodeFacts]) -> Coverage:
    try:
        return coverage(nodes, node_feature_rule())
    except UnknownRuleError as error:
        raise CliError(str(error), "Use a build whose check and rule belong together") from error


def _conclude(found: Coverage, *, has_rule: bool) -> None:
    if not found.is_complete:
        missing = f"The rule {NODE_FEATURE_RULE} is not in the cluster; install it"
        there = f"Look into the log of nfd-master, and at `kubectl get nodefeaturerule {NODE_FEATURE_RULE} -o yaml`"
        said = f"Labels are wrong on {found.wrong_nodes} of {found.nodes} GPU nodes"
        raise CliError(said, there if has_rule else missing, ExitCode.ERROR)
    message(
        f"Every label is as it should be: {found.nodes} GPU nodes, {found.cards} cards, {found.models} models "
        f"(rare: on fewer than {RARE_NODES} nodes, or less than {RARE_SHARE:.0%} of the cards)."
    )


async def _seen(access: KubeAccess) -> Seen:
    async with open_kube(access, KubeClient) as client:
        features = features_by_node((await client.collect(NODE_FEATURES, _of_features)).items)
        nodes = (await client.collect(NODES, _name_and_labels)).items
        facts = [NodeFacts(name, labels, features.get(name)) for name, labels in nodes]
        return Seen(facts, await _has_rule(client))


async def _has_rule(client: KubeClient) -> bool:
    try:
        await client.get(NODE_FEATURE_RULES, NODE_FEATURE_RULE)
    except NotFoundError:
        return False
    return True


def _of_features(obj: Object) -> Object:
    """What is kept of a NodeFeature; a node's file systems and the like would take most of the memory."""
    metadata = {key: obj["metadata"].get(key) for key in ("name", "namespace", "labels")}
    found = (obj.get("spec") or {}).get("features") or {}
    kept = {
        kind: {name: feature for name, feature in (found.get(kind) or {}).items() if name in _asked_for()}
        for kind in ("instances", "attributes", "flags")
    }
    return {"metadata": metadata, "spec": {"features": kept}}


def _name_and_labels(obj: Object) -> tuple[str, dict[str, str]]:
    return obj["metadata"]["name"], obj["metadata"].get("labels") or {}


@cache
def _asked_for() -> frozenset[str]:
    rules = node_feature_rule()["spec"]["rules"]
    return frozenset(term["feature"] for one in rules for term in one.get("matchFeatures") or ())

"""Checks the labels of GPU nodes against the shipped NodeFeatureRule, and lists rare models."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from gpuledger.api.kinds import NODE_FEATURE_RULE, NODE_FEATURE_RULES, NODE_FEATURES, NODES
from gpuledger.api.labels import (
    GFD_PRODUCT,
    LABEL_DEVICE_COUNT,
    LABEL_DEVICE_PREFIX,
    LABEL_DRIVER_MODULE_PREFIX,
    LABEL_DRIVER_NAME,
    LABEL_KERNEL_PREFIX,
    LABEL_PRESENT,
    LABEL_TRUE,
    NFD_NODE_NAME,
    NFD_PCI_DEVICE,
    VENDOR_NVIDIA,
)
from gpuledger.domain.inventory.feature_rule import OS_LABELS, Features, expected_labels, holds
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.tools.cluster import object_or_none

RARE_NODES: Final = 3
"""A model on fewer nodes than these is rare."""

RARE_SHARE: Final = 0.01
"""A model that is less than this part of all cards is rare."""

GPU_LIKE_CLASSES: Final = ("03", "0b40", "12")
"""PCI classes of display controllers, co-processors and processing accelerators: what may be a GPU."""

GOVERNED: Final = (LABEL_PRESENT, LABEL_DEVICE_COUNT, LABEL_DRIVER_NAME, *OS_LABELS.values())
GOVERNED_PREFIXES: Final = (LABEL_DEVICE_PREFIX, LABEL_DRIVER_MODULE_PREFIX, LABEL_KERNEL_PREFIX)
"""Labels that nobody but the rule sets."""


class LabelFinding(StrEnum):
    """What is wrong with a label or device; the last one is no mistake."""

    MISSING = "missing"
    UNEXPECTED = "unexpected"
    DIFFERENT = "different"
    UNCOVERED = "uncovered"
    NO_FEATURES = "no-node-feature"
    RARE = "rare-model"


class FindingRow(NamedTuple):
    """One finding about a node. `label` is empty where it is not about one."""

    node: str
    finding: LabelFinding
    label: str | None = None
    expected: str | None = None
    actual: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class FeaturedNode:
    """A node: its labels and features; None where no NodeFeature describes it."""

    name: str
    labels: Mapping[str, str]
    features: Features | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The outcome. `nodes` counts those with GPUs, `wrong_nodes` those with a wrong label.

    `has_rule` says whether the cluster has the shipped rule at all.
    """

    rows: list[FindingRow]
    nodes: int
    wrong_nodes: int
    cards: int
    models: int
    has_rule: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether every GPU node has the labels that it should have, and no others."""
        return self.wrong_nodes == 0


async def coverage_of(client: KubeClient) -> Coverage:
    """Check every GPU node of a cluster.

    Raises:
        UnknownRuleError: this check does not know the rule of this build.
    """
    features = features_by_node((await client.collect(NODE_FEATURES, _relevant)).items)
    metadata = (await client.collect(NODES, lambda obj: obj["metadata"])).items
    nodes = [FeaturedNode(one["name"], one.get("labels") or {}, features.get(one["name"])) for one in metadata]
    found = coverage(nodes, node_feature_rule())
    rule = await object_or_none(client, NODE_FEATURE_RULES, NODE_FEATURE_RULE)
    return replace(found, has_rule=rule is not None)


def coverage(nodes: Iterable[FeaturedNode], rule: Object) -> Coverage:
    """Compare every GPU node's labels with those that the rule derives from the features.

    Raises:
        UnknownRuleError: the rule has a template, or an operator, that this check does not know.
    """
    gpu_nodes = sorted((node for node in nodes if is_gpu_node(node)), key=lambda node: node.name)
    wrong = {node.name: list(findings(node, rule)) for node in gpu_nodes}
    models = _models(gpu_nodes)
    rows = [row for rows in wrong.values() for row in rows] + list(_rare(models))
    cards = sum(sum(cards.values()) for cards in models.values())
    return Coverage(rows, len(gpu_nodes), sum(map(bool, wrong.values())), cards, len(models))


def is_gpu_node(node: FeaturedNode) -> bool:
    """Whether the node has GPUs, by its features or by its labels."""
    claimed = node.labels.get(LABEL_PRESENT) == LABEL_TRUE or any(
        key.startswith(LABEL_DEVICE_PREFIX) for key in node.labels
    )
    return claimed or any(_may_be_gpu(device) for device in _devices(node))


def findings(node: FeaturedNode, rule: Object) -> Iterator[FindingRow]:
    """The findings about one node's labels."""
    if node.features is None:
        detail = "The node has GPU labels, and no NodeFeature tells of its devices."
        yield FindingRow(node.name, LabelFinding.NO_FEATURES, detail=detail)
        return
    expected = expected_labels(node.features, rule)
    actual = {key: value for key, value in node.labels.items() if is_governed(key)}
    for label in sorted(expected.keys() | actual.keys()):
        desired, found = expected.get(label), actual.get(label)
        if desired != found:
            yield FindingRow(node.name, _finding(desired, found), label, desired, found)
    for device in uncovered(_devices(node), rule):
        detail = f"{_model(device)} has the PCI class {device.get('class')}, which the rule does not look for."
        yield FindingRow(node.name, LabelFinding.UNCOVERED, detail=detail)


def uncovered(devices: Iterable[Mapping[str, str]], rule: Object) -> Iterator[Mapping[str, str]]:
    """The devices that may be GPUs, and that no part of the rule matches."""
    terms = [term for one in rule["spec"]["rules"] for term in one.get("matchFeatures") or ()]
    matching_any = [term.get("matchExpressions") or {} for term in terms if term["feature"] == NFD_PCI_DEVICE]
    for device in devices:
        if _may_be_gpu(device) and not any(holds(device, expressions) for expressions in matching_any):
            yield device


def is_governed(label: str) -> bool:
    """Whether the label is the rule's to set."""
    return label in GOVERNED or label.startswith(GOVERNED_PREFIXES)


def _finding(desired: str | None, found: str | None) -> LabelFinding:
    if found is None:
        return LabelFinding.MISSING
    return LabelFinding.UNEXPECTED if desired is None else LabelFinding.DIFFERENT


def _devices(node: FeaturedNode) -> list[dict[str, str]]:
    return node.features.instances.get(NFD_PCI_DEVICE, []) if node.features else []


def _may_be_gpu(device: Mapping[str, str]) -> bool:
    return device.get("vendor") == VENDOR_NVIDIA and device.get("class", "").startswith(GPU_LIKE_CLASSES)


def _model(device: Mapping[str, str]) -> str:
    return f"{device.get('vendor')}:{device.get('device')}"


def _models(nodes: Iterable[FeaturedNode]) -> dict[str, dict[str, int]]:
    """How many cards of each model each node has; a product's name joins the model where the node's labels tell it."""
    models: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for node in nodes:
        for device in _devices(node):
            if _may_be_gpu(device):
                product = f" {node.labels[GFD_PRODUCT]}" if GFD_PRODUCT in node.labels else ""
                models[f"{_model(device)}{product}"][node.name] += 1
    return models


def _rare(models: Mapping[str, Mapping[str, int]]) -> Iterator[FindingRow]:
    """A row per node of every rare model; where all cards are of one model, none is rare."""
    total = sum(sum(cards.values()) for cards in models.values())
    for model, nodes in sorted(models.items()):
        cards = sum(nodes.values())
        if len(models) > 1 and (len(nodes) < RARE_NODES or cards < RARE_SHARE * total):
            detail = f"{model}: {cards} of {total} cards, on {len(nodes)} node{'s' if len(nodes) > 1 else ''}."
            yield from (FindingRow(node, LabelFinding.RARE, detail=detail) for node in sorted(nodes))


def features_by_node(objects: Iterable[Object]) -> dict[str, Features]:
    """The features of each node, merged from all NodeFeatures that are labelled with its name.

    The one with the node's own name comes first, which gives the devices their order.
    """
    by_node: dict[str, list[Object]] = defaultdict(list)
    for obj in objects:
        if node := (obj["metadata"].get("labels") or {}).get(NFD_NODE_NAME):
            by_node[node].append(obj)
    return {node: _merged(sorted(found, key=lambda obj: _rank(obj, node))) for node, found in by_node.items()}


def _rank(obj: Object, node: str) -> tuple[bool, str, str]:
    metadata = obj["metadata"]
    return metadata["name"] != node, metadata.get("namespace") or "", metadata["name"]


def _merged(objects: Iterable[Object]) -> Features:
    merged = Features()
    for obj in objects:
        found = (obj.get("spec") or {}).get("features") or {}
        for name, feature in (found.get("instances") or {}).items():
            elements = feature.get("elements") or ()
            merged.instances.setdefault(name, []).extend(dict(one.get("attributes") or {}) for one in elements)
        for name, feature in (found.get("attributes") or {}).items():
            merged.attributes.setdefault(name, {}).update(feature.get("elements") or {})
        for name, feature in (found.get("flags") or {}).items():
            merged.flags.setdefault(name, set()).update(feature.get("elements") or {})
    return merged


def _relevant(obj: Object) -> Object:
    """A NodeFeature without the features that the rule does not ask for; these would take most of the memory."""
    metadata = {key: obj["metadata"].get(key) for key in ("name", "namespace", "labels")}
    found = (obj.get("spec") or {}).get("features") or {}
    kept = {
        kind: {name: feature for name, feature in (found.get(kind) or {}).items() if name in _rule_features()}
        for kind in ("instances", "attributes", "flags")
    }
    return {"metadata": metadata, "spec": {"features": kept}}


@cache
def _rule_features() -> frozenset[str]:
    rules = node_feature_rule()["spec"]["rules"]
    return frozenset(term["feature"] for one in rules for term in one.get("matchFeatures") or ())

"""The labels that the shipped rule derives from features, and the findings where they are missing."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from gpuledger.domain.inventory.feature_rule import TEMPLATES, Features, UnknownRuleError, expected_labels
from gpuledger.edge.kube.crds import node_feature_rule
from gpuledger.tools.nfd_coverage import (
    Coverage,
    FeaturedNode,
    LabelFinding,
    coverage,
    features_by_node,
    is_governed,
)

RULE = node_feature_rule()
A100, T4, BMC = ("10de", "20b0", "0302"), ("10de", "1eb8", "0302"), ("1a03", "2000", "0300")
SYSTEM = {"full": "6.8.0-45-generic", "major": "6", "minor": "8", "revision": "0"}
RELEASE = {"ID": "ubuntu", "VERSION_ID": "24.04", "NAME": "Ubuntu"}

Card = tuple[str, str, str]


def features(*cards: Card, modules: tuple[str, ...] = (), kernel: Mapping[str, str] = SYSTEM) -> Features:
    instances = [dict(zip(("vendor", "device", "class"), card, strict=True)) for card in cards]
    return Features(
        {"pci.device": instances},
        {"kernel.version": dict(kernel), "system.osrelease": dict(RELEASE)},
        {"kernel.loadedmodule": set(modules)},
    )


def labelled(name: str, *cards: Card, found: Features | None = None, **changes: str | None) -> FeaturedNode:
    """A node with the labels that it should have, but for the changes (`__` is a dot, None removes)."""
    found = found or features(*cards)
    labels: dict[str, Any] = expected_labels(found, RULE)
    labels |= {f"gpu.deckhouse.io/{key.replace('__', '.')}": value for key, value in changes.items()}
    return FeaturedNode(name, {key: value for key, value in labels.items() if value is not None}, found)


def found_labels(result: Coverage) -> list[tuple[str, str, str | None]]:
    return [(row.node, str(row.finding), (row.label or "").removeprefix("gpu.deckhouse.io/")) for row in result.rows]


def test_the_labels_of_a_node_with_two_cards() -> None:
    made = expected_labels(features(BMC, A100, A100, modules=("nvidia", "nvidia_uvm", "ext4")), RULE)
    assert {key.removeprefix("gpu.deckhouse.io/"): value for key, value in made.items()} == {
        "present": "true",
        "device-count": "2",
        "device.00.vendor": "10de",
        "device.00.device": "20b0",
        "device.00.class": "0302",
        "device.01.vendor": "10de",
        "device.01.device": "20b0",
        "device.01.class": "0302",
        "driver.name": "nvidia",
        "driver.module.nvidia": "true",
        "driver.module.nvidia_uvm": "true",
        "kernel.version.full": "6.8.0-45-generic",
        "kernel.version.major": "6",
        "kernel.version.minor": "8",
        "os.id": "ubuntu",
        "os.version_id": "24.04",
    }


def test_every_label_of_the_rule_is_governed() -> None:
    modules = ("nvidia", "nvidia_modeset", "nvidia_uvm", "nvidia_drm")
    assert all(map(is_governed, expected_labels(features(A100, modules=modules), RULE)))
    assert not is_governed("gpu.deckhouse.io/enabled")


def test_every_template_of_the_rule_is_covered() -> None:
    assert {one["name"] for one in RULE["spec"]["rules"] if "labelsTemplate" in one} == set(TEMPLATES)


@pytest.mark.parametrize("kernel", [{"full": "6.8", "major": "6"}, {}])
def test_a_rule_whose_facts_are_not_all_there_makes_nothing(kernel: dict[str, str]) -> None:
    made = expected_labels(features(A100, kernel=kernel), RULE)
    assert not [key for key in made if "kernel" in key or "os." in key]


@pytest.mark.parametrize("full", ["6.8.0+custom", "-6.8", "6" * 64])
def test_a_value_that_kubernetes_would_refuse_is_not_expected(full: str) -> None:
    made = expected_labels(features(A100, kernel=SYSTEM | {"full": full}), RULE)
    assert "gpu.deckhouse.io/kernel.version.full" not in made
    assert made["gpu.deckhouse.io/kernel.version.major"] == "6"


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (labelled("w1", A100), []),
        (labelled("w1", A100, present=None), [("w1", "missing", "present")]),
        (labelled("w1", A100, device__00__device="2203"), [("w1", "different", "device.00.device")]),
        (labelled("w1", A100, device__01__vendor="10de"), [("w1", "unexpected", "device.01.vendor")]),
        (labelled("w1", A100, enabled="false"), []),
        (labelled("w1", ("10de", "1ad8", "0c03"), A100), []),
        (labelled("w1", A100, ("10de", "2302", "0380")), [("w1", "uncovered", "")]),
        (labelled("w1", ("10de", "2302", "0380")), [("w1", "uncovered", "")]),
        (FeaturedNode("w1", {"gpu.deckhouse.io/present": "true"}, None), [("w1", "no-node-feature", "")]),
        (FeaturedNode("w1", {"kubernetes.io/os": "linux"}, None), []),
        (FeaturedNode("w1", {}, features(BMC)), []),
    ],
)
def test_the_findings_about_a_node(node: FeaturedNode, expected: list[tuple[str, str, str]]) -> None:
    result = coverage([node], RULE)
    assert [one for one in found_labels(result) if one[1] != LabelFinding.RARE] == expected
    assert result.is_complete == (not expected)


def test_expected_and_actual_stand_side_by_side() -> None:
    (row,) = coverage([labelled("w1", A100, device__00__device="2203")], RULE).rows
    assert (row.expected, row.actual) == ("20b0", "2203")


def test_labels_on_a_node_without_cards_are_left_over() -> None:
    node = FeaturedNode("w1", {"gpu.deckhouse.io/present": "true"}, features(BMC, kernel={}))
    assert found_labels(coverage([node], RULE)) == [("w1", "unexpected", "present")]


def test_rare_models_are_pointed_out_and_are_no_failure() -> None:
    common = [labelled(f"a{number}", *[A100] * 8) for number in range(3)]
    result = coverage([*common, labelled("t1", T4), labelled("t2", T4)], RULE)
    assert [(row.node, row.finding) for row in result.rows] == [("t1", LabelFinding.RARE), ("t2", LabelFinding.RARE)]
    assert result.rows[0].detail == "10de:1eb8: 2 of 26 cards, on 2 nodes."
    assert (result.is_complete, result.nodes, result.cards, result.models) == (True, 5, 26, 2)


def test_a_model_on_many_nodes_is_rare_where_it_is_a_small_part() -> None:
    many = [labelled(f"a{number:03}", *[A100] * 8) for number in range(60)]
    few = [labelled(f"t{number}", T4) for number in range(3)]
    assert {row.node for row in coverage([*many, *few], RULE).rows} == {"t0", "t1", "t2"}
    assert coverage([*many[:3], *few], RULE).rows == []


def test_the_only_model_is_not_rare() -> None:
    assert coverage([labelled("w1", A100)], RULE).rows == []


def test_several_node_features_add_up_the_nodes_own_first() -> None:
    objects = yaml.safe_load("""
    - metadata: {name: extra, namespace: nfd, labels: {nfd.node.kubernetes.io/node-name: w1}}
      spec: {features: {instances: {pci.device: {elements: [{attributes: {vendor: "10de", device: "1eb8"}}]}}}}
    - metadata: {name: w1, namespace: nfd, labels: {nfd.node.kubernetes.io/node-name: w1}}
      spec:
        features:
          instances: {pci.device: {elements: [{attributes: {vendor: "10de", device: "20b0"}}]}}
          flags: {kernel.loadedmodule: {elements: {nvidia: {}}}}
          attributes: {kernel.version: {elements: {major: "6"}}}
    - metadata: {name: stray, namespace: nfd}
      spec: {}
    """)
    (found,) = features_by_node(objects).values()
    assert [device["device"] for device in found.instances["pci.device"]] == ["20b0", "1eb8"]
    assert (found.flags, found.attributes) == (
        {"kernel.loadedmodule": {"nvidia"}}, {"kernel.version": {"major": "6"}},
    )  # fmt: skip


def test_a_rule_that_the_check_does_not_know_is_refused() -> None:
    one = {"name": "new", "matchFeatures": RULE["spec"]["rules"][0]["matchFeatures"], "labelsTemplate": "a=b"}
    with pytest.raises(UnknownRuleError, match="template of the rule 'new'"):
        coverage([labelled("w1", A100)], {"spec": {"rules": [one]}})
    odd = {"name": "odd", "matchFeatures": [{"feature": "pci.device", "matchExpressions": {"vendor": {"op": "Gt"}}}]}
    with pytest.raises(UnknownRuleError, match="Gt"):
        coverage([labelled("w1", A100)], {"spec": {"rules": [odd]}})

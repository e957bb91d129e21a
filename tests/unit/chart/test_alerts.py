"""The chart's alerts: each has a page, says how bad it is, asks for series that somebody serves, and is tested."""

import re
from pathlib import Path

import pytest
import yaml

from support.chart import CHART, WITH_SECRET, needs_helm, render
from support.paths import ROOT
from support.promql import parse, selectors
from support.promql_labels import LabelCheck
from support.rules import RULE_FILES, RULE_TESTS, Rule, needs_promtool, promtool, rules
from support.served_metrics import RECORDED, VALUES, in_prometheus

VALUES_WITH_RULES = {**WITH_SECRET, "prometheusRule": {"enabled": True, "labels": {"release": "prom"}}}
OF_CHART = tuple(path for path in RULE_FILES if path.is_relative_to(CHART))
SEVERITIES = {"critical", "warning", "info"}
BY_NAME = {rule.alert: rule for rule in rules()}

FIRES = re.compile(r'alertname="(\w+)"')
NAMED = re.compile(r"\$labels\.(\w+)")


def texts_of(rule: Rule) -> str:
    return " ".join(rule.document["annotations"].values())


def checked(rule: Rule, check: LabelCheck) -> list[str]:
    """What the rule asks for that there is not; its texts may name the labels that its expression leaves."""
    labels = check.labels(parse(rule.expr))
    missing = [] if labels is None else sorted(set(NAMED.findall(texts_of(rule))) - labels)
    return check.problems + [f"its texts name the label {name}" for name in missing]


def test_no_two_alerts_have_one_name() -> None:
    assert len(BY_NAME) == len(rules())


@pytest.mark.parametrize("rule", rules(OF_CHART), ids=lambda rule: rule.alert)
def test_an_alert_has_a_page_and_says_how_bad_it_is(rule: Rule) -> None:
    page = ROOT / rule.document["annotations"]["runbook"]
    assert page.stem == rule.alert
    assert page.read_text().startswith(f"# {rule.alert}\n")
    assert {"summary", "description"} <= rule.document["annotations"].keys()
    assert rule.document["labels"]["severity"] in SEVERITIES


def test_every_page_is_of_an_alert() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "alerts").glob("*.md")}
    assert pages == {rule.alert for rule in rules(OF_CHART)}


@needs_helm
@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.alert)
def test_an_alert_asks_for_series_that_there_are(rule: Rule) -> None:
    exporters = {one.metric: None for one in selectors(parse(rule.expr)) if one.metric.startswith("DCGM_")}
    assert checked(rule, LabelCheck({**in_prometheus(), **exporters}, VALUES)) == []


@needs_helm
@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recordings in {RECORDED}")
@pytest.mark.parametrize("rule", [one for one in rules() if "DCGM_" in one.expr], ids=lambda rule: rule.alert)
def test_an_alert_asks_exporters_for_what_was_recorded_of_them(rule: Rule) -> None:
    assert checked(rule, LabelCheck(in_prometheus(RECORDED), VALUES)) == []


@needs_helm
def test_the_cluster_gets_the_rules_as_they_lie_in_the_files() -> None:
    rule = render(VALUES_WITH_RULES).one("PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prom"
    assert rule["spec"] == {
        "groups": [group for path in OF_CHART for group in yaml.safe_load(path.read_text())["groups"]]
    }


@needs_promtool
@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_promtool_takes_the_file(path: Path) -> None:
    assert "SUCCESS" in promtool("check", "rules", path)


@needs_promtool
@pytest.mark.parametrize("path", RULE_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_when_they_should(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", path)


def expected() -> list[set[str]]:
    """The alerts that each expectation of the tests for promtool has, which are all that fire at its time."""
    documents = [yaml.safe_load(path.read_text()) for path in RULE_TESTS]
    cases = [case for one in documents for test in one["tests"] for case in test["promql_expr_test"]]
    return [
        {name for sample in case.get("exp_samples", ()) for name in FIRES.findall(sample["labels"])} for case in cases
    ]


def test_every_alert_is_expected_to_fire_somewhere_and_to_be_silent_elsewhere() -> None:
    cases = expected()
    assert {name for case in cases for name in case} == BY_NAME.keys()
    assert all(any(name not in case for case in cases) for name in BY_NAME)


def test_every_rule_file_is_tested() -> None:
    tested = {
        (path.parent / name).resolve() for path in RULE_TESTS for name in yaml.safe_load(path.read_text())["rule_files"]
    }
    assert tested == {path.resolve() for path in RULE_FILES}

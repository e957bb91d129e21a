"""Which rights the chart grants for remedies of nodes: those that the values name, and no others."""

import pytest

from support.chart import NAME, WITH_SECRET, needs_helm, render, template

pytestmark = needs_helm


def test_only_the_kinds_that_are_named_may_be_created() -> None:
    before = render(WITH_SECRET).one("ClusterRole", NAME)["rules"]
    objects = [{"apiGroup": "janitor.example.com", "resources": ["rebootnodes", "gpuresets"]}]
    after = render(WITH_SECRET | {"remediation": {"objects": objects}}).one("ClusterRole", NAME)["rules"]
    assert [rule for rule in after if rule not in before] == [
        {
            "apiGroups": ["janitor.example.com"],
            "resources": ["rebootnodes", "gpuresets"],
            "verbs": ["get", "create", "delete"],
        }
    ]


@pytest.mark.parametrize("wrong", [{"apiGroup": "*", "resources": ["a"]}, {"apiGroup": "a", "resources": ["*"]}])
def test_rights_to_everything_are_refused(wrong: dict[str, object]) -> None:
    assert "remediation" in template(WITH_SECRET | {"remediation": {"objects": [wrong]}}).err

"""Texts among the chart's values that are refused in words: each value is there, and nothing else judges it."""

from typing import Any

import orjson
import pytest
import yaml

from gpuledger.edge.watchers.resources import moduleconfig
from support.chart import CHART, WITH_SECRET, needs_helm, template

RULES = yaml.safe_load((CHART / "value-patterns.yaml").read_text(encoding="utf-8"))
SCHEMA = orjson.loads((CHART / "values.schema.json").read_bytes())
NONSENSE = "@nonsense@"


def given(path: str, value: str) -> dict[str, Any]:
    first, *names = path.split(".")
    below: Any = value
    for name in reversed(names):
        below = {name: below}
    before: dict[str, Any] = WITH_SECRET.get(first, {})
    return {**WITH_SECRET, first: {**before, **below}}


@needs_helm
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["value"])
def test_each_is_refused_in_words_alone(rule: dict[str, Any]) -> None:
    schema = SCHEMA
    for name in rule["value"].split("."):
        schema = schema["properties"][name]
    assert "pattern" not in schema
    result = template(given(rule["value"], NONSENSE))
    assert result.code
    assert f"not {rule['words']}" in result.err
    assert rule["pattern"] not in result.err
    assert (NONSENSE in result.err) is not rule.get("holdsSecret", False)


@needs_helm
def test_all_of_them_are_refused_at_once() -> None:
    settings = {"bootstrap": {"validationTimeout": "1"}, "inventory": {"resyncPeriod": "1"}}
    result = template({**WITH_SECRET, "settings": settings})
    assert "settings.inventory.resyncPeriod is" in result.err
    assert "settings.bootstrap.validationTimeout is" in result.err


def test_those_of_the_settings_are_the_services_own() -> None:
    shipped = {(one["value"], one["pattern"], one["words"]) for one in RULES if one["value"].startswith("settings.")}
    assert shipped == {(f"settings.{path}", pattern, words) for path, pattern, words in moduleconfig.patterns()}

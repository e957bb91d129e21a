"""The Helm chart's files agree with each other, with the project and with the documentation; none of it needs helm."""

import re
import tomllib
from collections.abc import Iterator

import yaml

from support.chart import CHART, Object
from support.paths import ROOT


def test_the_chart_has_the_projects_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])


def test_every_value_is_in_the_schema_and_in_the_documentation_with_its_default() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    guide = (ROOT / "docs" / "installing.md").read_text()
    table = re.findall(r"^\| `([A-Za-z.]+)` \| `(.*?)` \|", guide, re.MULTILINE)
    assert [(name, yaml.safe_load(default)) for name, default in table] == list(_leaves(values, schema))


def _leaves(values: Object, schema: Object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value that a user may set, with its default; fails where schema and values have not the same."""
    assert set(schema["properties"]) - {"global"} == set(values), path
    for key, value in values.items():
        kind = schema["properties"][key]
        if "properties" in kind and value != {}:  # what has no default is documented elsewhere
            yield from _leaves(value, kind, f"{path}{key}.")
        else:
            yield f"{path}{key}", value

"""Grafana's dashboards of the chart, as their files have them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from support.chart import CHART

FILES: Final = tuple(sorted((CHART / "dashboards").glob("*.json")))
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}

_VARIABLE: Final = re.compile(r"label_values\((\w+), (\w+)\)")
_INTERVAL: Final = re.compile(r"\$__(?:rate_)?interval")


class Query(NamedTuple):
    """A query of a panel; `expr` is PromQL, with Grafana's intervals filled in, and `legend` names labels."""

    board: str
    panel: str
    expr: str
    legend: str


def board(path: Path) -> dict[str, Any]:
    """The model of a dashboard."""
    model: dict[str, Any] = orjson.loads(path.read_bytes())
    return model


def panels(path: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard that show something."""
    return [panel for panel in board(path)["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    """Every query of every panel."""
    return [
        Query(path.stem, panel["title"], _INTERVAL.sub("5m", target["expr"]), target.get("legendFormat", ""))
        for path in FILES
        for panel in panels(path)
        for target in panel["targets"]
    ]


def variables(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, metric and label of each variable whose values are those of a label."""
    for one in board(path)["templating"]["list"]:
        if one["type"] == "query":
            found = _VARIABLE.fullmatch(one["query"])
            assert found is not None, f"{path.stem}: the variable {one['name']} takes its values from no label"
            yield one["name"], found[1], found[2]

"""Grafana's dashboards: every query asks for series that our processes and recorded exporters really serve."""

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart import NAME, WITH_SECRET, needs_helm, render
from support.dashboards import DATASOURCE, FILES, Query, board, panels, queries, variables
from support.promql import parse, selectors
from support.promql_labels import LabelCheck
from support.rules import needs_promtool, promtool
from support.served_metrics import RECORDED, VALUES, in_prometheus

NAMES = {"overview", "node", "workloads", "health", "ledger"}
LEGEND = re.compile(r"\{\{(\w+)\}\}")
VARIABLE = re.compile(r"\$\{?(\w+)")
COLUMNS = 24

per_board = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
per_query = pytest.mark.parametrize("query", queries(), ids=lambda query: f"{query.board}: {query.panel}")


def checked(query: Query, check: LabelCheck) -> list[str]:
    """What a query asks for that there is not; its legend may name the labels that the query leaves."""
    labels = check.labels(parse(query.expr))
    missing = [] if labels is None else sorted(set(LEGEND.findall(query.legend)) - labels)
    return check.problems + [f"its legend names the label {name}" for name in missing]


def test_there_are_these_dashboards() -> None:
    assert {path.stem for path in FILES} == NAMES
    assert len({board(path)["uid"] for path in FILES}) == len({board(path)["title"] for path in FILES}) == len(NAMES)


@per_board
def test_a_dashboard_reads_from_the_data_source_that_people_choose(path: Path) -> None:
    first, *others = board(path)["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == ("datasource", "datasource", "prometheus")
    assert all(one["datasource"] == DATASOURCE for one in others)
    assert all(panel["datasource"] == DATASOURCE for panel in panels(path))
    assert all("datasource" not in target for panel in panels(path) for target in panel["targets"])


@per_board
def test_a_dashboard_uses_its_variables_and_no_others(path: Path) -> None:
    texts = [target["expr"] for panel in panels(path) for target in panel["targets"]]
    used = {name for text in texts for name in VARIABLE.findall(text) if not name.startswith("__")}
    assert used == {name for name, _, _ in variables(path)}


@needs_helm
@per_board
def test_a_variable_has_the_values_of_a_label_that_there_is(path: Path) -> None:
    for _, metric, label in variables(path):
        labels = in_prometheus()[metric]
        assert labels is not None
        assert label in labels


@per_board
def test_panels_say_what_they_show_and_lie_beside_each_other(path: Path) -> None:
    every = board(path)["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert all(panel["title"] and panel["description"] and panel["targets"] for panel in panels(path))
    places = [panel["gridPos"] for panel in every]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    assert not any(overlap(one, other) for one, other in combinations(places, 2))


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


@needs_helm
@per_query
def test_a_query_asks_for_series_that_there_are(query: Query) -> None:
    exporters = {one.metric: None for one in selectors(parse(query.expr)) if one.metric.startswith("DCGM_")}
    assert checked(query, LabelCheck({**in_prometheus(), **exporters}, VALUES)) == []


@needs_helm
@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recordings in {RECORDED}")
@pytest.mark.parametrize(
    "query", [one for one in queries() if "DCGM_" in one.expr], ids=lambda query: f"{query.board}: {query.panel}"
)
def test_a_query_asks_exporters_for_what_was_recorded_of_them(query: Query) -> None:
    assert checked(query, LabelCheck(in_prometheus(RECORDED), VALUES)) == []


@needs_promtool
def test_promtool_takes_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query_{number}", "expr": query.expr} for number, query in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", file)


def series(metric: str, value: int, **labels: str) -> dict[str, str]:
    """A series of a test for promtool, which has one value for an hour."""
    listed = ",".join(f'{name}="{text}"' for name, text in labels.items())
    return {"series": f"{metric}{{{listed}}}", "values": f"{value}x60"}


def held(pod: str, uuid: str, instance: str = "", units: int = 1) -> dict[str, str]:
    return series(
        "gpuledger_agent_held_units", units, exported_namespace="ml", exported_pod=pod, UUID=uuid, GPU_I_ID=instance
    )


def used(value: int, uuid: str, **labels: str) -> dict[str, str]:
    return series("DCGM_FI_DEV_FB_USED", value, UUID=uuid, gpu=uuid[-1], **labels)


WORKLOADS = [
    held("whole", "GPU-0"), held("whole", "GPU-1"), held("part", "GPU-2", "7"), held("shares", "GPU-3", units=2),
    held("shares-too", "GPU-3"), used(10, "GPU-0", Hostname="w1"), used(20, "GPU-1", hostname="w1"),
    used(5, "GPU-2", Hostname="w1", GPU_I_ID="7"), used(6, "GPU-2", Hostname="w1", GPU_I_ID="8"),
    used(40, "GPU-3", Hostname="exporter-x", node="w1"), used(9, "GPU-4", Hostname="w2"),
    used(7, "GPU-5", Hostname="w2", exported_namespace="ml", exported_pod="of-another-plugin"),
]  # fmt: skip
MEMORY_BY_POD = {"whole": 30, "part": 5, "shares": 40, "shares-too": 40, "of-another-plugin": 7}
MEMORY_ON_NODE = {("0", ""): 10, ("1", ""): 20, ("2", "7"): 5, ("2", "8"): 6, ("3", ""): 40}


@needs_promtool
def test_measurements_meet_the_pods_of_pools_and_the_nodes_of_both_spellings(tmp_path: Path) -> None:
    exprs = {(query.board, query.panel): query.expr for query in queries()}
    by_pod = [
        {"labels": f'{{exported_namespace="ml", exported_pod="{pod}"}}', "value": value}
        for pod, value in MEMORY_BY_POD.items()
    ]
    on_node = [
        {"labels": f'{{gpu="{gpu}", GPU_I_ID="{instance}"}}'.replace(', GPU_I_ID=""', ""), "value": value}
        for (gpu, instance), value in MEMORY_ON_NODE.items()
    ]
    cases = [
        (exprs["workloads", "Memory by pod"].replace("$namespace", ".+"), by_pod),
        (exprs["node", "Memory in use"].replace("$node", "w1"), on_node),
    ]
    tests = [{"expr": expr, "eval_time": "30m", "exp_samples": samples} for expr, samples in cases]
    document = {"tests": [{"interval": "1m", "input_series": WORKLOADS, "promql_expr_test": tests}]}
    file = tmp_path / "queries.test.yaml"
    file.write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", file)


@needs_helm
def test_the_cluster_gets_the_dashboards_as_they_lie_in_the_files() -> None:
    values = {"enabled": True, "labels": {"load": "yes"}, "annotations": {"folder": "GPUs"}}
    made = render({**WITH_SECRET, "dashboards": values})
    assert made.names("ConfigMap") == {f"{NAME}-{name}" for name in NAMES}
    for path in FILES:
        config_map = made.one("ConfigMap", f"{NAME}-{path.stem}")
        assert config_map["data"] == {f"gpuledger-{path.name}": path.read_text()}
        assert config_map["metadata"]["labels"]["load"] == "yes"
        assert config_map["metadata"]["annotations"] == {"folder": "GPUs"}
    assert "ConfigMap" not in render(WITH_SECRET).kinds()

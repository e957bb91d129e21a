"""Which API server a command reads, Events as rows, and Kubernetes kinds and names."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.cli.commands.timeline import NODE_VIEW
from gpuledger.cli.errors import CliError
from gpuledger.cli.get.noun import KubeNoun
from gpuledger.cli.get.nouns import KUBE_NOUNS, NODES, noun_to_get
from gpuledger.cli.render import Column, Console
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.values import cell
from gpuledger.cli.times import format_time
from gpuledger.tools.cluster import OWN_KUBECONFIG, KubeAccess, event_of, kubeconfig_of
from gpuledger.tools.timeline import in_order, kube_row

NAMED = Path("/named")


@pytest.mark.parametrize(
    ("access", "environ", "own", "expected"),
    [
        (KubeAccess(NAMED), {"KUBECONFIG": "/e"}, True, "named"),
        (KubeAccess(), {"KUBECONFIG": "/e"}, True, None),
        (KubeAccess(), {}, True, "own"),
        (KubeAccess(), {}, False, None),
        (KubeAccess(context="prod"), {}, True, None),
    ],
)
def test_which_kubeconfig_is_used(
    access: KubeAccess, environ: dict[str, str], own: bool, expected: str | None, tmp_path: Path
) -> None:
    if own:
        (tmp_path / OWN_KUBECONFIG).write_text("")
    chosen = {"named": NAMED, "own": tmp_path / OWN_KUBECONFIG, None: None}[expected]
    assert kubeconfig_of(access._replace(data_dir=tmp_path), environ) == chosen


EVENT = {
    "metadata": {"name": "e", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "involvedObject": {"kind": "Node", "name": "w1"},
    "reason": "Cordoned",
    "type": "Normal",
    "message": "because\n",
}


@pytest.mark.parametrize(
    ("fields", "time", "first", "times"),
    [
        ({}, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", 1),
        ({"eventTime": "2026-01-02T00:00:00.500000Z"}, "2026-01-02T00:00:00.500000Z", "2026-01-02T00:00:00.500000Z", 1),
        (
            {"firstTimestamp": "2026-01-03T00:00:00Z", "lastTimestamp": "2026-01-04T00:00:00Z", "count": 7},
            "2026-01-04T00:00:00Z", "2026-01-03T00:00:00Z", 7,
        ),
        (
            {
                "eventTime": "2026-01-05T00:00:00.000000Z",
                "series": {"count": 3, "lastObservedTime": "2026-01-06T00:00:00.000000Z"},
            },
            "2026-01-06T00:00:00Z", "2026-01-05T00:00:00Z", 3,
        ),
    ],
)  # fmt: skip
def test_when_an_event_was(fields: dict[str, Any], time: str, first: str, times: int) -> None:
    event = event_of({**EVENT, **fields})
    assert (format_time(event.time), format_time(event.first_at), event.times) == (time, first, times)


@pytest.mark.parametrize(
    ("fields", "reporter"),
    [({"reportingComponent": "gpuledger"}, "gpuledger"), ({"source": {"component": "kubelet"}}, "kubelet")],
)
def test_the_reporter_of_an_event(fields: dict[str, Any], reporter: str) -> None:
    row = kube_row(event_of({**EVENT, **fields}))
    assert row["source"] == f"kubernetes/{reporter}"
    assert (row["about"], row["detail"]) == ("Node/w1", {"type": "Normal", "message": "because"})


def test_what_a_kind_means() -> None:
    assert noun_to_get("nodes") is NODES
    assert noun_to_get("Node") is NODES
    assert noun_to_get("no", kube=True) is KUBE_NOUNS["nodes"]
    assert noun_to_get("gpudev") is KUBE_NOUNS["gpudevices"] is noun_to_get("gpudevices.gpu.deckhouse.io")
    with pytest.raises(CliError, match="gpunodestates"):
        noun_to_get("unicorns")
    with pytest.raises(CliError, match="gpudevices, gpunodestates"):
        noun_to_get("workloads", kube=True)


@pytest.mark.parametrize("text", ["x", "gpudevice.gpu.deckhouse.io/x", "gpudevices/x", "gpudev/x"])
def test_names_are_taken_as_they_are_written(text: str) -> None:
    noun = noun_to_get("gpudevices")
    assert isinstance(noun, KubeNoun)
    assert noun.bare(text) == "x"


def test_a_timeline_shows_of_long_lists_how_long_they_are() -> None:
    (column,) = (one for one in NODE_VIEW.columns if one.field == "detail")
    detail = {"cards": [{"uuid": "a"}, {"uuid": "b"}], "labels": dict.fromkeys("abcdefghij", "1"), "names": ["x", "y"]}
    assert cell(detail, column) == "cards=(2) labels=(10) names=x,y"
    assert cell({"labels": {"a": "1"}}, column) == "labels=a=1"
    assert (
        cell({"include": {"products": ["x"], "ids": []}, "exclude": {"terms": {"a": ""}}}, column)
        == "include=products=x"
    )


def test_a_timeline_is_in_the_order_of_the_log() -> None:
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    rows = [(second, "1/3"), (first, "1/121"), (first, "1/41"), (first, None)]
    sorted_rows = in_order({"time": time, "position": position} for time, position in rows)
    assert [one["position"] for one in sorted_rows] == [None, "1/41", "1/121", "1/3"]


def test_a_page() -> None:
    page, out = Page(), io.StringIO()
    page.fields({"Name": "a", "In the fleet": True, "Odd": "\x1b[31m", "Empty": None, "Labels": {"b": "2", "a": "1"}})
    page.fields({}, title="Hardware")
    page.fields({"Product": "H200"}, title="GPUDevice")
    page.table("Lives", [{"slot": "s1", "to": None}], (Column("Slot", "slot"), Column("To", "to")))
    page.table("Failures", [], (Column("Kind", "kind"),))
    page.line("Events", "none\nat all")
    page.show(Console(out, io.StringIO()))
    assert out.getvalue() == (
        "Name:          a\n"
        "In the fleet:  true\n"
        "Odd:           \\x1b[31m\n"
        "Empty:         <none>\n"
        "Labels:        a=1\n"
        "               b=2\n"
        "Hardware:  <none>\n"
        "GPUDevice:\n"
        "  Product:  H200\n"
        "Lives:\n"
        "  Slot  To\n"
        "  ----  --\n"
        "  s1    <none>\n"
        "Failures:  <none>\n"
        "Events:  none\\nat all\n"
    )

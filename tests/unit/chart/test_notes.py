"""What helm tells people after an install or upgrade: what comes next, and what these values lack."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.chart import CHART, DATABASE, IMAGE, KUBE_VERSION, NATS, RELEASE, WITH_SECRET, helm, needs_helm

pytestmark = needs_helm

AS_OBJECT = """apiVersion: v1
kind: ConfigMap
metadata: {name: notes}
data:
  notes: {{ tpl (.Files.Get "notes.txt") . | toJson }}
"""
"""`helm template` renders no notes, so they are made an object."""

OWN_NATS: dict[str, Any] = {**IMAGE, "servers": {"natsUrl": NATS, "databaseUrl": DATABASE}}
LEDGER = "tls://nats.example:4222"
NOBODY = "agents log in as nobody"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    copy = tmp_path / "gpuledger"
    shutil.copytree(CHART, copy)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes.txt")
    (copy / "templates" / "notes.yaml").write_text(AS_OBJECT)
    return copy


def notes(chart: Path, values: dict[str, Any]) -> str:
    options = ("--show-only", "templates/notes.yaml", "--kube-version", KUBE_VERSION)
    made = helm("template", RELEASE, str(chart), *options, values=values)
    assert made.code == 0, made.err
    return str(yaml.safe_load(made.out)["data"]["notes"])


def test_default_values_name_the_servers_and_the_agents(chart: Path) -> None:
    shown = notes(chart, IMAGE)
    assert "It brings its own servers: NATS (1)" in shown
    assert "List the agents of the nodes" in shown
    assert "WARNING" not in shown
    assert "--reuse-values" not in shown


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"nats": {"persistence": {"enabled": False}}}, "LOST whenever the NATS pod is replaced"),
        ({"nats": {"replicas": 3, "persistence": {"enabled": False}}}, "LOST when two NATS pods are replaced at once"),
        ({"postgresql": {"persistence": {"enabled": False}}}, "The database is LOST"),
        ({"quarantine": {"rules": {"kind": "QuarantineRules"}}}, "-- gpuledger quarantine rules"),
        ({"agent": {"enabled": False}}, "agent.enabled is false; without that value they come by themselves"),
    ],
)
def test_what_these_values_lack_is_said(chart: Path, values: dict[str, Any], says: str) -> None:
    assert says in notes(chart, {**IMAGE, **values})


def test_agents_on_a_server_of_ones_own_need_credentials(chart: Path) -> None:
    assert "--set agent.enabled=true --set agent.nats.url=URL" in notes(chart, WITH_SECRET)
    nats: dict[str, Any] = {"url": LEDGER}
    assert NOBODY in notes(chart, {**OWN_NATS, "agent": {"enabled": True, "nats": nats}})
    nats["credentialsSecret"] = "agents"
    assert NOBODY not in notes(chart, {**OWN_NATS, "agent": {"enabled": True, "nats": nats}})

"""The benchmarks run, and say all that they promise; what they measure is for `make bench`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN_MAX_S = 1_800
"""A quick run takes some five minutes on two cores that nothing else uses."""

FIGURES = {"publishing", "fold in memory", "rebuild into PostgreSQL", "published -> committed", "peak memory"}
FIGURES |= {"cold start", "label of a Node -> status", "peak memory of the edge"}
FIGURES |= {"claim change -> status", "burst of", "a claim's change, folded"}
FIGURES |= {
    "annotation -> pool in the GPUDevice's status",
    "annotation -> assigned, and counted",
    "orders -> unit offered to the kubelet",
    "annotation -> unit offered to the kubelet",
    "events for an annotation",
    "published -> committed, 1,000/s, three servers",
    "start of admission",
    "peak memory of a start of admission",
    "11 projections in one process",
    "11 projections at rest",
    "an event, ",
    "sql --as-recorded",
    "sql --at",
    "an event in the log",
    "a day of",
    "as recorded",
    "memory of NATS",
    "looking up a name",
    "history, ",
    "get devices --at",
    "get devices --as-recorded",
    "timeline of a device",
    "start of devices",
    "rebuild of devices from a snapshot",
    "4 partitions, ",
    "health reports over TCP",
    "checks injected at 200/s",
    "pods scheduled in memory",
    "agent of machine configuration at rest, RSS",
    "`up --only rollout` at rest, RSS",
}


@pytest.mark.bench
@pytest.mark.timeout(RUN_MAX_S)
def test_a_quick_run_prints_a_table_and_writes_every_figure(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("main.py")), "--quick"]
    done = subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
    results = json.loads((tmp_path / "bench-results.json").read_text())
    names = [figure["figure"] for figure in results["figures"]]
    for name in FIGURES:
        assert any(found.startswith(name) for found in names)
    for figure in results["figures"]:
        # A quick run lists nothing again, and its snapshots are smaller than a figure shows.
        assert figure["value"] >= 0
        assert figure["peer_value"] > 0
        assert figure["verdict"] in ("ok", "missed", "-")
    assert "ceiling or peer" in done.stdout
    assert results["quick"]

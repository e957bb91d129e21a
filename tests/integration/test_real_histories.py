"""Titan and openb in one ledger: the figures of the papers, and any moment equal to the file.

`make test` imports every `PART`-th slot, node and pod and computes the figures from those rows; `make test-long`
imports all of them and has the papers' figures.
"""

import asyncio
import csv
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gpuledger.cli.times import format_time
from gpuledger.events.envelope import Undecoded, parse
from gpuledger.tools.importers.openb import SOURCE as OPENB
from gpuledger.tools.importers.titan import SOURCE as TITAN
from gpuledger.tools.queries.backend import all_projections
from support import servers
from support.cli import Cli
from support.imports import DATA
from support.ledgers import everything, jetstream_ledger
from support.titan import TitanFile

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the fleet traces are not at {DATA}")

PART: Final = 48
SECONDS_PER_HOUR: Final = 3600

FLEET_OF_TITAN: dict[str, Any] = {
    "devices": 30_207,
    "slots": 18_687,
    "lives": 36_185,
    "gpu_years": 100_822.06,
    "in_service": 18_637,
    "failures": {"DBE": 4_826, "OTB": 1_541},
    "overlaps": 18,
    "overlap_slots": 13,
    "devices_in_two_places": 2,
}
EVENTS_OF_TITAN = {
    "slot.declared": 18_687,
    "device.inserted": 36_185,
    "device.removed": 17_548,
    "device.failed": 6_367,
    "source.completed": 1,
}
EVENTS_OF_OPENB = {
    "node.registered": 1_213,
    "slot.declared": 6_212,
    "device.inserted": 6_212,
    "workload.submitted": 8_152,
    "workload.scheduled": 8_152 - 897,
    "workload.ended": 8_152 - 34,
    "source.completed": 1,
}
FLEET_OF_BOTH = {
    "workloads": 8_152,
    "never_scheduled": 897,
    "gpu_hours": 51_470.67,
    "devices": 30_207 + 6_212,
    "nodes": 18_687 + 1_213,
}
OF_DAYS_AND_INTERVALS = """
SELECT
    (SELECT round(sum(gpu_hours), 2) FROM report.gpu_hours_by_day) AS days,
    (SELECT round(sum(gpu_hours), 2) FROM report.gpu_hours) AS owners,
    (SELECT round(sum(gpus * hours), 2) FROM report.allocation) AS intervals
"""

ARCHIVED_REPORTS = ("fleet", "fleet-by-day", "gpu-hours", "contradictions")
ARCHIVED_TOTALS = """
    WITH failed AS (SELECT data ->> 'kind' AS kind, count(*) AS times FROM events WHERE event = 'failed' GROUP BY kind)
    SELECT
        count(DISTINCT subject) FILTER (WHERE aggregate = 'device') AS devices,
        count(DISTINCT subject) FILTER (WHERE event = 'submitted') AS workloads,
        count(*) FILTER (WHERE event = 'inserted') AS lives,
        (SELECT json_group_object(kind, times) FROM failed) AS failures,
        (SELECT round(sum(gpus * hours), 2) FROM allocation) AS gpu_hours
    FROM events
"""
"""From the archived events, and from rows beside them."""


@pytest.fixture
def urls(database_url: str) -> Iterator[dict[str, str]]:
    """Two real servers for this data alone, and the environment that names them."""
    with servers.nats_server() as nats:
        yield {"NATS_URL": nats.url, "DATABASE_URL": database_url}


class Histories(NamedTuple):
    """The files, and what they come to: rows of `report fleet` and events by their type."""

    titan: Path
    nodes: Path
    pods: Path
    fleet_of_titan: dict[str, Any]
    fleet_of_both: dict[str, Any]
    events_of_titan: dict[str, int]
    events_of_openb: dict[str, int]


TITAN_CSV, NODES_CSV, PODS_CSV = (
    DATA / f"{name}.csv" for name in ("titan_gc_full", "openb_node_list_gpu_node", "openb_pod_list_default")
)
WHOLE = Histories(
    TITAN_CSV, NODES_CSV, PODS_CSV, FLEET_OF_TITAN, FLEET_OF_BOTH, EVENTS_OF_TITAN, EVENTS_OF_OPENB
)  # fmt: skip


def part(folder: Path) -> Histories:
    """Every `PART`-th slot, node and pod."""
    titan = _some_rows(TITAN_CSV, "location", folder / "titan.csv")
    nodes = _some_rows(NODES_CSV, "sn", folder / "nodes.csv")
    pods = _some_rows(PODS_CSV, "name", folder / "pods.csv")
    fleet, events = _of_titan(TitanFile(titan))
    gpus = sum(int(row["gpu"]) for row in _rows(nodes))
    of_pods, events_of_pods = _of_pods(_rows(pods))
    of_nodes = {"devices": fleet["devices"] + gpus, "nodes": fleet["slots"] + len(_rows(nodes))}
    events_of_nodes = {"node.registered": len(_rows(nodes)), "slot.declared": gpus, "device.inserted": gpus}
    return Histories(titan, nodes, pods, fleet, of_pods | of_nodes, events, events_of_nodes | events_of_pods)


def _of_titan(titan: TitanFile) -> tuple[dict[str, Any], dict[str, int]]:
    overlaps, failures = titan.overlaps(), titan.failures()
    ended = sum(life.end is not None for life in titan.lives)
    fleet = {
        "devices": len(titan.devices()),
        "slots": len(titan.slots()),
        "lives": len(titan.lives),
        "gpu_years": pytest.approx(titan.gpu_years(), abs=0.005),
        "in_service": len({device for device, _ in titan.installed(titan.data_end)}),
        "failures": failures,
        "overlaps": len(overlaps),
        "overlap_slots": len(set(overlaps)),
        "devices_in_two_places": len(titan.devices_in_two_places()),
    }
    assert ended, "some lives end before the data does"
    assert failures, "some cards fail"
    events = {
        "slot.declared": len(titan.slots()),
        "device.inserted": len(titan.lives),
        "device.removed": ended,
        "device.failed": sum(failures.values()),
        "source.completed": 1,
    }
    return fleet, events


def _of_pods(pods: list[dict[str, str]]) -> tuple[dict[str, Any], dict[str, int]]:
    end = max(int(time) for row in pods for name, time in row.items() if name.endswith("_time") and time)
    running = [row for row in pods if row["pod_phase"] == "Running" and row["deletion_time"] == str(end)]
    ended = [row for row in pods if row["deletion_time"] and row not in running]
    scheduled = [row for row in pods if row["scheduled_time"]]
    assert 0 < len(scheduled) < len(pods), "some pods are scheduled and some are not"
    hours = [
        (int(row["deletion_time"] or end) - int(row["scheduled_time"])) / SECONDS_PER_HOUR * _gpus(row)
        for row in scheduled
    ]
    fleet = {
        "workloads": len(pods),
        "never_scheduled": len(pods) - len(scheduled),
        "gpu_hours": pytest.approx(sum(hours), abs=0.005),
    }
    events = {"workload.submitted": len(pods), "workload.scheduled": len(scheduled), "workload.ended": len(ended)}
    return fleet, {**events, "source.completed": 1}


def _gpus(row: dict[str, str]) -> float:
    """How many cards a pod has: a part of one, or whole ones."""
    count = int(row["num_gpu"])
    return int(row["gpu_milli"]) / 1000 if count == 1 else count


def _some_rows(path: Path, column: str, to: Path) -> Path:
    """The rows about every `PART`-th name of a column."""
    rows = _rows(path)
    names = set(sorted({row[column] for row in rows})[::PART])
    with to.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if row[column] in names)
    return to


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def cli(
    urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Cli:
    """The command line on those servers, with a place for snapshots."""
    for name, url in (urls | {"GPULEDGER_OBJECTS_URL": (tmp_path / "objects").as_uri()}).items():
        monkeypatch.setenv(name, url)
    return Cli(capsys)


@pytest.mark.shared
@needs_data
def test_a_part_of_real_histories(cli: Cli, urls: dict[str, str], tmp_path: Path) -> None:
    _agrees(cli, part(tmp_path), urls["NATS_URL"], tmp_path / "archive")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.shared
@needs_data
def test_real_histories(cli: Cli, urls: dict[str, str], tmp_path: Path) -> None:
    _agrees(cli, WHOLE, urls["NATS_URL"], tmp_path / "archive")


def _agrees(cli: Cli, histories: Histories, nats_url: str, archive: Path) -> None:
    assert cli("migrate").code == 0
    _titan(cli, histories)
    assert cli("snapshots", "take").code == 0
    _openb(cli, histories)
    asyncio.run(_log(nats_url, histories))
    assert cli("verify").code == 0
    _from_snapshots(cli)
    _archive(cli, str(archive))
    _close(cli, str(archive))


def _close(cli: Cli, location: str) -> None:
    """Rebuilt from the archive, once the log goes on elsewhere and its stream is gone, the reports are the same."""
    before = {report: cli("report", report, "-o", "json").json() for report in ARCHIVED_REPORTS}
    assert cli("log", "archive", "close", location, "--yes").code == 0
    assert cli("log", "archive", "delete-stream", location, "1", "--yes").code == 0
    assert cli("replay", "devices", "workloads").code == 0
    for report, rows in before.items():
        assert _rounded(cli("report", report, "-o", "json").json()) == _rounded(rows), report


def _titan(cli: Cli, histories: Histories) -> None:
    titan = TitanFile(histories.titan)
    assert cli("import", "titan", str(histories.titan)).code == 0  # 3 were it to reject a row
    row = _fleet(cli)
    assert {name: row[name] for name in histories.fleet_of_titan} == histories.fleet_of_titan
    for moment in (datetime(2015, 7, 1, tzinfo=UTC), titan.moments()[-1], titan.data_end):
        rows = cli("get", "devices", "--at", format_time(moment), "-o", "json").json()
        found = {row["device"] for row in rows if row["state"] == "InService"}
        assert found == {device for device, _ in titan.installed(moment)}


def _openb(cli: Cli, histories: Histories) -> None:
    assert cli("import", "openb", str(histories.nodes), str(histories.pods)).code == 0
    row = _fleet(cli)
    assert {name: row[name] for name in histories.fleet_of_both} == histories.fleet_of_both
    (totals,) = _totals(cli)
    assert (totals["days"], totals["days"]) == (totals["owners"], totals["intervals"])


async def _log(nats_url: str, histories: Histories) -> None:
    """The log holds every fact once, numbered without a hole, and each file's in the order of time."""
    async with jetstream_ledger(nats_url) as ledger:
        events = [parse(message.data) for message in await everything(ledger)]
    for source, expected in ((TITAN, histories.events_of_titan), (OPENB, histories.events_of_openb)):
        own = [event for event in events if event.source == source]
        assert Counter(map(_kind, own)) == expected
        assert [event.number for event in own] == list(range(1, len(own) + 1))
        times = [event.time for event in own]
        assert times == sorted(times)
    assert len({event.id for event in events}) == len(events)


def _from_snapshots(cli: Cli) -> None:
    """Rows that were rebuilt from the snapshots behind Titan, and the past from there, are what the log says."""
    live = _fleet(cli), _totals(cli)
    replayed = cli("replay")
    assert replayed.code == 0
    assert replayed.err.count("rebuilt from the snapshot at 1/") == len(all_projections()), replayed.err
    assert (_fleet(cli), _totals(cli)) == live
    assert cli("verify", "devices", "workloads").code == 0
    assert _totals(cli, "--as-recorded", "now") == live[1]


def _totals(cli: Cli, *moment: str) -> list[Any]:
    found: list[Any] = cli("sql", OF_DAYS_AND_INTERVALS, *moment, "-o", "json").json()
    return found


def _archive(cli: Cli, location: str) -> None:
    """The archive has the same reports, and the events that they follow from."""
    assert cli("log", "archive", "write", location).code == 0
    for report in ARCHIVED_REPORTS:
        live, archived = (cli("report", report, "-o", "json", *more).json() for more in ((), ("--archive", location)))
        assert _rounded(archived) == _rounded(live), report
    (row,) = cli("sql", "--archive", location, ARCHIVED_TOTALS, "-o", "json").json()
    fleet = _fleet(cli)
    assert row == {name: fleet[name] for name in row}


def _rounded(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows in an order of their own; the archive's numbers are binary."""
    return sorted(tuple(f"{one:.6g}" if isinstance(one, float) else str(one) for one in row.values()) for row in rows)


def _fleet(cli: Cli) -> dict[str, Any]:
    (row,) = cli("report", "fleet", "-o", "json").json()
    assert isinstance(row, dict)
    return row


def _kind(event: Undecoded) -> str:
    return event.type.removeprefix("io.gpuledger.").removesuffix(".v1")

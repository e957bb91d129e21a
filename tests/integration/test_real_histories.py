"""Titan and openb in one ledger: the figures of the papers, and any moment equal to the file."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.cli.times import format_time
from gpuledger.events.envelope import Undecoded, parse
from gpuledger.tools.importers.openb import SOURCE as OPENB
from gpuledger.tools.importers.titan import SOURCE as TITAN
from support import servers
from support.cli import Cli
from support.imports import DATA
from support.ledgers import everything, jetstream_ledger
from support.titan import TitanFile

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


@pytest.mark.shared
@pytest.mark.timeout(900)
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the fleet traces are not at {DATA}")
def test_real_histories(
    urls: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, url in urls.items():
        monkeypatch.setenv(name, url)
    cli = Cli(capsys)
    assert cli("migrate").code == 0
    _titan(cli)
    _openb(cli)
    asyncio.run(_log(urls["NATS_URL"]))
    assert cli("verify").code == 0
    _archive(cli, str(tmp_path / "archive"))
    _close(cli, str(tmp_path / "archive"))


def _close(cli: Cli, location: str) -> None:
    """Rebuilt from the archive, once the log goes on elsewhere and its stream is gone, the reports are the same."""
    before = {report: cli("report", report, "-o", "json").json() for report in ARCHIVED_REPORTS}
    assert cli("log", "archive", "close", location, "--yes").code == 0
    assert cli("log", "archive", "delete-stream", location, "1", "--yes").code == 0
    assert cli("replay", "devices", "workloads").code == 0
    for report, rows in before.items():
        assert _rounded(cli("report", report, "-o", "json").json()) == _rounded(rows), report


def _titan(cli: Cli) -> None:
    path = DATA / "titan_gc_full.csv"
    titan = TitanFile(path)
    assert cli("import", "titan", str(path)).code == 0  # 3 were it to reject a row
    row = _fleet(cli)
    assert {name: row[name] for name in FLEET_OF_TITAN} == FLEET_OF_TITAN
    for moment in (datetime(2015, 7, 1, tzinfo=UTC), titan.moments()[-1], titan.data_end):
        rows = cli("get", "devices", "--at", format_time(moment), "-o", "json").json()
        found = {row["device"] for row in rows if row["state"] == "InService"}
        assert found == {device for device, _ in titan.installed(moment)}


def _openb(cli: Cli) -> None:
    nodes, pods = (str(DATA / f"openb_{name}.csv") for name in ("node_list_gpu_node", "pod_list_default"))
    assert cli("import", "openb", nodes, pods).code == 0
    row = _fleet(cli)
    assert (row["workloads"], row["never_scheduled"], row["gpu_hours"]) == (8_152, 897, 51_470.67)
    assert row["devices"] == FLEET_OF_TITAN["devices"] + 6_212
    assert row["nodes"] == 18_687 + 1_213
    (totals,) = cli("sql", OF_DAYS_AND_INTERVALS, "-o", "json").json()
    assert (totals["days"], totals["days"]) == (totals["owners"], totals["intervals"])


async def _log(nats_url: str) -> None:
    """The log holds every fact once, numbered without a hole, and each file's in the order of time."""
    async with jetstream_ledger(nats_url) as ledger:
        events = [parse(message.data) for message in await everything(ledger)]
    for source, expected in ((TITAN, EVENTS_OF_TITAN), (OPENB, EVENTS_OF_OPENB)):
        own = [event for event in events if event.source == source]
        assert Counter(map(_kind, own)) == expected
        assert [event.number for event in own] == list(range(1, len(own) + 1))
        times = [event.time for event in own]
        assert times == sorted(times)
    assert len({event.id for event in events}) == len(events)


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

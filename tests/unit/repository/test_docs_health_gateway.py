"""docs/health-gateway.md lists all settings, statuses, results, metrics and bounds of the gateway, and no others."""

import re
from collections.abc import Iterator
from datetime import timedelta

from gpuledger.edge.gateway import metrics
from gpuledger.edge.gateway.bounds import REFUSAL_LIFE_S, REVIEW_LIFE_S, GatewayBounds
from gpuledger.edge.gateway.publisher import SOURCE
from gpuledger.healthreports.coalescing import REPEAT_WINDOW_S
from gpuledger.healthreports.protocol import REFUSALS, results
from gpuledger.healthreports.translate import EVENTS_MAX
from gpuledger.runtime import gateway_settings
from gpuledger.runtime.gateway_settings import DEFAULT_AUDIENCE
from support.paths import ROOT

PAGE = (ROOT / "docs" / "health-gateway.md").read_text()
TEXT = " ".join(PAGE.split())
ALERT = (ROOT / "docs" / "alerts" / "GPULedgerHealthReportsRefused.md").read_text()
MIB = 1024 * 1024


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def first_cells(head: str) -> Iterator[str]:
    """The first cells of the rows below a table's head."""
    for line in PAGE.partition(f"\n| {head} |")[2].partition("\n\n")[0].splitlines()[2:]:
        yield line.strip("|").split("|")[0]


def test_every_setting_is_listed() -> None:
    names = {value for value in vars(gateway_settings).values() if str(value).startswith("GPULEDGER_GATEWAY_")}
    listed = {name for cell in first_cells("variable") for name in quoted(cell)}
    assert {name for name in listed if name.startswith("GPULEDGER_GATEWAY_")} == names
    assert f"`{DEFAULT_AUDIENCE}` unless set" in TEXT


def test_every_status_and_result_is_listed() -> None:
    listed = {name for cell in first_cells("status") for name in quoted(cell)}
    assert listed == {status.name for _, status in REFUSALS.values()}
    counted = next(line for line in PAGE.splitlines() if line.startswith("| `gpuledger_gateway_reports_total`"))
    assert set(quoted(counted)) == {"gpuledger_gateway_reports_total", "result", *results(REFUSALS)}
    refused = {name for name, _ in REFUSALS.values()}
    assert {name for line in ALERT.splitlines() if line.startswith("| `") for name in quoted(line)[:1]} == refused


def test_every_metric_is_listed() -> None:
    served = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for one in (metrics.REPORTS, metrics.REVIEWS, metrics.WAITING, metrics.LOST)
        for family in one.collect()
    }
    assert {name for cell in first_cells("metric") for name in quoted(cell)} == served


def test_the_bounds_are_those_of_the_code() -> None:
    bounds = GatewayBounds()
    for text in (
        f"requests of {bounds.request_bytes_max // MIB} MiB with {EVENTS_MAX:,} events",
        f"{bounds.requests_at_once_max} at a time",
        f"{bounds.reports_per_s_max:g} reports a second for each reporter and {bounds.reports_burst_max:,} at once",
        f"{bounds.events_waiting_max:,} events or {bounds.bytes_waiting_max // MIB} MiB that wait for the ledger",
        f"within {bounds.answer_timeout_s:g} seconds",
        f"counts for {REVIEW_LIFE_S:g} seconds, a refusal for {REFUSAL_LIFE_S:g}",
        f"those of the next {REPEAT_WINDOW_S:g} seconds together",
        f"the source `{SOURCE}`",
    ):
        assert text in TEXT, text
    assert timedelta(seconds=bounds.recall_s) == timedelta(minutes=2)
    assert "reads the last two minutes back" in TEXT

"""The services' log: one form for everything that our packages say, whichever logger they use."""

import logging
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import structlog
from prometheus_client import REGISTRY

from gpuledger.runtime.telemetry import LeaderMetrics, configure_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The loggers of the test process, as they were before the test."""
    root, ours = logging.getLogger(), logging.getLogger("gpuledger")
    handlers = {logger: list(logger.handlers) for logger in (root, ours)}
    hook = sys.unraisablehook
    yield
    sys.unraisablehook = hook
    logging.captureWarnings(capture=False)
    for logger, kept in handlers.items():
        logger.handlers = kept


def lines(capture: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in capture.readouterr().err.splitlines()]


def test_both_kinds_of_loggers_write_lines_of_one_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json=True)
    structlog.get_logger("gpuledger.projection").warning("projection.interrupted", projection="devices")
    logging.getLogger("gpuledger.ledger").info("NATS at %s is back", "127.0.0.1:4222")
    ours, bridged = lines(capsys)
    assert (ours["event"], ours["level"], ours["projection"]) == ("projection.interrupted", "warning", "devices")
    assert (bridged["event"], bridged["level"]) == ("NATS at 127.0.0.1:4222 is back", "info")
    assert bridged["logger"] == "gpuledger.ledger"
    assert bridged["timestamp"].endswith("Z")


def test_each_line_is_written_once_however_often_it_is_configured(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    configure_logging(json=True)
    configure_logging(json=True)
    logging.getLogger("gpuledger.ledger").info("once")
    assert [line["event"] for line in lines(capsys)] == ["once"]
    assert not caplog.records


def test_details_are_left_out_and_so_is_what_libraries_find_normal(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json=True)
    logging.getLogger("gpuledger.ledger").debug("a detail")
    logging.getLogger("nats").info("somebody else's")
    assert lines(capsys) == []


def test_what_libraries_and_python_warn_of_takes_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json=True)
    logging.getLogger("psycopg.pool").warning("error connecting in %r", "pool-1")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn_explicit("a coroutine was never awaited", RuntimeWarning, "tasks.py", 7)
    pool, python = lines(capsys)
    assert (pool["event"], pool["logger"], pool["level"]) == ("error connecting in 'pool-1'", "psycopg.pool", "warning")
    assert "a coroutine was never awaited" in python["event"]


def test_an_exception_stays_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json=True)
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("asyncio").exception("Task exception was never retrieved")
        structlog.get_logger("gpuledger.projection").exception("projection.interrupted")
    assert all("ValueError: broken" in line["exception"] for line in lines(capsys))


def test_an_exception_in_a_finaliser_is_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken at its end")

    configure_logging(json=True)
    broken = Broken()
    del broken
    (line,) = lines(capsys)
    assert "Broken.__del__" in line["event"]
    assert "ValueError: broken at its end" in line["exception"]


def test_text_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json=False)
    logging.getLogger("gpuledger.ledger").info("the consumer is given up")
    assert "the consumer is given up" in capsys.readouterr().err


def test_only_the_process_that_leads_now_is_a_metric() -> None:
    metrics, since = LeaderMetrics(), datetime(2026, 5, 4, tzinfo=UTC)

    def value(process: str) -> float | None:
        labels = {"lock": "tried", "process": process}
        return REGISTRY.get_sample_value("gpuledger_leader_since_timestamp_seconds", labels)

    metrics.found("tried", "pod-1/1", since)
    assert (value("pod-1/1"), value("pod-2/1")) == (since.timestamp(), None)
    metrics.found("tried", "pod-2/1", None)
    assert (value("pod-1/1"), value("pod-2/1")) == (None, 0)
    assert REGISTRY.get_sample_value("gpuledger_leader", {"lock": "tried"}) == 1
    metrics.found("tried", None, None)
    assert (value("pod-2/1"), REGISTRY.get_sample_value("gpuledger_leader", {"lock": "tried"})) == (None, 0)


def test_a_lock_that_changes_hands_is_counted() -> None:
    metrics, since = LeaderMetrics(), datetime(2026, 5, 4, tzinfo=UTC)

    def changes() -> float | None:
        return REGISTRY.get_sample_value("gpuledger_leader_changes_total", {"lock": "handed"})

    metrics.found("handed", None, None)
    for _ in range(2):
        metrics.found("handed", "pod-1/1", since)
    assert changes() == 0, "the first leader that is seen may have led for days"
    metrics.found("handed", None, None)
    metrics.found("handed", "pod-1/1", since + timedelta(seconds=5))
    assert changes() == 1, "the same process took it anew"
    metrics.found("handed", "pod-2/1", since + timedelta(seconds=9))
    assert changes() == 2


def test_who_leads_is_no_metric_while_nobody_can_know() -> None:
    metrics, since = LeaderMetrics(), datetime(2026, 5, 4, tzinfo=UTC)
    labels = {"lock": "away", "process": "pod-1/1"}
    metrics.found("away", "pod-1/1", since)
    metrics.clear()
    metrics.clear()
    assert REGISTRY.get_sample_value("gpuledger_leader", {"lock": "away"}) is None
    assert REGISTRY.get_sample_value("gpuledger_leader_since_timestamp_seconds", labels) is None
    metrics.found("away", "pod-1/1", since)
    assert REGISTRY.get_sample_value("gpuledger_leader", {"lock": "away"}) == 1

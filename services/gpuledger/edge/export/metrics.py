"""Measures the export. While nobody could measure, the gauges have no value, and never 0. It decides nothing."""

from math import nan

from prometheus_client import Counter, Gauge

from gpuledger.edge.export.decide import FailureReason

OUTCOMES = ("delivered", "refused", "not-selected", "rejected")
"""What became of an event: `rejected` is one that no projection folds either."""

_EVENTS = Counter(
    "gpuledger_export_events_total", "Events that the export has read, by what became of them.", ["outcome"]
)
_FAILURES = Counter(
    "gpuledger_export_failures_total", "Requests that did not deliver their events, by reason.", ["reason"]
)
_ACTIVE = Gauge("gpuledger_export_active", "1 while this process exports, 0 while it stands by or has stopped.")
_STOPPED = Gauge("gpuledger_export_stopped", "1 while the export has stopped in this process and waits for a remedy.")
_LAG_EVENTS = Gauge("gpuledger_export_lag_events", "Events recorded that the export has yet to take.")
_WAITING_SECONDS = Gauge(
    "gpuledger_export_waiting_seconds", "Age of the first event that the export has yet to take, 0 for none."
)
_DEAD_LETTERS = Gauge("gpuledger_export_dead_letters", "Events that the endpoint refused, in the list of dead letters.")

for _outcome in OUTCOMES:
    _EVENTS.labels(_outcome)
for _reason in FailureReason:
    _FAILURES.labels(_reason)


def took(outcome: str, events: int = 1) -> None:
    """Count events by what became of them."""
    _EVENTS.labels(outcome).inc(events)


def failed(reason: FailureReason) -> None:
    """Count a request that delivered nothing."""
    _FAILURES.labels(reason).inc()


def active(*, is_active: bool) -> None:
    """This process exports, or stands by."""
    _ACTIVE.set(is_active)


def stopped(*, is_stopped: bool) -> None:
    """The export has stopped here, or goes on."""
    _STOPPED.set(is_stopped)


def measured(lag_events: int, waiting_s: float) -> None:
    """So many events are yet to be taken, the first of them so old."""
    _LAG_EVENTS.set(lag_events)
    _WAITING_SECONDS.set(waiting_s)


def dead_letters(count: int) -> None:
    """So many events stand in the list of dead letters."""
    _DEAD_LETTERS.set(count)


def unmeasured() -> None:
    """Nobody can tell how far the export is: a server is away, or another process leads."""
    for gauge in (_LAG_EVENTS, _WAITING_SECONDS, _DEAD_LETTERS):
        gauge.set(nan)


unmeasured()

"""Observes the services: metrics for Prometheus, and logs in structured lines.

Metrics are labelled by projection. Nothing here decides anything.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Protocol, TextIO

import structlog
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LOGGERS = "gpuledger"
"""The standard library's loggers of our packages: their lines are shown from INFO on, all others' from WARNING on."""

BATCHES = (1, 2, 5, 10, 50, 100, 500, 1000, 5000)

_SEQUENCE = Gauge("gpuledger_projection_sequence", "Position up to which the rows are true.", ["projection"])
_LAG_EVENTS = Gauge("gpuledger_projection_lag_events", "Events recorded but not yet projected.", ["projection"])
_LAG_SECONDS = Gauge(
    "gpuledger_projection_lag_seconds", "Age of the first event that has no rows yet, 0 for none.", ["projection"]
)
_EVENTS = Counter("gpuledger_projection_events_total", "Events taken from the log.", ["projection"])
_BATCH = Histogram("gpuledger_projection_batch_events", "Events a batch.", ["projection"], buckets=BATCHES)
_FOLD = Histogram("gpuledger_projection_fold_seconds", "Time to fold a batch.", ["projection"], buckets=SECONDS)
_FLUSH = Histogram("gpuledger_projection_flush_seconds", "Time to commit a batch.", ["projection"], buckets=SECONDS)
_LATENCY = Histogram(
    "gpuledger_projection_latency_seconds",
    "From recording to committed rows, for the last event of a batch.",
    ["projection"],
    buckets=SECONDS,
)
_OUTBOX = Gauge("gpuledger_projection_outbox_events", "Decisions that have not come back from the log.", ["projection"])
_OUTBOX_SECONDS = Gauge(
    "gpuledger_projection_outbox_seconds", "Age of the oldest of these decisions, 0 for none.", ["projection"]
)
_ERRORS = Counter("gpuledger_projection_errors_total", "Interruptions and stops.", ["projection", "error"])
_WRITER = Gauge("gpuledger_projection_writer", "1 while this process writes the rows, 0 on standby.", ["projection"])
_LEADER = Gauge("gpuledger_leader", "1 while some process holds the lock of this service, 0 while none does.", ["lock"])
_LEADER_SINCE = Gauge(
    "gpuledger_leader_since_timestamp_seconds",
    "When the process that leads took the lock, in seconds since 1970.",
    ["lock", "process"],
)
_LEADER_CHANGES = Counter(
    "gpuledger_leader_changes_total", "How often another process, or the same one anew, took the lock.", ["lock"]
)
_ANSWERED = Gauge(
    "gpuledger_servers_answered_timestamp_seconds",
    "When NATS and PostgreSQL last answered this process both, in seconds since 1970.",
)
_LOG_CHANGED = Gauge(
    "gpuledger_log_changed",
    "1 while a projection is stopped because the log is not the one that it read before.",
    ["projection", "change"],
)
LOG_CHANGES = ("lost", "restored", "replaced", "cut")
_STOPPED = Gauge(
    "gpuledger_projection_stopped", "1 while it is stopped in this process and waits for a remedy.", ["projection"]
)
_SUPERSEDED = Gauge(
    "gpuledger_projection_superseded",
    "1 while this process leaves the rows to a newer build, which wrote them.",
    ["projection"],
)
_BUILDING = Gauge(
    "gpuledger_projection_building",
    "1 while this process builds rows beside those of an older version, which serve.",
    ["projection"],
)
_BUILD_POSITIONS = Gauge(
    "gpuledger_projection_build_positions",
    "Positions of the log that the rows under way hold (done), and are to hold (total); 0 while none are built.",
    ["projection", "part"],
)
PUBLISHED = Counter("gpuledger_published_total", "Events handed to the ledger, by outcome.", ["outcome"])
STORAGE_REFUSALS = Counter("gpuledger_nats_storage_refusals_total", "Events that NATS had no room for, by attempt.")
OUTCOMES = ("recorded", "duplicate", "conflict", "failed", "taken")
for _outcome in OUTCOMES:
    PUBLISHED.labels(_outcome)


class Stored(Protocol):
    """A message of the log with its age."""

    @property
    def recorded_ns(self) -> int:
        """When it was recorded, in nanoseconds since 1970."""
        ...


class ProjectionMetrics:
    """The metrics of one projection."""

    def __init__(self, projection: str) -> None:
        self._projection = projection

    def standing_by(self) -> None:
        """This process waits for the writer's lock, so it cannot say how far the rows are."""
        _WRITER.labels(self._projection).set(0)
        _SEQUENCE.remove(self._projection)

    def writing(self, sequence: int) -> None:
        """This process holds the writer's lock; the rows are true up to `sequence`."""
        _WRITER.labels(self._projection).set(1)
        _SEQUENCE.labels(self._projection).set(sequence)

    def failed(self, error: BaseException) -> None:
        """The projection was interrupted, or stopped."""
        _WRITER.labels(self._projection).set(0)
        _ERRORS.labels(self._projection, type(error).__name__).inc()

    def stopped(self, *, is_stopped: bool) -> None:
        """The projection stopped and waits for a remedy, or goes on."""
        _STOPPED.labels(self._projection).set(is_stopped)

    def superseded(self, *, is_superseded: bool) -> None:
        """A newer build wrote the rows, and this process stands aside; or it goes on."""
        _WRITER.labels(self._projection).set(0)
        _SUPERSEDED.labels(self._projection).set(is_superseded)

    def building(self, progress: tuple[int, int] | None) -> None:
        """This process builds rows beside those of an older version, so many positions of so many; None: no more."""
        _BUILDING.labels(self._projection).set(progress is not None)
        for part, positions in zip(("done", "total"), progress or (0, 0), strict=True):
            _BUILD_POSITIONS.labels(self._projection, part).set(positions)

    def log_changed(self, change: str | None) -> None:
        """The projection stopped because the log was lost, restored, replaced or cut; None: it goes on."""
        for one in LOG_CHANGES:
            _LOG_CHANGED.labels(self._projection, one).set(one == change)

    @contextmanager
    def folding(self, events: int) -> Iterator[None]:
        """Time the folding of a batch."""
        _EVENTS.labels(self._projection).inc(events)
        _BATCH.labels(self._projection).observe(events)
        with _FOLD.labels(self._projection).time():
            yield

    @contextmanager
    def flushing(self) -> Iterator[None]:
        """Time the commit of a batch."""
        with _FLUSH.labels(self._projection).time():
            yield

    def committed(self, sequence: int, last: Stored | None, now: datetime) -> None:
        """The rows are true up to `sequence`, whose message is `last`."""
        _SEQUENCE.labels(self._projection).set(sequence)
        if last is not None:
            _LATENCY.labels(self._projection).observe(_age_s(last, now))

    def unmeasured(self) -> None:
        """The servers do not answer this process, so what it measured last would hide what is so by now."""
        for gauge in (_LAG_EVENTS, _LAG_SECONDS, _OUTBOX, _OUTBOX_SECONDS):
            gauge.remove(self._projection)

    def outbox(self, events: int, age_s: float) -> None:
        """So many decisions have not come back from the log, the oldest of them for so long."""
        _OUTBOX.labels(self._projection).set(events)
        _OUTBOX_SECONDS.labels(self._projection).set(age_s)

    def lag(self, events: int, first: Stored | None, now: datetime) -> None:
        """So many events of the log have no rows yet, `first` being the first of them."""
        _LAG_EVENTS.labels(self._projection).set(events)
        _LAG_SECONDS.labels(self._projection).set(0.0 if first is None else _age_s(first, now))


def servers_answered(now: datetime) -> None:
    """Both servers have answered."""
    _ANSWERED.set(now.timestamp())


class LeaderMetrics:
    """Which process leads each service that has one leader at a time, and how often that changes."""

    def __init__(self) -> None:
        self._locks: set[str] = set()
        self._processes: dict[str, str] = {}
        self._last: dict[str, tuple[str, datetime | None]] = {}

    def found(self, lock: str, process: str | None, since: datetime | None) -> None:
        """`process` holds the lock; None: nobody does."""
        self._locks.add(lock)
        _LEADER.labels(lock).set(process is not None)
        before = self._processes.pop(lock, None)
        if before not in {None, process}:
            _LEADER_SINCE.remove(lock, before)
        if process is not None:
            self._processes[lock] = process
            _LEADER_SINCE.labels(lock, process).set(since.timestamp() if since else 0)
            self._count(lock, (process, since))

    def clear(self) -> None:
        """The servers do not answer, so what was found holds no longer."""
        for lock in self._locks:
            _LEADER.remove(lock)
        for lock, process in self._processes.items():
            _LEADER_SINCE.remove(lock, process)
        self._locks.clear()
        self._processes.clear()

    def _count(self, lock: str, leader: tuple[str, datetime | None]) -> None:
        _LEADER_CHANGES.labels(lock).inc(self._last.get(lock, leader) != leader)
        self._last[lock] = leader


def _age_s(message: Stored, now: datetime) -> float:
    return max(0.0, now.timestamp() - message.recorded_ns / 1e9)


def configure_logging(*, json: bool | None = None) -> None:
    """Structured lines on stderr: JSON where stderr is no terminal, readable text where it is one.

    Lines that come through the standard library take the same form, so that whoever collects the log can parse all of
    it: those of our packages (`gpuledger.*`) from INFO on, those of libraries and Python's warnings from WARNING on.
    """
    as_json = not sys.stderr.isatty() if json is None else json
    # rich's tracebacks would take its import, and show the values of variables, passwords among them.
    readable = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer = structlog.processors.JSONRenderer() if as_json else readable
    rendering: list[Processor] = [structlog.processors.format_exc_info, renderer] if as_json else [renderer]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, *rendering],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    _bridge(shared, rendering)


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that a later call finds it and puts its own in its place."""


def _bridge(shared: list[Processor], rendering: list[Processor]) -> None:
    """Show the lines of the standard library's loggers; the handlers of an earlier call are replaced."""
    handler = _Handler(sys.stderr)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root, ours = logging.getLogger(), logging.getLogger(LOGGERS)
    ours.setLevel(logging.INFO)
    ours.propagate = False
    for logger in (root, ours):
        logger.handlers = [kept for kept in logger.handlers if not isinstance(kept, _Handler)]
        logger.addHandler(handler)
    logging.captureWarnings(capture=True)
    sys.unraisablehook = _log_unraisable


def _log_unraisable(found: "sys.UnraisableHookArgs") -> None:
    """Log an exception that nobody can catch, such as one in a finaliser."""
    logging.getLogger("py.unraisable").error(
        "%s %r", found.err_msg or "Exception ignored in", found.object, exc_info=found.exc_value
    )


__all__ = [
    "OUTCOMES",
    "PUBLISHED",
    "REGISTRY",
    "STORAGE_REFUSALS",
    "LeaderMetrics",
    "ProjectionMetrics",
    "configure_logging",
    "servers_answered",
]

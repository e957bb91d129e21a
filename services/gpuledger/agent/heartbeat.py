"""Whether the exporter's metrics are fresh, and which observations of that are worth an event. Pure.

The exporter renews its metrics less often than the agent scrapes them. So only an update time that advanced is a
heartbeat, and only one that has not advanced for too long is a loss.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from gpuledger.agent.errors import MonitoringError
from gpuledger.api.phases import HEARTBEAT_MAX_AGE_S
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.events.settings import HEARTBEATS_MAX

METRIC: Final = "dcgm_exporter_last_update_time_seconds"

HEARTBEATS_REPORTED: Final = HEARTBEATS_MAX
"""How many equal observations in a row become events; nobody counts more of them."""


def newest_update(text: str) -> datetime:
    """When the exporter last renewed its metrics, according to their text; the newest of several series counts.

    Raises:
        MonitoringError: the text has no such time.
    """
    values = [value for value in _values(text) if isfinite(value)]
    if not values:
        raise MonitoringError(f"The exporter's metrics have no {METRIC}. Does its list of counters leave it out?")
    try:
        return datetime.fromtimestamp(max(values), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise MonitoringError(f"{METRIC} is {max(values):g}, which is no time in seconds since 1970.") from error


def _values(text: str) -> Iterator[float]:
    """The metric's values; lines of other metrics are not parsed, so that a broken one does no harm."""
    lines = "".join(f"{line}\n" for line in text.split("\n") if line.startswith(METRIC))
    try:
        for family in text_string_to_metric_families(lines):
            yield from (sample.value for sample in family.samples if sample.name == METRIC)
    except (ValueError, IndexError) as error:
        raise MonitoringError(f"The exporter's line of {METRIC} cannot be read: {error}.") from error


class HeartbeatTracker:
    """Turns scrapes into heartbeats and losses; each call returns the event to record, or None."""

    def __init__(self) -> None:
        self._updated_at: datetime | None = None
        self._age_s = 0.0
        self._advanced_s: float | None = None
        self._fresh: bool | None = None
        self._streak = 0

    def restart_streak(self) -> None:
        """Record the next observations again: somebody counts heartbeats from now on, as after a recovery (ADR 8)."""
        self._streak = 0

    def on_update(self, updated_at: datetime, now: datetime, now_s: float) -> NodeMonitoringObserved | None:
        """The metric says `updated_at`; `now_s` is the monotonic clock.

        The age of a heartbeat is measured by the wall clocks when it arrives, and grows by the monotonic clock from
        then on: otherwise setting a clock would turn every earlier heartbeat into a loss.
        """
        advanced = updated_at != self._updated_at
        if advanced or self._advanced_s is None:
            self._updated_at, self._advanced_s = updated_at, now_s
            self._age_s = (now - updated_at).total_seconds()
        passed_s = now_s - self._advanced_s
        if max(abs(self._age_s + passed_s), passed_s) > HEARTBEAT_MAX_AGE_S:
            return self._event(fresh=False, updated_at=updated_at)
        return self._event(fresh=True, updated_at=updated_at) if advanced else None

    def on_failure(self) -> NodeMonitoringObserved | None:
        """The exporter could not be scraped."""
        return self._event(fresh=False, updated_at=None)

    def _event(self, *, fresh: bool, updated_at: datetime | None) -> NodeMonitoringObserved | None:
        self._streak = self._streak + 1 if fresh == self._fresh else 1
        self._fresh = fresh
        if self._streak > HEARTBEATS_REPORTED:
            return None
        return NodeMonitoringObserved(fresh=fresh, updated_at=updated_at)

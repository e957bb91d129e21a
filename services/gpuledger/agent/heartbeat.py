"""Whether the node's monitoring is alive, and which of the looks at it are told. Pure; it neither scrapes nor waits.

The exporter renews its metrics more slowly than an agent may look, and a look at what was seen before shows nothing
new: only values that moved on are heartbeats, and only one that has not moved on for too long is a loss.
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

HEARTBEATS_TOLD: Final = HEARTBEATS_MAX
"""So many looks in a row that agree are told; more of them nobody counts."""


def newest_update(text: str) -> datetime:
    """When the exporter last renewed its metrics, by their text; of several series the newest counts.

    Raises:
        MonitoringError: the text does not say so.
    """
    values = [value for value in _values(text) if isfinite(value)]
    if not values:
        raise MonitoringError(f"The exporter's metrics have no {METRIC}. Does its list of counters leave it out?")
    try:
        return datetime.fromtimestamp(max(values), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise MonitoringError(f"{METRIC} is {max(values):g}, which is no time in seconds since 1970.") from error


def _values(text: str) -> Iterator[float]:
    """The metric's values; lines of other metrics are not read, so that none of theirs can do harm."""
    lines = "".join(f"{line}\n" for line in text.split("\n") if line.startswith(METRIC))
    try:
        for family in text_string_to_metric_families(lines):
            yield from (sample.value for sample in family.samples if sample.name == METRIC)
    except (ValueError, IndexError) as error:
        raise MonitoringError(f"The exporter's line of {METRIC} cannot be read: {error}.") from error


class Monitoring:
    """What the looks so far have shown; each look gives what is to be told of it, or None."""

    def __init__(self) -> None:
        self._updated_at: datetime | None = None
        self._behind_s = 0.0
        self._moved_s: float | None = None
        self._fresh: bool | None = None
        self._in_row = 0

    def begin_anew(self) -> None:
        """Somebody counts looks from now on, as after a card's recovery: tell the next ones in a row again (ADR 8)."""
        self._in_row = 0

    def seen(self, updated_at: datetime, now: datetime, now_s: float) -> NodeMonitoringObserved | None:
        """The metric said `updated_at`; `now_s` are seconds of a clock that nobody sets.

        How old a heartbeat was is measured when it came, and from then on by what passed: were it measured again by
        clocks, one that was set in between would be the loss of every heartbeat from before.
        """
        moved = updated_at != self._updated_at
        if moved or self._moved_s is None:
            self._updated_at, self._moved_s = updated_at, now_s
            self._behind_s = (now - updated_at).total_seconds()
        passed_s = now_s - self._moved_s
        since_s = max(abs(self._behind_s + passed_s), passed_s)
        if since_s > HEARTBEAT_MAX_AGE_S:
            return self._told(fresh=False, updated_at=updated_at)
        return self._told(fresh=True, updated_at=updated_at) if moved else None

    def missed(self) -> NodeMonitoringObserved | None:
        """The metric could not be had."""
        return self._told(fresh=False, updated_at=None)

    def _told(self, *, fresh: bool, updated_at: datetime | None) -> NodeMonitoringObserved | None:
        self._in_row = self._in_row + 1 if fresh == self._fresh else 1
        self._fresh = fresh
        if self._in_row > HEARTBEATS_TOLD:
            return None
        return NodeMonitoringObserved(fresh=fresh, updated_at=updated_at)

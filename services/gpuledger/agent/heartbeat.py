"""Whether the exporter's metrics are fresh, and which observations of that are worth an event. Pure.

No release of dcgm-exporter states when it renewed its metrics, so a scrape with samples of DCGM is a heartbeat. But
exporters up to 3.3.9 go on serving their last samples after they lost DCGM. Where a card counts the energy that it
consumes, which never stands still, only samples that changed are a heartbeat, and samples that have not changed for too
long are a loss. A build that states the time (`METRIC`) is believed instead. Source: the ruling on the heartbeat.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from math import isfinite
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from gpuledger.agent.errors import MonitoringError
from gpuledger.api.phases import HEARTBEAT_MAX_AGE_S
from gpuledger.events.node import NodeMonitoringObserved
from gpuledger.events.settings import HEARTBEATS_MAX

METRIC: Final = "dcgm_exporter_last_update_time_seconds"

SAMPLES: Final = "DCGM_FI_"
"""How the names of values begin that the exporter read from DCGM; others (DCGM_EXP_) are its own."""

ENERGY: Final = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""Advances on an idle card too. Virtual cards and some consumer cards lack it, or have 0."""

BLANK_MIN: Final = float(2**63 - 16)
"""From here on DCGM means that a card has no such value (`DCGM_INT64_BLANK` and those above it)."""

HEARTBEATS_REPORTED: Final = HEARTBEATS_MAX
"""How many equal observations in a row become events; nobody counts more of them."""


class Samples(NamedTuple):
    """A scrape's samples of DCGM: a digest, whatever their order, and whether one of them never stands still."""

    digest: bytes
    advancing: bool


def read_scrape(text: str) -> datetime | Samples:
    """When the exporter renewed its metrics, where their text states it; otherwise its samples of DCGM.

    Raises:
        MonitoringError: the text has neither, or its time cannot be read.
    """
    stated = list(_times(text))
    return _newest(stated) if stated else _samples(text)


def _newest(stated: list[float]) -> datetime:
    """The newest time of several series."""
    times = [time for time in stated if isfinite(time)]
    if not times:
        raise MonitoringError(f"{METRIC} has no finite value.")
    try:
        return datetime.fromtimestamp(max(times), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise MonitoringError(f"{METRIC} is {max(times):g}, which is no time in seconds since 1970.") from error


def _times(text: str) -> Iterator[float]:
    """The metric's values; lines of other metrics are not parsed, so that a broken one does no harm."""
    lines = "".join(f"{line}\n" for line in text.split("\n") if line.startswith(METRIC))
    try:
        for family in text_string_to_metric_families(lines):
            yield from (sample.value for sample in family.samples if sample.name == METRIC)
    except (ValueError, IndexError) as error:
        raise MonitoringError(f"The exporter's line of {METRIC} cannot be read: {error}.") from error


def _samples(text: str) -> Samples:
    samples = {line: value for line in text.splitlines() if (value := _value(line)) is not None}
    if not samples:
        raise MonitoringError(
            f"The exporter's metrics have no sample of DCGM ({SAMPLES}*). Look at the log of its pod: it does not "
            "reach DCGM, or its list of counters names nothing that the cards have."
        )
    advancing = any(line.startswith(ENERGY) and 0 < value < BLANK_MIN for line, value in samples.items())
    return Samples(blake2b("\n".join(sorted(samples)).encode(), digest_size=16).digest(), advancing)


def _value(line: str) -> float | None:
    """The value of a sample of DCGM; None for any other line, and for a sample that has text instead of a number."""
    if not line.startswith(SAMPLES):
        return None
    _, brace, behind = line.rpartition("}")
    fields = (behind if brace else line.partition(" ")[2]).split()
    try:
        value = float(fields[0]) if fields else None
    except ValueError:
        return None
    return value if value is not None and isfinite(value) else None


class HeartbeatTracker:
    """Turns scrapes into heartbeats and losses; each call returns the event to record, or None."""

    def __init__(self) -> None:
        self._digest: bytes | None = None
        self._updated_at: datetime | None = None
        self._age_s = 0.0
        self._advanced_s: float | None = None
        self._fresh: bool | None = None
        self._streak = 0

    def restart_streak(self) -> None:
        """Record the next observations again: somebody counts heartbeats from now on, as after a recovery (ADR 8)."""
        self._streak = 0

    def on_scrape(self, scraped: datetime | Samples, now: datetime, now_s: float) -> NodeMonitoringObserved | None:
        """The exporter was scraped; `now_s` is the monotonic clock."""
        if isinstance(scraped, datetime):
            return self._on_update(scraped, scraped != self._updated_at, now, now_s)
        has_changed = self._digest is not None and scraped.digest != self._digest
        advanced = has_changed or not scraped.advancing
        self._digest = scraped.digest
        return self._on_update(now if advanced else self._updated_at or now, advanced, now, now_s)

    def on_failure(self) -> NodeMonitoringObserved | None:
        """The exporter could not be scraped."""
        return self._event(fresh=False, updated_at=None)

    def _on_update(
        self, updated_at: datetime, advanced: bool, now: datetime, now_s: float
    ) -> NodeMonitoringObserved | None:
        """The metrics were renewed at `updated_at`; `advanced` means: since the scrape before.

        The age of a heartbeat is measured by the wall clocks when it arrives, and grows by the monotonic clock from
        then on: otherwise setting a clock would turn every earlier heartbeat into a loss.
        """
        if advanced or self._advanced_s is None:
            self._updated_at, self._advanced_s = updated_at, now_s
            self._age_s = (now - updated_at).total_seconds()
        passed_s = now_s - self._advanced_s
        if max(abs(self._age_s + passed_s), passed_s) > HEARTBEAT_MAX_AGE_S:
            return self._event(fresh=False, updated_at=updated_at)
        return self._event(fresh=True, updated_at=updated_at) if advanced else None

    def _event(self, *, fresh: bool, updated_at: datetime | None) -> NodeMonitoringObserved | None:
        self._streak = self._streak + 1 if fresh == self._fresh else 1
        self._fresh = fresh
        if self._streak > HEARTBEATS_REPORTED:
            return None
        return NodeMonitoringObserved(fresh=fresh, updated_at=updated_at)

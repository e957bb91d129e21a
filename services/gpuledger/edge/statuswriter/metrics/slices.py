"""Metrics of ResourceSliceStatuses, under the names that the Kubernetes enhancement proposal gives.

There are none while gpuledger does not keep these statuses: then their age means nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.status import overdrawn_errors, vanished_errors
from gpuledger.edge.statuswriter.desired.slices import PresentAvailability
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.runtime.telemetry import SECONDS

WORK_QUEUE: Final = "resourceslice_status"

Outcome = Literal["written", "unchanged", "failed"]

DURATION = Histogram(
    "dra_resourceslice_status_update_duration_seconds",
    "From recording a change of a status to the API server's answer that shows it.",
    buckets=sorted({*SECONDS, 5.0, 30.0}),
    registry=None,
)
ERRORS = Counter("dra_resourceslice_status_update_errors_total", "Statuses that could not be written.", registry=None)
SYNCS = Counter(
    "dra_resourceslice_status_controller_sync_total", "Reconciliations of a status, by outcome.", ["outcome"],
    registry=None,
)  # fmt: skip


def note_sync(kind: Kind, outcome: Outcome) -> None:
    """An object was reconciled."""
    if kind is Kind.SLICE:
        SYNCS.labels(outcome).inc()
        ERRORS.inc(outcome == "failed")


def note_duration(kind: Kind, duration_s: float) -> None:
    """An object shows a fact that was recorded so long ago."""
    if kind is Kind.SLICE:
        DURATION.observe(duration_s)


class SliceMetrics(Collector):
    """Counters, and gauges that are computed at each scrape."""

    def __init__(
        self, state: Callable[[], DesiredState], depth: Callable[[Kind], int], lag_s: Callable[[Key], float]
    ) -> None:
        self._state = state
        self._depth = depth
        self._lag_s = lag_s

    def describe(self) -> Iterable[Metric]:
        """The names, for the registry."""
        return (*DURATION.describe(), *ERRORS.describe(), *SYNCS.describe(), *_families())

    def collect(self) -> Iterable[Metric]:
        """All of them; none while gpuledger does not keep the statuses."""
        state = self._state()
        if not state.keeps(Kind.SLICE):
            return ()
        staleness, claims, errors, depth = families = _families()
        for name in list(state.slices.slice.rows):
            staleness.add_metric([name], self._lag_s(Key(Kind.SLICE, name)))
        claims.add_metric([], len(state.slices.claim))
        for pool, number in _errors(state.slices):
            errors.add_metric([pool.driver, pool.name], number)
        depth.add_metric([WORK_QUEUE], self._depth(Kind.SLICE))
        return (*DURATION.collect(), *ERRORS.collect(), *SYNCS.collect(), *families)


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily(
            "dra_resourceslice_status_staleness_seconds",
            "For how long a status has not shown a recorded fact; 0 where it shows everything.",
            labels=["slice"],
        ),
        GaugeMetricFamily(
            "dra_resourceslice_claims_tracked_total", "ResourceClaims that statuses are computed from.", labels=[]
        ),
        GaugeMetricFamily(
            "dra_pool_validation_errors_total", "What is wrong with a pool at present.", labels=["driver", "pool"]
        ),
        GaugeMetricFamily("workqueue_depth", "Statuses that are queued.", labels=["name"]),
    )


def _errors(state: PresentAvailability) -> Iterator[tuple[PoolId, int]]:
    """How many validation errors the statuses of each pool list."""
    for pool in state.pools():
        index = state.index(pool)
        vanished = sum(1 for _ in vanished_errors(index.vanished(), redacted=True))
        views = [state.evaluation(pool, view) for view in index.views()]
        yield pool, sum(len(one.view.errors) + vanished + sum(1 for _ in overdrawn_errors(one)) for one in views)

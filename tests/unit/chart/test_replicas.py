"""What the alerts make of several replicas: one that stands by, or is cut off, neither hides nor raises one."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from prometheus_client import REGISTRY

from gpuledger.runtime.telemetry import ProjectionMetrics
from support.rules import rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = timedelta(minutes=10)
PROJECTION = "replicas"

Series = dict[str, float]
"""The values of one replica, by the names of its metrics."""

EXPRESSION = re.compile(r"(max|min) by \(projection\) \((\w+)\) (>|==) (\d+)")


class First(NamedTuple):
    recorded_ns: int


FIRST = First(int((NOW - LATE).timestamp()) * 1_000_000_000)


def served() -> Series:
    """What a scrape of this process finds about the projection."""
    samples = [sample for family in REGISTRY.collect() for sample in family.samples]
    return {one.name: one.value for one in samples if one.labels.get("projection") == PROJECTION}


def fires(alert: str, *replicas: Series) -> bool:
    """Whether Prometheus would fire the alert with these replicas; `for` has passed."""
    (expression,) = [rule.expr for rule in rules() if rule.alert == alert]
    found = EXPRESSION.fullmatch(expression.strip())
    assert found is not None, "this test evaluates no more than that"
    values = [replica[found[2]] for replica in replicas if found[2] in replica]
    if not values:
        return False
    value: float = {"max": max, "min": min}[found[1]](values)
    limit = float(found[4])
    return value > limit if found[3] == ">" else value == limit


def leader(*, is_late: bool) -> Series:
    """The process that writes."""
    metrics = ProjectionMetrics(PROJECTION)
    metrics.writing(5)
    measure(metrics, is_late=is_late)
    return served()


def standby(*, is_late: bool) -> Series:
    """A process that waits for the lock, and measures what the leader left undone as well."""
    metrics = ProjectionMetrics(PROJECTION)
    metrics.writing(5)
    metrics.standing_by()
    measure(metrics, is_late=is_late)
    return served()


def cut_off(*, was_late: bool) -> Series:
    """A process that lost the servers after it had measured."""
    metrics = ProjectionMetrics(PROJECTION)
    measure(metrics, is_late=was_late)
    metrics.standing_by()
    metrics.unmeasured()
    return served()


def measure(metrics: ProjectionMetrics, *, is_late: bool) -> None:
    """As `Supervision` does while the servers answer."""
    metrics.lag(int(is_late), FIRST if is_late else None, NOW)
    metrics.outbox(int(is_late), LATE.total_seconds() if is_late else 0.0)


@pytest.mark.parametrize("alert", ["GPULedgerDecisionsWaiting", "GPULedgerProjectionLag"])
@pytest.mark.parametrize("is_late", [False, True])
def test_only_replicas_that_measure_count(alert: str, is_late: bool) -> None:
    replicas = [leader(is_late=is_late), cut_off(was_late=not is_late), standby(is_late=is_late)]
    assert fires(alert, *replicas) == is_late
    assert fires(alert, *reversed(replicas)) == is_late
    assert fires(alert, replicas[0], cut_off(was_late=not is_late)) == is_late


def test_a_standby_does_not_say_how_far_the_rows_are() -> None:
    assert "gpuledger_projection_sequence" in leader(is_late=False)
    assert "gpuledger_projection_sequence" not in standby(is_late=False)

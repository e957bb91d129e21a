"""The exporter's metrics: how they are read, when they are a heartbeat, and which heartbeats are recorded."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.heartbeat import HEARTBEATS_REPORTED, METRIC, HeartbeatTracker, newest_update
from gpuledger.api.phases import HEARTBEAT_MAX_AGE_S
from gpuledger.events.node import NodeMonitoringObserved

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
AT = NOON.timestamp()
METRICS = f"""# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-1"}} 41
# HELP {METRIC} Time of the last update.
# TYPE {METRIC} gauge
{METRIC}{{gpu="0"}} {AT - 30}
{METRIC}{{gpu="1"}} {AT}
"""


def seen(monitoring: HeartbeatTracker, updated_s: float, now_s: float) -> NodeMonitoringObserved | None:
    """A look at a time, by clocks that agree."""
    return monitoring.on_update(later(updated_s), later(now_s), now_s)


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        METRICS,
        METRICS.replace("\n", "\r\n"),
        f"{METRIC} {AT}",
        f"{METRIC} {AT} 1767355200000\n",
        f'{METRIC}{{hostname="w, {{1}}"}} {AT:.9e}\n{METRIC} NaN\n',
        f"DCGM_FI_DEV_GPU_TEMP{{ is no line\n{METRIC}_total 1e30\n{METRIC} {AT}\n",
    ],
)
def test_the_newest_series_counts(text: str) -> None:
    assert newest_update(text) == NOON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"have no {METRIC}"),
        ("<html>502 Bad Gateway</html>", f"have no {METRIC}"),
        (f"# TYPE {METRIC} gauge\n", f"have no {METRIC}"),
        (f"{METRIC} NaN\n{METRIC} +Inf\n", f"have no {METRIC}"),
        (f"{METRIC} 1e300\n", "is no time in seconds since 1970"),
        (f"{METRIC} soon\n", "cannot be read"),
        (f"{METRIC}\n", "cannot be read"),
        (f"{METRIC}{{gpu=\n", "cannot be read"),
    ],
)
def test_metrics_that_do_not_report_so_are_rejected(text: str, message: str) -> None:
    with pytest.raises(MonitoringError, match=message):
        newest_update(text)


@given(st.text(), st.text(st.characters(exclude_characters="\n")))
def test_whatever_an_exporter_reports_is_a_time_or_an_error(anything: str, rest: str) -> None:
    for text in (anything, f"{anything}\n{METRIC}{rest}\n{anything}"):
        with suppress(MonitoringError):
            assert newest_update(text).tzinfo is UTC


def test_only_what_moved_on_is_a_heartbeat() -> None:
    monitoring = HeartbeatTracker()
    recorded = [seen(monitoring, 30 * (second // 30), second) for second in range(0, 90, 15)]
    assert [one and one.updated_at for one in recorded] == [NOON, None, later(30), None, later(60), None]
    assert all(one.fresh for one in recorded if one)


@pytest.mark.parametrize(
    ("updated_s", "fresh"),
    [
        (0, True),
        (-HEARTBEAT_MAX_AGE_S, True),
        (-HEARTBEAT_MAX_AGE_S - 1, False),
        (HEARTBEAT_MAX_AGE_S, True),
        (HEARTBEAT_MAX_AGE_S + 1, False),
    ],
)
def test_a_heartbeat_is_two_minutes_old_at_most(updated_s: float, fresh: bool) -> None:
    recorded = seen(HeartbeatTracker(), updated_s, 0)
    assert recorded is not None
    assert (recorded.fresh, recorded.updated_at) == (fresh, later(updated_s))


def test_what_stops_moving_on_is_lost_after_two_minutes_whatever_its_clock_reports() -> None:
    for ahead_s in (0.0, 100.0):
        monitoring = HeartbeatTracker()
        recorded = [seen(monitoring, ahead_s, 15 * look) for look in range(12)]
        assert [one and one.fresh for one in recorded] == [True, *[None] * 8, False, False, False]


@pytest.mark.parametrize("set_s", [-3_600.0, 3_600.0])
def test_a_clock_that_was_set_loses_no_heartbeat(set_s: float) -> None:
    monitoring = HeartbeatTracker()
    recorded = [seen(monitoring, 0, 0), monitoring.on_update(NOON, later(15 + set_s), 15)]
    recorded += [monitoring.on_update(later(30 + set_s), later(30 + set_s), 30)]
    assert [one and one.fresh for one in recorded] == [True, None, True]
    assert [monitoring.on_update(later(30 + set_s), later(160 + set_s), 160)] == [
        NodeMonitoringObserved(fresh=False, updated_at=later(30 + set_s))
    ]


def test_after_a_scrape_that_failed_only_a_heartbeat_counts() -> None:
    monitoring = HeartbeatTracker()
    recorded = [seen(monitoring, 0, 0), monitoring.on_failure(), seen(monitoring, 0, 15)]
    assert [one and one.fresh for one in recorded] == [True, False, None]
    again = seen(monitoring, 30, 30)
    assert again is not None
    assert again.fresh


def beats(monitoring: HeartbeatTracker, first_s: int, number: int) -> Iterator[bool]:
    """Heartbeats, and whether each is told."""
    for beat in range(number):
        yield seen(monitoring, first_s + beat, first_s + beat) is not None


def test_the_first_polls_in_a_row_are_reported() -> None:
    monitoring = HeartbeatTracker()
    assert list(beats(monitoring, 0, 13)) == [True] * 10 + [False] * 3
    assert [monitoring.on_failure() is not None for _ in range(13)] == [True] * 10 + [False] * 3
    assert list(beats(monitoring, 20, 11)) == [True] * 10 + [False]


@given(st.lists(st.sampled_from(["beat", "miss"]), max_size=80))
def test_who_counts_what_is_reported_has_how_many_beats_there_were(looks: list[str]) -> None:
    """A reader's count of beats in a row is the true one, up to as many as may be asked for."""
    monitoring, counted, true = HeartbeatTracker(), 0, 0
    for number, look in enumerate(looks):
        if look == "beat":
            true += 1
            counted += seen(monitoring, number, number) is not None
        else:
            recorded = monitoring.on_failure()
            assert recorded is not None or true == 0, "a loss is told"
            true = 0
            counted = 0 if recorded is not None else counted
        assert counted == min(true, HEARTBEATS_REPORTED)

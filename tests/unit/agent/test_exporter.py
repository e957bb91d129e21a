"""The exporter's metrics: how they are read, when they are a heartbeat, and which heartbeats are recorded."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.errors import MonitoringError
from gpuledger.agent.heartbeat import ENERGY, HEARTBEATS_REPORTED, METRIC, HeartbeatTracker, Samples, read_scrape
from gpuledger.api.phases import HEARTBEAT_MAX_AGE_S
from gpuledger.events.node import NodeMonitoringObserved
from support.exporter import exporter_text

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
    return monitoring.on_scrape(later(updated_s), later(now_s), now_s)


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
    assert read_scrape(text) == NOON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "have no sample of DCGM"),
        ("<html>502 Bad Gateway</html>", "have no sample of DCGM"),
        (f"# TYPE {METRIC} gauge\n", "have no sample of DCGM"),
        ('go_goroutines 12\nDCGM_EXP_XID_ERRORS_COUNT{gpu="0"} 0\n', "have no sample of DCGM"),
        ('DCGM_FI_DEV_GPU_TEMP\nDCGM_FI_DEV_GPU_TEMP{gpu="0"}\nDCGM_FI_DEV_GPU_TEMP NaN\n', "have no sample of DCGM"),
        ('DCGM_FI_DEV_COMPUTE_PIDS{gpu="1"} ERROR - FAILED TO CONVERT TO STRING\n', "have no sample of DCGM"),
        (f"{METRIC} NaN\n{METRIC} +Inf\n", "has no finite value"),
        (f"{METRIC} 1e300\n", "is no time in seconds since 1970"),
        (f"{METRIC} soon\n", "cannot be read"),
        (f"{METRIC}\n", "cannot be read"),
        (f"{METRIC}{{gpu=\n", "cannot be read"),
    ],
)
def test_metrics_that_do_not_report_so_are_rejected(text: str, message: str) -> None:
    with pytest.raises(MonitoringError, match=message):
        read_scrape(text)


@given(st.text(), st.sampled_from([METRIC, ENERGY]), st.text(st.characters(exclude_characters="\n")))
def test_whatever_an_exporter_reports_is_a_time_samples_or_an_error(anything: str, name: str, rest: str) -> None:
    for text in (anything, f"{anything}\n{name}{rest}\n{anything}"):
        with suppress(MonitoringError):
            assert isinstance(read_scrape(text), datetime | Samples)


def test_a_digest_depends_on_the_samples_of_dcgm_alone() -> None:
    text = exporter_text(NOON)
    others = '# HELP go_goroutines Goroutines.\ngo_goroutines 12\nDCGM_FI_DEV_FB_FREE{gpu="0"} unknown\n'
    assert read_scrape(others + "".join(reversed(text.splitlines(keepends=True)))) == read_scrape(text)
    assert read_scrape(exporter_text(later(15))) != read_scrape(text)
    assert read_scrape(text.replace(" 31\n", " 32\n")) != read_scrape(text)


@pytest.mark.parametrize(
    ("text", "advancing"),
    [
        (f'{ENERGY}{{gpu="0"}} 4742776\n', True),
        (f'{ENERGY}{{gpu="0"}} 0\n{ENERGY}{{gpu="1"}} 1\n', True),
        (f'{ENERGY}{{gpu="0"}} 0\nDCGM_FI_DEV_GPU_TEMP{{gpu="0"}} 31\n', False),
        (f'{ENERGY}{{gpu="0"}} {2**63 - 16}\n{ENERGY}{{gpu="1"}} {2**63 - 14}\n', False),
        ('DCGM_FI_DEV_GPU_TEMP{gpu="0",modelName="{a} b"} 31 1767355200000\r\n', False),
    ],
)
def test_a_card_that_counts_its_energy_never_stands_still(text: str, advancing: bool) -> None:
    scraped = read_scrape(text)
    assert isinstance(scraped, Samples)
    assert scraped.advancing is advancing


def test_samples_that_stand_still_are_a_copy_that_is_lost_after_two_minutes() -> None:
    monitoring, scraped = HeartbeatTracker(), read_scrape(exporter_text(NOON))
    recorded = [monitoring.on_scrape(scraped, later(15 * look), 15 * look) for look in range(11)]
    assert [one and (one.fresh, one.updated_at) for one in recorded] == [
        *[None] * 9,
        *[(False, NOON)] * 2,
    ], "the first scrape shows only what the samples are, not that anybody renews them"
    renewed = monitoring.on_scrape(read_scrape(exporter_text(later(165))), later(165), 165)
    assert renewed == NodeMonitoringObserved(fresh=True, updated_at=later(165))


def test_of_cards_that_count_no_energy_each_scrape_is_a_heartbeat() -> None:
    monitoring = HeartbeatTracker()
    scraped = read_scrape('DCGM_FI_DEV_FB_USED{gpu="0",modelName="GRID A100-10C"} 0\n')
    recorded = [monitoring.on_scrape(scraped, later(15 * look), 15 * look) for look in range(20)]
    expected = [NodeMonitoringObserved(fresh=True, updated_at=later(15 * look)) for look in range(HEARTBEATS_REPORTED)]
    assert recorded == expected + [None] * 10


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
    recorded = [seen(monitoring, 0, 0), monitoring.on_scrape(NOON, later(15 + set_s), 15)]
    recorded += [monitoring.on_scrape(later(30 + set_s), later(30 + set_s), 30)]
    assert [one and one.fresh for one in recorded] == [True, None, True]
    assert [monitoring.on_scrape(later(30 + set_s), later(160 + set_s), 160)] == [
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

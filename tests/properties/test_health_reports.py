"""Whatever a monitor sends is refused with a sentence, or becomes an event that every reader decodes.

However reports repeat and the agent restarts, each counts once, and what contradicts others keeps its place.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.agent.gateway.stored import dump, load
from gpuledger.events.envelope import Event, decode, encode
from gpuledger.events.health import HealthEntity, NodeHealthReported
from gpuledger.events.publishing import EVENT_AHEAD_MAX
from gpuledger.healthreports.coalescing import REPEAT_WINDOW_S, Windows, add_report, close_windows, flush
from gpuledger.healthreports.errors import InvalidReportError
from gpuledger.healthreports.healthevents_pb2 import HealthEvents
from gpuledger.healthreports.translate import HealthReport, ReportContext, translate
from gpuledger.runtime.clock import Instant

NOW = datetime(2026, 3, 6, tzinfo=UTC)
TEXTS = st.text(max_size=8) | st.sampled_from(["", "\0", "x" * 254, "x" * 5_000])
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 2, 3, 27])
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("agent", "checkName", "componentClass", "message", "id", "customRecommendedAction"), TEXTS),
        "errorCode": st.lists(TEXTS, max_size=3),
        "entitiesImpacted": st.lists(
            st.builds(lambda kind, value: {"entityType": kind, "entityValue": value}, TEXTS, TEXTS), max_size=3
        ),
        "metadata": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "recommendedAction": NUMBERS,
        "processingStrategy": NUMBERS,
        "generatedTimestamp": st.fixed_dictionaries(
            {
                "seconds": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**31),
                "nanos": st.integers(-(2**31), 2**31 - 1) | st.integers(0, 999_999_999),
            }
        ),
        "quarantineOverrides": st.fixed_dictionaries({"force": st.booleans(), "skip": st.booleans()}),
    },
)


@given(EVENTS, st.booleans())
def test_what_is_taken_decodes(event: dict[str, Any], has_names: bool) -> None:
    names = {"agent": "monitor", "checkName": "check"} if has_names else {}
    request = HealthEvents(events=[event | names])
    try:
        ((data, at),) = translate(request, ReportContext("w1", (), None), NOW)
    except InvalidReportError:
        return
    recorded = decode(encode(Event("id", "/nodes/w1/agent", data.TYPE, "w1", NOW, data, "e", 1)))
    assert recorded.data == data
    assert data.first_at is not None
    assert data.first_at <= NOW
    assert at is None or at <= NOW + EVENT_AHEAD_MAX


class Step(NamedTuple):
    """A report after a pause, and whether the agent restarts before it."""

    check: str
    healthy: bool
    fans: tuple[str, ...]
    pause_s: float
    restarts: bool
    is_repeated: bool


STEPS = st.builds(
    Step,
    st.sampled_from(["a", "b"]),
    st.booleans(),
    st.sampled_from([("0",), ("0", "1"), ()]),
    st.sampled_from([1.0, REPEAT_WINDOW_S / 2, REPEAT_WINDOW_S + 1]),
    st.booleans(),
    st.booleans(),
)
Content = tuple[str, bool, tuple[str, ...]]


def data_of(step: Step, at: datetime) -> NodeHealthReported:
    fans = tuple(HealthEntity(type="FAN", value=fan) for fan in step.fans)
    return NodeHealthReported(
        monitor="m", check=step.check, healthy=step.healthy, fatal=False, entities=fans, first_at=at
    )


def content_of(data: NodeHealthReported) -> Content:
    return data.check, data.healthy, tuple(entity.value for entity in data.entities)


def collapsed(contents: Iterable[Content], check: str) -> list[Content]:
    """The contents of a check, each once in a row."""
    return [content for content, _ in groupby(one for one in contents if one[0] == check)]


@given(st.lists(STEPS, max_size=30))
def test_each_report_counts_once_and_in_order(steps: list[Step]) -> None:
    windows: Windows = {}
    recorded: list[NodeHealthReported] = []
    sent: list[Content] = []
    now = Instant(0.0, NOW)
    for step in steps:
        now = Instant(now.monotonic_s + step.pause_s, now.at + timedelta(seconds=step.pause_s))
        report = HealthReport(data_of(step, now.at), now.at)
        done = [close_windows(windows, now)]
        if step.restarts:
            done.append(flush(load(dump(done[0].windows, now), now)))
        done += [add_report(done[-1].windows, report, now)]
        done += [add_report(done[-1].windows, report, now)] if step.is_repeated else []
        windows = done[-1].windows
        recorded += [data for one in done for data, _ in one.events]
        sent.append(content_of(report.data))
    recorded += [data for data, _ in flush(windows).events]
    counts: Counter[Content] = Counter()
    for data in recorded:
        counts[content_of(data)] += data.count
    assert counts == Counter(sent)
    for check in ("a", "b"):
        assert collapsed(map(content_of, recorded), check) == collapsed(sent, check)

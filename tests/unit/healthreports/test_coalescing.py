"""Identical reports become one event with a count; what contradicts them keeps its place in the order."""

from datetime import timedelta
from typing import Any

import pytest

from gpuledger.agent.gateway.stored import ReportStateError, dump, load
from gpuledger.agent.outbox.bounds import VALUE_BYTES_MAX
from gpuledger.events.health import NodeHealthReported
from gpuledger.healthreports.coalescing import (
    REPEAT_WINDOW_S,
    WAITING_BYTES_MAX,
    WINDOWS_MAX,
    ReportResult,
    Windows,
    add_report,
    close_windows,
    flush,
    waiting_bytes,
)
from gpuledger.healthreports.translate import HealthReport
from support.agent_parts import moment

BAD: dict[str, Any] = {
    "monitor": "m",
    "check": "GpuXidError",
    "healthy": False,
    "fatal": True,
    "entities": ({"type": "GPU", "value": "0"}, {"type": "PCI", "value": "0000:17:00.0"}),
    "devices": ("GPU-17",),
}
GOOD = {**BAD, "healthy": True, "fatal": False}


def report(fields: dict[str, Any], at: float) -> HealthReport:
    data = NodeHealthReported.model_validate({**fields, "first_at": moment(at).at})
    return HealthReport(data, moment(at).at)


class Gateway:
    """The windows, and what was recorded: content, count, and seconds of first and last."""

    def __init__(self) -> None:
        self.windows: Windows = {}
        self.recorded: list[tuple[bool, int, float, float]] = []

    def take(self, fields: dict[str, Any], at: float, *, arrives: float | None = None) -> ReportResult:
        return self._keep(add_report(self.windows, report(fields, at), moment(at if arrives is None else arrives)))

    def close(self, now: float) -> None:
        self._keep(close_windows(self.windows, moment(now)))

    def restart(self, now: float) -> None:
        self.windows = load(dump(self.windows, moment(now)), moment(now))
        self._keep(flush(self.windows))

    def _keep(self, done: Any) -> ReportResult:
        start = moment(0).at
        self.windows = done.windows
        for data, at in done.events:
            first, last = ((time - start).total_seconds() for time in (data.first_at, at))
            self.recorded.append((data.healthy, data.count, first, last))
        result: ReportResult = done.result
        return result


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


def test_the_first_is_recorded_at_once_and_repeats_when_the_window_ends(gateway: Gateway) -> None:
    results = [gateway.take(BAD, at) for at in (1, 5, 9)]
    assert results == [ReportResult.RECORDED, ReportResult.COALESCED, ReportResult.COALESCED]
    assert gateway.recorded == [(False, 1, 1, 1)]
    gateway.close(REPEAT_WINDOW_S)
    assert len(gateway.recorded) == 1
    gateway.close(1 + REPEAT_WINDOW_S)
    assert gateway.recorded[1:] == [(False, 2, 5, 9)]
    assert gateway.take(BAD, 70) is ReportResult.COALESCED
    gateway.close(1 + 2 * REPEAT_WINDOW_S)
    assert gateway.recorded[2:] == [(False, 1, 70, 70)]
    gateway.close(1 + 3 * REPEAT_WINDOW_S)
    assert gateway.windows == {}


def test_the_order_of_entities_and_the_id_make_no_difference(gateway: Gateway) -> None:
    gateway.take({**BAD, "report": "1"}, 1)
    assert gateway.take({**BAD, "report": "2", "entities": BAD["entities"][::-1]}, 2) is ReportResult.COALESCED


@pytest.mark.parametrize(
    "change", [{"message": "x"}, {"codes": ("79",)}, {"metadata": {"a": "b"}}, {"reporter": "a/b"}]
)
def test_anything_else_does(gateway: Gateway, change: dict[str, Any]) -> None:
    gateway.take(BAD, 1)
    assert gateway.take(BAD | change, 2) is ReportResult.RECORDED


def test_healthy_reports_of_other_codes_are_other_reports(gateway: Gateway) -> None:
    codes = [("79",), ("94",), (), ("94",)]
    results = [gateway.take({**GOOD, "codes": one}, 1, arrives=at) for at, one in enumerate(codes, 1)]
    assert results == [ReportResult.RECORDED] * len(codes)
    assert gateway.take({**GOOD, "codes": ("94",)}, 9) is ReportResult.COALESCED


def test_what_is_sent_again_counts_once(gateway: Gateway) -> None:
    assert [gateway.take(BAD, 3, arrives=at) for at in (3, 4)] == [ReportResult.RECORDED, ReportResult.REPEATED]
    assert gateway.take(BAD, 5) is ReportResult.COALESCED
    assert gateway.take(BAD, 5, arrives=6) is ReportResult.REPEATED
    gateway.close(99)
    assert [count for _, count, _, _ in gateway.recorded] == [1, 1]


def test_a_report_without_a_time_is_never_the_same_one(gateway: Gateway) -> None:
    untimed = HealthReport(report(BAD, 5).data, None)
    results = [gateway._keep(add_report(gateway.windows, untimed, moment(5))) for _ in range(2)]
    assert results == [ReportResult.RECORDED, ReportResult.COALESCED]
    gateway.restart(6)
    assert gateway._keep(add_report(gateway.windows, untimed, moment(6))) is ReportResult.RECORDED


@pytest.mark.parametrize(
    "entities",
    [BAD["entities"], BAD["entities"][1:], ()],
    ids=["the same entities", "one of them", "none: all that the check covers"],
)
def test_what_contradicts_repeats_comes_behind_them(gateway: Gateway, entities: Any) -> None:
    gateway.take(BAD, 1)
    gateway.take(BAD, 2)
    gateway.take({**GOOD, "entities": entities, "devices": ()}, 3)
    gateway.take(BAD, 4)
    assert [healthy for healthy, *_ in gateway.recorded] == [False, False, True, False]
    assert gateway.take(BAD, 2, arrives=5) is ReportResult.REPEATED


def test_what_concerns_the_same_card_by_another_name_contradicts(gateway: Gateway) -> None:
    gateway.take({**BAD, "entities": ({"type": "GPU", "value": "0"},)}, 1)
    gateway.take({**GOOD, "entities": ({"type": "PCI", "value": "0000:17:00"},)}, 2)
    assert gateway.take({**BAD, "entities": ({"type": "GPU", "value": "0"},)}, 3) is ReportResult.RECORDED


@pytest.mark.parametrize(
    "change", [{"check": "other"}, {"monitor": "other"}, {"entities": ({"type": "GPU", "value": "1"},), "devices": ()}]
)
def test_what_is_about_something_else_does_not(gateway: Gateway, change: dict[str, Any]) -> None:
    gateway.take(BAD, 1)
    gateway.take(GOOD | change, 2)
    assert gateway.take(BAD, 3) is ReportResult.COALESCED


def test_windows_are_bounded(gateway: Gateway) -> None:
    gateway.take(BAD, 0)
    gateway.take(BAD, 0.5)
    for number in range(WINDOWS_MAX):
        gateway.take({**BAD, "check": str(number)}, 1 + number / 1000)
    assert len(gateway.windows) == WINDOWS_MAX
    assert [one for one in gateway.recorded if one[3] == 0.5] == [(False, 1, 0.5, 0.5)]


def test_what_waits_is_bounded_and_fits_the_state_store(gateway: Gateway) -> None:
    large = {**BAD, "message": "x" * 1_000}
    for at in (1, 2):
        for number in range(WINDOWS_MAX):
            gateway.take({**large, "check": str(number)}, at)
    assert WAITING_BYTES_MAX / 2 < waiting_bytes(gateway.windows) <= WAITING_BYTES_MAX
    assert len(dump(gateway.windows, moment(2))) <= VALUE_BYTES_MAX
    gateway.close(99)
    assert sum(count for _, count, _, _ in gateway.recorded) == 2 * WINDOWS_MAX


def test_a_restart_records_what_waits_and_still_recognizes_what_is_sent_again(gateway: Gateway) -> None:
    gateway.take(BAD, 1)
    gateway.take(BAD, 2)
    gateway.take({**BAD, "check": "other"}, 3)
    gateway.restart(10)
    assert gateway.recorded[2:] == [(False, 1, 2, 2)]
    assert gateway.take({**BAD, "check": "other"}, 3, arrives=11) is ReportResult.REPEATED
    assert gateway.take(BAD, 2, arrives=11) is ReportResult.REPEATED
    assert gateway.take(BAD, 12) is ReportResult.RECORDED
    gateway.restart(13)
    gateway.close(14 + REPEAT_WINDOW_S)
    assert gateway.windows == {}
    assert len(gateway.recorded) == 4


def test_a_clock_that_was_set_forgets_no_window_too_late() -> None:
    windows = add_report({}, report(BAD, 1), moment(1)).windows
    (window,) = load(dump(windows, moment(1)), moment(-10_000)).values()
    assert window.ends_s <= -10_000 + REPEAT_WINDOW_S
    assert window.last == moment(0).at + timedelta(seconds=1)


@pytest.mark.parametrize("value", [b"", b"[]", b'{"version":2}', b'{"version":1,"windows":[{"key":"a"}]}'])
def test_a_state_of_another_shape_is_refused(value: bytes) -> None:
    with pytest.raises(ReportStateError):
        load(value, moment(1))


def test_what_comes_behind_a_contradiction_is_news_though_the_clock_has_whole_seconds() -> None:
    gateway = Gateway()
    for fields in (BAD, GOOD, BAD):
        assert gateway.take(fields, 1) is ReportResult.RECORDED
    assert [healthy for healthy, *_ in gateway.recorded] == [False, True, False]

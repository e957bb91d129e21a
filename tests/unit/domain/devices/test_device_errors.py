"""Errors that leave a device usable are counted by kind, cause and the node whose agent saw them."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import pytest

from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceErrorsObserved
from gpuledger.events.envelope import Decoded
from gpuledger.events.payload import BIGINT_MAX
from gpuledger.readmodels.projections import DevicesProjection
from support.events import AGENT, event, folded, hour, log_of


def errors(
    kind: str = "XID 31", cause: Literal["application", "hardware"] = "application", count: int = 1, first: float = 0
) -> DeviceErrorsObserved:
    return DeviceErrorsObserved(kind=kind, cause=cause, count=count, first_at=hour(first))


def counted(*events: Decoded) -> list[tuple[Any, ...]]:
    state = folded(DevicesProjection(), log_of(events)).state.tables()
    assert not state["device"].rows
    return sorted(tuple(row) for row in state["device_errors"].rows.values())


def test_errors_add_up_by_kind_and_cause() -> None:
    reports = [errors(count=3, first=1), errors(first=0), errors("XID 63", "hardware", 2, 2)]
    events = [event(data, "GPU-a", number=n, at=n + 1, source=AGENT) for n, data in enumerate(reports, 1)]
    assert counted(*events) == [
        ("GPU-a", "XID 31", "application", "n1", 4, hour(0), hour(3)),
        ("GPU-a", "XID 63", "hardware", "n1", 2, hour(2), hour(4)),
    ]


def test_a_card_that_moved_is_counted_on_each_node() -> None:
    there = event(errors(), "GPU-a", at=9, source="/nodes/n2/agent")
    assert [row[3] for row in counted(event(errors(), "GPU-a", source=AGENT), there)] == ["n1", "n2"]


@pytest.mark.parametrize(
    ("first_at", "expected"),
    [
        (hour(5), hour(2)),
        (datetime.max.replace(tzinfo=timezone(-timedelta(hours=14))), hour(2)),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), datetime(1970, 1, 1, tzinfo=UTC)),
        (hour(1).astimezone(timezone(timedelta(hours=5))), hour(1)),
    ],
)
def test_a_first_time_that_cannot_be_is_one_that_can(first_at: datetime, expected: datetime) -> None:
    data = errors().model_copy(update={"first_at": first_at})
    state = folded(DevicesProjection(), []).state
    DevicesProjection.handlers[DeviceErrorsObserved](state, Fact(event(data, "GPU-a", at=2, source=AGENT), 1, 0), data)
    (row,) = state.tables()["device_errors"].rows.values()
    assert (row.first_at, row.first_at.utcoffset()) == (expected, timedelta(0))


def test_a_count_stays_a_count_that_a_table_can_keep() -> None:
    events = [event(errors(count=BIGINT_MAX), "GPU-a", number=n, source=AGENT) for n in (1, 2)]
    assert [row[4] for row in counted(*events)] == [BIGINT_MAX]

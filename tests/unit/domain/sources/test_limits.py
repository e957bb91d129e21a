"""What a source records in an hour: what counts, where an hour ends, and how large the row of a hostile one may get."""

from datetime import timedelta

import pytest

from gpuledger.domain.sources.limits import (
    HASH_LENGTH,
    LIMITS,
    SOURCE_HOUR,
    CountedMessage,
    Hours,
    SourceHour,
    exceeded,
    is_limited,
)
from gpuledger.domain.table import Table
from support.events import AGENT, IMPORT, SERVICE, START


def hours() -> tuple[Hours, Table[SourceHour]]:
    table = Table(SOURCE_HOUR)
    return Hours(table), table


def message(seconds: float = 0, *aggregates: str, source: str = AGENT) -> CountedMessage:
    at = START + timedelta(seconds=seconds)
    return CountedMessage(source, at, 10, aggregates, begins_epoch=False, is_rejected=False)


def name(number: int) -> str:
    return f"{number:0{HASH_LENGTH}x}"


def test_everything_is_counted_by_source_and_hour_of_recording() -> None:
    counted, table = hours()
    counted.count(message(10)._replace(begins_epoch=True))
    counted.count(message(20)._replace(is_rejected=True))
    counted.count(message(20, source="/nodes/n2/agent"))
    row = table.rows[AGENT]
    assert (row.hour, row.events, row.bytes, row.epochs, row.rejected) == (START, 2, 20, 1, 1)
    assert table.rows["/nodes/n2/agent"].events == 1


def test_a_new_hour_begins_anew() -> None:
    counted, table = hours()
    counted.count(message(10, name(1)))
    table.put(table.rows[AGENT]._replace(limited_at=START))
    row = counted.count(message(3600, name(1)))
    assert row == SourceHour(AGENT, START + timedelta(hours=1), 1, 0, 0, 1, 10, name(1), None)


def test_a_servers_clock_that_goes_back_begins_no_hour() -> None:
    counted, _ = hours()
    counted.count(message(3600))
    assert counted.count(message(3599)).events == 2


def test_an_aggregate_counts_once_also_after_a_restart() -> None:
    counted, table = hours()
    for number in (1, 2, 1):
        counted.count(message(0, name(number)))
    again = Hours(table)
    assert again.count(message(0, name(2))).aggregates == 2
    assert again.count(message(0, name(3))).aggregates == 3


def test_the_aggregates_of_a_hostile_source_are_not_kept_beyond_the_limit() -> None:
    counted, table = hours()
    for number in range(10 * LIMITS.aggregates):
        row = counted.count(message(0, name(number)))
        assert len(row.hashes) <= HASH_LENGTH * LIMITS.aggregates
    assert (row.aggregates, row.hashes) == (LIMITS.aggregates + 1, "")
    assert exceeded(table.rows[AGENT]) == ("aggregates",)
    assert Hours(table).count(message(0, name(0))).aggregates == LIMITS.aggregates + 1


def test_an_event_that_lists_too_many_things_is_over_the_limit_at_once() -> None:
    counted, _ = hours()
    many = [name(number) for number in range(LIMITS.aggregates)]
    full = counted.count(message(0, *many, name(1)))
    assert (full.aggregates, exceeded(full)) == (LIMITS.aggregates, ())
    assert counted.count(message(0, *many[:9])) == full._replace(events=2, bytes=20)
    over = counted.count(message(0, name(1), "new", "newer"))
    assert (over.aggregates, over.hashes) == (LIMITS.aggregates + 1, "")


@pytest.mark.parametrize("limit", ["rejected", "epochs", "aggregates", "bytes"])
def test_a_source_may_reach_its_limits_but_not_go_over(limit: str) -> None:
    most: int = getattr(LIMITS, limit)
    row = SourceHour(AGENT, START, 1, 0, 0, 0, 0, "", None)
    at = SourceHour._fields.index(limit)
    assert exceeded(SourceHour._make([*row[:at], most, *row[at + 1 :]])) == ()
    assert exceeded(SourceHour._make([*row[:at], most + 1, *row[at + 1 :]])) == (limit,)


def test_people_and_our_own_services_have_no_limits() -> None:
    assert [is_limited(one) for one in (AGENT, "/gateways/health", IMPORT, SERVICE)] == [True, True, False, False]

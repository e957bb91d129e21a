"""What holds for every stream of facts about slices, claims, rules and nodes: nothing oversold, nothing phantom."""

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.dra import rows
from gpuledger.domain.dra.counters import Balance
from gpuledger.domain.dra.device_state import AvailabilityState
from gpuledger.domain.dra.facts import holdings_of, slice_of
from gpuledger.domain.dra.objects import ClaimId, Holding
from gpuledger.domain.dra.pools import seen_everywhere
from gpuledger.domain.dra.state import holding_of, views
from gpuledger.domain.dra.use import uses_of
from gpuledger.domain.quantities import UNIT, parse_quantity
from support.dra import (
    ANYWHERE,
    GONE,
    RecordedSlices,
    as_now,
    counters,
    live,
    partition,
    published,
    reloaded,
    result,
    shared,
)
from support.dra import given as allocated
from support.dra_capacity import free_of
from support.dra_strategies import STORY_LENGTH_MAX, interleavings, stories, texts
from support.events import SubjectFact, hour

COUNTED_STATES = (AvailabilityState.AVAILABLE, AvailabilityState.PARTIAL, AvailabilityState.UNAVAILABLE)
EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY_EXPONENTS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50}


@given(facts=stories)
def test_what_is_allocated_never_exceeds_what_is_published(facts: list[SubjectFact]) -> None:
    for status in RecordedSlices(*facts).statuses().values():
        summary, devices = status["summary"], status["devices"]
        states = [one["state"] for one in devices]
        assert summary["totalDevices"] == len(devices)
        assert summary["allocatedDevices"] == sum("allocations" in one for one in devices)
        assert summary["availableDevices"] == states.count("Available")
        assert summary["partiallyAllocatedDevices"] == states.count("PartiallyAllocated") <= summary["allocatedDevices"]
        assert summary["allocatedDevices"] + summary["availableDevices"] <= summary["totalDevices"]
        for name, text in summary.get("totalCapacity", {}).items():
            total, taken, left = (_nanos(one) for one in (text, *_parts(summary, name)))
            assert taken + left == total
            assert taken >= 0
            assert left >= 0


def _parts(summary: dict[str, Any], name: str) -> tuple[str, str]:
    return summary["allocatedCapacity"][name], summary["availableCapacity"][name]


def _nanos(text: str) -> int:
    return parse_quantity(text).nanos


@given(facts=stories, data=st.data())
def test_any_order_that_keeps_each_objects_own_gives_the_same_statuses(
    facts: list[SubjectFact], data: st.DataObject
) -> None:
    """When a condition last changed is left aside: it is the time of the fact that did it, which the order decides."""
    assert RecordedSlices(*data.draw(interleavings(facts))).statuses() == RecordedSlices(*facts).statuses()


@given(facts=stories)
def test_after_every_fact_the_statuses_are_those_of_the_objects_as_they_are_now(facts: list[SubjectFact]) -> None:
    """Books that were kept through deletions, recreations and generations set back hold nothing phantom."""
    recorded = RecordedSlices()
    for number, one in enumerate(facts, 1):
        recorded.record(one)
        assert recorded.statuses() == RecordedSlices(*as_now(facts[:number])).statuses()
        assert recorded.state.pools() == RecordedSlices(*as_now(facts[:number])).state.pools()


@given(facts=stories)
def test_after_every_fact_a_restart_changes_nothing(facts: list[SubjectFact]) -> None:
    recorded = RecordedSlices()
    for one in facts:
        recorded.record(one)
        assert reloaded(recorded).statuses() == recorded.statuses()


@given(facts=stories, at=st.integers(0, STORY_LENGTH_MAX))
def test_a_restart_in_between_leads_to_the_same_rows(facts: list[SubjectFact], at: int) -> None:
    recorded, restarted = RecordedSlices(*facts), reloaded(RecordedSlices(*facts[:at])).record(*facts[at:])
    for name, table in recorded.state.tables().items():
        assert sorted(live(restarted.state.tables()[name]), key=str) == sorted(live(table), key=str), name


@given(facts=stories)
def test_no_status_changes_untouched(facts: list[SubjectFact]) -> None:
    """What `take_touched` leaves out, nobody would write."""
    recorded, before = RecordedSlices(), dict[str, Any]()
    for one in facts:
        now = recorded.record(one).statuses()
        changed = {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}
        assert changed <= set(recorded.state.take_touched())
        before = now


@given(facts=stories)
def test_of_what_is_gone_only_the_past_is_kept(facts: list[SubjectFact]) -> None:
    recorded = RecordedSlices(*facts)
    empty = {data.AGGREGATE: data for data in (model() for model in GONE)}
    recorded.record(*((name, empty[data.AGGREGATE]) for name, data in facts if data.AGGREGATE in empty))
    assert [name for name, table in recorded.state.tables().items() if live(table)] == []
    assert [vars(recorded.state)["_indexes"], vars(recorded.state.history)["_open"]] == [{}, {}]


@given(facts=stories, steps=st.lists(st.integers(0, 2), min_size=STORY_LENGTH_MAX, max_size=STORY_LENGTH_MAX))
def test_the_past_is_what_the_present_was(facts: list[SubjectFact], steps: list[int]) -> None:
    """For every moment the rows have the state of the fold after all facts of that moment; each exactly once."""
    recorded, clock = RecordedSlices(), 0
    moments: dict[datetime, list[list[Any]]] = {}
    for step, one in zip(steps, facts, strict=False):
        clock += step
        recorded.record(one, at=clock)
        moments[hour(clock)] = [_standing(recorded), sorted(_held(row) for row in _held_now(recorded))]
    counts, allocations = recorded.state.availability.rows.values(), recorded.state.allocation.rows.values()
    for moment, present in moments.items():
        past = sorted(map(_counts, _at(moment, counts))), sorted(map(_held, _at(moment, allocations)))
        assert list(past) == present
    every: list[Any] = [*counts, *allocations]
    assert [row for row in every if row.valid_to is not None and row.valid_to <= row.valid_from] == []


def _standing(recorded: RecordedSlices) -> list[Any]:
    """How every view stands, counted device by device."""
    found: list[Any] = []
    for pool, view in views(recorded.state):
        seen = recorded.state.evaluation(pool, view)
        devices = [one for availabilities in seen.availabilities.values() for one in availabilities.values()]
        states = Counter(one.state for one in devices)
        used = sum(one.use.is_used for one in devices)
        pool_is = seen.view.generation, seen.view.is_complete, seen.view.is_consistent is not False
        found.append((*pool, view, *pool_is, len(devices), used, *(states[state] for state in COUNTED_STATES)))
    return sorted(found)


def _counts(row: rows.PoolAvailability) -> tuple[Any, ...]:
    return (*row[:3], *row[5:])


def _held(row: rows.DeviceAllocation) -> tuple[Any, ...]:
    return (*row[:7], *row[9:])


def _held_now(recorded: RecordedSlices) -> list[rows.DeviceAllocation]:
    """The rows of what is held, which are what the books say."""
    every = [recorded.state.index(pool) for pool in vars(recorded.state)["_indexes"]]
    held = [one for index in every for device in vars(index)["_held"] for one in index.holdings(device)]
    found = [row for row in recorded.state.allocation.rows.values() if row.valid_to is None]
    by_rows = [one for one in map(holding_of, found) if one.holds]
    assert sorted(map(_text_of, held)) == sorted(map(_text_of, by_rows))
    return found


def _text_of(one: Holding) -> str:
    """A holding as text; in which order its amounts are says nothing."""
    return str(one._replace(consumed=dict(sorted(one.consumed.items()))))


def _at(moment: datetime, past: Iterable[Any]) -> list[Any]:
    return [row for row in past if row.valid_from <= moment and (row.valid_to is None or row.valid_to > moment)]


@given(consumed=st.lists(texts, max_size=5), value=texts)
def test_sums_of_capacity_are_exact(consumed: list[str], value: str) -> None:
    one = slice_of("s", published(shared("gpu-0", memory=value)))
    claim = allocated(*(result("gpu-0", share=f"s{n}", consumed={"memory": text}) for n, text in enumerate(consumed)))
    use = uses_of(holdings_of(ClaimId("ns", "c", "u"), claim)).get("gpu-0")
    free = value if use is None else free_of(one.devices[0], use)["memory"]
    exact = _fraction(value) - sum(map(_fraction, consumed), Fraction(0))
    assert (Fraction(free, UNIT) if isinstance(free, int) else _fraction(free)) == exact


@given(taken=st.lists(texts, max_size=3), value=texts)
def test_sums_of_counters_are_exact(taken: list[str], value: str) -> None:
    parts = [partition(f"gpu-{n}", memory=text) for n, text in enumerate(taken)]
    offers = slice_of("a", published(*parts, count=2, reach=ANYWHERE))
    counts = slice_of("b", published(count=2, reach=ANYWHERE, counter_sets=(counters(memory=value),)))
    held = allocated(*(result(one.name) for one in parts))
    uses = uses_of(holdings_of(ClaimId("ns", "c", "u"), held))
    left = Balance(seen_everywhere([offers, counts]), uses).left["gpu-0"]["memory"]
    assert Fraction(left, UNIT) == _fraction(value) - sum(map(_fraction, taken), Fraction(0))


@given(text=texts)
def test_a_quantity_survives_parsing_and_printing(text: str) -> None:
    quantity = parse_quantity(text)
    assert Fraction(quantity.nanos, UNIT) == _fraction(text) == _fraction(str(quantity))
    assert str(parse_quantity(str(quantity))) == str(quantity)


def _fraction(text: str) -> Fraction:
    """What a quantity amounts to, read in another way than ours."""
    number = re.match(r"[-0-9.]+", text)
    assert number is not None
    digits, suffix = number[0], text[number.end() :]
    whole, _, decimals = digits.partition(".")
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    if suffix.endswith("i"):
        return value * Fraction(1 << BINARY_EXPONENTS[suffix])
    exponent = int(suffix[1:]) if suffix.startswith("e") else EXPONENTS[suffix]
    power = Fraction(int("1" + "0" * abs(exponent)))
    return value * power if exponent >= 0 else value / power


@given(facts=stories)
def test_nothing_is_ever_a_float(facts: list[SubjectFact]) -> None:
    recorded = RecordedSlices(*facts)
    tables = [list(table.rows.values()) for table in recorded.state.tables().values()]
    assert _floats([recorded.statuses(), *tables]) == []
    for pool, view in views(recorded.state):
        seen = recorded.state.evaluation(pool, view)
        assert _floats([seen.left, seen.availabilities, seen.view]) == []


def _floats(value: Any) -> list[float]:
    if isinstance(value, dict):
        return _floats(list(value.values()))
    if isinstance(value, list | tuple):
        return [found for one in value for found in _floats(one)]
    return [value] if isinstance(value, float) else []

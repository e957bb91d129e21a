"""Incidents agree with a brute-force reading of all reports in the order of their times."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.domain.health.rows import CARD_LEFT, HEALTHY, NODE_GONE
from gpuledger.events.device import DeviceDetached, DeviceFailed, DeviceHealthChanged
from gpuledger.events.envelope import Decoded
from gpuledger.events.health import NodeHealthReported
from gpuledger.events.node import NodeDecommissioned
from gpuledger.projection.fold import Fold
from gpuledger.readmodels.projections import IncidentsProjection
from support.events import CARDS, RecordedFact, folded, health, log_of, numbered, rows_of

Found = tuple[str, str, datetime, datetime | None, str | None]
"""Check, entity, beginning, end and what ended it."""


def walked(events: Sequence[Decoded]) -> set[Found]:
    """All incidents, found by one walk through time for each check and entity."""
    entities = ("", *CARDS, "NVSWITCH/0")
    found = {one for check in ("XID", "SXID") for entity in entities for one in _walk(events, check, entity)}
    return found | {one for card in CARDS for one in _walk(events, "DeviceHealth", card)}


def _walk(events: Sequence[Decoded], check: str, entity: str) -> list[Found]:
    found: list[Found] = []
    since: datetime | None = None
    codes = set[str]()
    for event in sorted(events, key=lambda event: (event.time, *_rank(event))):
        change = _change(event, check, entity)
        if change is None and _begins(event, check, entity):
            since = since or event.time
            codes |= _codes(event) or {""}
        elif change is not None and since is not None:
            codes -= (_codes(event) if isinstance(event.data, NodeHealthReported) else set()) or codes
            if not codes:
                found.append((check, entity, since, event.time, change))
                since = None
    if since is not None:
        found.append((check, entity, since, None, None))
    return found


def _rank(event: Decoded) -> tuple[int, int]:
    """At one time nodes leave first, then cards, and of what is then reported the later recorded holds."""
    if isinstance(event.data, NodeDecommissioned | DeviceDetached):
        return (isinstance(event.data, DeviceDetached), 0)
    return (2, event.number)


def _named(data: NodeHealthReported) -> set[str]:
    cards = {one.value for one in data.entities if one.type == "GPU_UUID"}
    return cards or {f"{one.type}/{one.value}" for one in data.entities} or {""}


def _begins(event: Decoded, check: str, entity: str) -> bool:
    data = event.data
    if isinstance(data, NodeHealthReported):
        return not data.healthy and data.check == check and entity in _named(data)
    is_bad = isinstance(data, DeviceFailed) or (isinstance(data, DeviceHealthChanged) and not data.healthy)
    return is_bad and check == "DeviceHealth" and event.subject == entity


def _codes(event: Decoded) -> set[str]:
    return set(event.data.codes) if isinstance(event.data, NodeHealthReported) else set()


def _change(event: Decoded, check: str, entity: str) -> str | None:
    """What ends an incident here, if anything does."""
    data = event.data
    if isinstance(data, NodeDecommissioned):
        return NODE_GONE
    if isinstance(data, DeviceDetached):
        return CARD_LEFT if event.subject == entity else None
    if isinstance(data, NodeHealthReported) and data.healthy and data.check == check:
        return HEALTHY if not data.entities or entity in _named(data) else None
    if isinstance(data, DeviceHealthChanged) and data.healthy and check == "DeviceHealth":
        return HEALTHY if event.subject == entity else None
    return None


def _one_at_a_time(recorded: list[RecordedFact]) -> list[RecordedFact]:
    """Without facts of one subject at one time: which of them holds is another question."""
    first = {(fact.subject, getattr(fact.data, "check", ""), fact.at): fact for fact in reversed(recorded)}
    return [fact for fact in recorded if first[fact.subject, getattr(fact.data, "check", ""), fact.at] is fact]


def fold_of(events: Sequence[Decoded]) -> Fold:
    return folded(IncidentsProjection(), log_of(events), types=[NodeHealthReported])


@given(recorded=health)
def test_incidents_are_what_a_walk_through_time_finds(recorded: list[RecordedFact]) -> None:
    events = numbered(_one_at_a_time(recorded))
    rows = fold_of(events).state.tables()["incident"].rows.values()
    assert {(row.check_name, row.entity, row.opened_at, row.ended_at, row.ended_by) for row in rows} == walked(events)


@given(recorded=health, data=st.data())
def test_the_order_of_recording_does_not_matter(recorded: list[RecordedFact], data: st.DataObject) -> None:
    events = numbered(recorded)
    shuffled = data.draw(st.permutations(events))
    assert rows_of(fold_of(events), positions=False) == rows_of(fold_of(shuffled), positions=False)


@given(recorded=health)
def test_counts_of_a_check_are_those_of_its_rows(recorded: list[RecordedFact]) -> None:
    tables = fold_of(numbered(recorded)).state.tables()
    for check in tables["health_check"].rows.values():
        reports = [row for row in tables["health_report"].rows.values() if row.scope == check.scope]
        incidents = [row for row in tables["incident"].rows.values() if row.scope == check.scope]
        assert (check.report_rows, check.incident_rows) == (len(reports), len(incidents))
        assert check.open == sum(row.ended_at is None for row in incidents)
        assert check.last_at == max(row.reported_at for row in reports)
    assert len({row.incident for row in tables["incident"].rows.values()}) == len(tables["incident"])


@given(recorded=health)
def test_what_ended_leaves_memory_and_late_facts_read_it_back(recorded: list[RecordedFact]) -> None:
    events = numbered(recorded)
    fold, stored = fold_of([]), dict[str, dict[object, Any]]()
    for message in log_of(events):
        for places in fold.applied(fold.check_all([message])):
            for name, column, value in places:
                at = fold.state.tables()[name].spec.columns.index(column)
                found = [row for row in stored.get(name, {}).values() if row[at] == value]
                fold.state.tables()[name].load(found)
        for name, table in fold.state.tables().items():
            changes, rows = table.take_changes(), stored.setdefault(name, {})
            for key in changes.gone:
                rows.pop(key, None)
            rows.update({table.key_of(row): row for row in (*changes.new, *changes.changed)})
    assert all(row.ended_at is None for row in fold.state.tables()["incident"].rows.values())
    assert not fold.state.tables()["health_report"].rows
    for name, table in fold_of(events).state.tables().items():
        assert stored.get(name, {}) == table.rows

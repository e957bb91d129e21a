"""Folds what the service `preflight` makes of gangs into one row for each, from its first event to its dissolution.

An event that is later than all others of its gang needs the present row alone. Any other one reads the gang's past back
and joins its events anew, so rows do not depend on the order of recording.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from gpuledger.domain.fact import AbsentRowsError, Fact, Handlers, Touched
from gpuledger.domain.preflight.results import MICROSECONDS_PER_S, scaled
from gpuledger.domain.preflight.results_rows import (
    GANG,
    GANG_EVENT,
    GangEvent,
    GangState,
    Preflight,
    PreflightGang,
    PreflightGangEvent,
)
from gpuledger.events.position import is_after
from gpuledger.events.preflight import GangConfigured, GangDissolved, GangNotConfigured, GangTimedOut

_RANK: Final = {kind.value: rank for rank, kind in enumerate(GangEvent)}
_Order = tuple[datetime, int]


def touched(state: Preflight, fact: Fact) -> Touched:
    """The past of a gang; nothing where it is there and the fact is later than all others about it."""
    gang = fact.event.subject
    present = _latest(state, gang)
    if present is not None and present.dissolved_at is None and present.last_at < fact.event.time:
        return ()
    return _past(gang)


def _configured(state: Preflight, fact: Fact, data: GangConfigured) -> None:
    _take(
        state,
        _event(fact, GangEvent.CONFIGURED)._replace(
            config_map=data.config_map,
            source=data.source,
            expected=data.expected,
            found=len(data.peers),
            complete=data.complete,
            waited_us=scaled(data.waited_s, MICROSECONDS_PER_S),
        ),
    )


def _timed_out(state: Preflight, fact: Fact, data: GangTimedOut) -> None:
    waited_us = scaled(data.waited_s, MICROSECONDS_PER_S)
    event = _event(fact, GangEvent.TIMED_OUT)
    _take(state, event._replace(expected=data.expected, found=data.found, waited_us=waited_us))


def _not_configured(state: Preflight, fact: Fact, data: GangNotConfigured) -> None:
    _take(state, _event(fact, GangEvent.NOT_CONFIGURED)._replace(reason=data.reason, message=data.message))


def _dissolved(state: Preflight, fact: Fact, data: GangDissolved) -> None:
    _take(state, _event(fact, GangEvent.DISSOLVED)._replace(removed=data.removed))


def _event(fact: Fact, kind: GangEvent) -> PreflightGangEvent:
    return PreflightGangEvent(fact.event.subject, fact.event.time, kind.value, fact.sequence)


def _take(state: Preflight, event: PreflightGangEvent) -> None:
    present = _latest(state, event.gang)
    if present is None or (present.last_at, _RANK[present.last_kind]) < _order(event):
        state.gang_event.put(event)
        state.gang.put(following(present, event))
    else:
        _require(state, present)
        _insert(state, event)


def _insert(state: Preflight, event: PreflightGangEvent) -> None:
    """Take an event that others of its gang follow, whose rows are all in memory."""
    before = state.gang_event.get(state.gang_event.key_of(event))
    if before is not None and is_after(before.position, event.position):
        return
    state.gang_event.put(event)
    joined = {state.gang.key_of(row): row for row in gangs_of(state.gang_event.where("gang", event.gang))}
    for former in state.gang.where("gang", event.gang):
        if state.gang.key_of(former) not in joined:
            state.gang.delete(state.gang.key_of(former))
    for key, row in joined.items():
        if state.gang.get(key) != row:
            state.gang.put(row)


def gangs_of(events: Iterable[PreflightGangEvent]) -> list[PreflightGang]:
    """The gangs that the events of one id make, in any order."""
    gangs: list[PreflightGang] = []
    for event in sorted(events, key=_order):
        row = following(gangs[-1] if gangs else None, event)
        if gangs and gangs[-1].began_at == row.began_at:
            gangs[-1] = row
        else:
            gangs.append(row)
    return gangs


def following(before: PreflightGang | None, event: PreflightGangEvent) -> PreflightGang:
    """The gang behind an event that is later than all others of its id; `before` is the latest gang of that id."""
    row = _beginning(before, event) if before is None or before.dissolved_at is not None else before
    row = row._replace(last_at=event.happened_at, last_kind=event.kind, events=row.events + 1)
    match GangEvent(event.kind):
        case GangEvent.CONFIGURED:
            return _with_configuration(row, event)
        case GangEvent.TIMED_OUT:
            return row._replace(
                state=GangState.TIMED_OUT.value,
                expected=event.expected,
                found=event.found,
                waited_us=event.waited_us,
                timed_out_at=event.happened_at,
            )
        case GangEvent.NOT_CONFIGURED:
            return row._replace(state=GangState.NOT_CONFIGURED.value, reason=event.reason, message=event.message)
        case GangEvent.DISSOLVED:
            return row._replace(dissolved_at=event.happened_at, removed=event.removed)


def _beginning(before: PreflightGang | None, event: PreflightGangEvent) -> PreflightGang:
    """A gang of which nothing is known; those of its id before it are counted."""
    began_at, namespace = event.happened_at, event.gang.partition("/")[0]
    life, events = (1, 0) if before is None else (before.life + 1, before.events)
    return PreflightGang(
        gang=event.gang,
        began_at=began_at,
        namespace=namespace,
        state=GangState.FORMING.value,
        config_map=None,
        source=None,
        expected=None,
        found=None,
        waited_us=None,
        completed_at=None,
        timed_out_at=None,
        reason=None,
        message="",
        dissolved_at=None,
        removed=False,
        last_at=began_at,
        last_kind=event.kind,
        life=life,
        events=events,
    )


def _with_configuration(row: PreflightGang, event: PreflightGangEvent) -> PreflightGang:
    """A gang whose ConfigMap was written; what it waited stays where the event does not say."""
    completed_at = row.completed_at
    if event.complete and completed_at is None:
        completed_at = event.happened_at
    return row._replace(
        state=(GangState.COMPLETE if event.complete else GangState.FORMING).value,
        config_map=event.config_map,
        source=event.source,
        expected=event.expected,
        found=event.found,
        waited_us=row.waited_us if event.waited_us is None else event.waited_us,
        completed_at=completed_at,
        reason=None,
        message="",
    )


def _latest(state: Preflight, gang: str) -> PreflightGang | None:
    """The latest gang of an id that is in memory; that is the latest of all, wherever any is."""
    return max(state.gang.where("gang", gang), key=_life_of, default=None)


def _life_of(row: PreflightGang) -> int:
    return row.life


def _order(event: PreflightGangEvent) -> _Order:
    return event.happened_at, _RANK[event.kind]


def _require(state: Preflight, latest: PreflightGang) -> None:
    """Check that all rows of a gang's id are in memory.

    Raises:
        AbsentRowsError: some have left it.
    """
    gangs, events = (len(table.by["gang"].get(latest.gang)) for table in (state.gang, state.gang_event))
    if gangs < latest.life or events < latest.events:
        raise AbsentRowsError(_past(latest.gang))


def _past(gang: str) -> list[tuple[str, str, str]]:
    return [(spec.name, "gang", gang) for spec in (GANG, GANG_EVENT)]


HANDLERS: Final[Handlers] = {
    GangConfigured: _configured,
    GangTimedOut: _timed_out,
    GangNotConfigured: _not_configured,
    GangDissolved: _dissolved,
}

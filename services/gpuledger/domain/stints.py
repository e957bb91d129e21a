"""From insertions and removals to stints: which removal ends which insertion.

For one device in one slot the facts are walked in event time. At one instant a removal first ends a life that began
earlier, otherwise the one that begins now; what fits no life is kept as a stray. The result depends on the set of
facts only, so a late fact re-pairs the device's lives in that slot and nothing else.
"""

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import NamedTuple

from gpuledger.domain.contradictions import reconcile_overlaps, reconcile_strays
from gpuledger.domain.devices import Devices, Stint, Stray, refresh_device, refresh_slot
from gpuledger.domain.fact import Fact, Handlers
from gpuledger.events.device import DeviceInserted, DeviceRemoved


class Pairing(NamedTuple):
    """What the facts about one device in one slot amount to."""

    stints: list[Stint]
    strays: list[Stray]


def inserted(state: Devices, fact: Fact, data: DeviceInserted) -> None:
    """Begin a life, or find that the insertion fits none."""
    event = fact.event
    mark = Stray(
        intern(event.subject),
        intern(data.slot),
        event.time,
        True,
        False,
        data.serial,
        data.uuid,
        _interned(data.model),
        intern(event.source),
        intern(event.epoch),
    )
    before = _stints_of(state, mark)
    if _begins_anew(state, mark, before):
        _apply(state, mark, [], [_begin(mark)])
    else:
        _repair(state, mark, before)


def removed(state: Devices, fact: Fact, data: DeviceRemoved) -> None:
    """End a life, or find that the removal fits none."""
    event = fact.event
    mark = Stray(
        intern(event.subject),
        intern(data.slot),
        event.time,
        False,
        data.retired,
        None,
        None,
        None,
        intern(event.source),
        intern(event.epoch),
    )
    before = _stints_of(state, mark)
    if before and _ends_latest(state, mark, latest := max(before, key=_began)):
        _apply(state, mark, [latest], [_end(latest, mark)])
    else:
        _repair(state, mark, before)


def pair(marks: Iterable[Stray]) -> Pairing:
    """The lives and strays that follow from the facts about one device in one slot, given in any order."""
    insertions, removals = _by_time(marks, inserted=True), _by_time(marks, inserted=False)
    result = Pairing([], [])
    began: Stray | None = None
    for time in sorted(insertions.keys() | removals.keys()):
        insertion, removal = insertions.get(time), removals.get(time)
        if began is not None and removal is not None:
            result.stints.append(_end(_begin(began), removal))
            began = removal = None
        if insertion is not None:
            if began is None:
                began = insertion
            else:
                result.strays.append(insertion)
        if removal is not None:
            if began is not None:
                result.stints.append(_end(_begin(began), removal))
                began = None
            else:
                result.strays.append(removal)
    if began is not None:
        result.stints.append(_begin(began))
    return result


def _repair(state: Devices, mark: Stray, before: list[Stint]) -> None:
    strays = _strays_of(state, mark)
    marks = [mark, *strays, *(part for stint in before for part in _marks_of(stint))]
    after = pair(marks)
    _apply(state, mark, [s for s in before if s not in after.stints], [s for s in after.stints if s not in before])
    reconcile_strays(state, strays, after.strays)


def _apply(state: Devices, mark: Stray, old: list[Stint], new: list[Stint]) -> None:
    kept = {stint.valid_from for stint in new}
    for stint in old:
        if stint.valid_from not in kept:
            state.stint.delete(state.stint.key_of(stint))
    for stint in new:
        state.stint.put(stint)
    reconcile_overlaps(state, old, new)
    refresh_device(state, mark.device, mark.at)
    refresh_slot(state, mark.slot, mark.at)


def _begins_anew(state: Devices, mark: Stray, before: list[Stint]) -> bool:
    """Whether the insertion lies behind everything known of the device in this slot."""
    if _strays_of(state, mark):
        return False
    return all(
        stint.valid_to is not None and stint.valid_to <= mark.at and stint.valid_from < mark.at for stint in before
    )


def _ends_latest(state: Devices, mark: Stray, latest: Stint) -> bool:
    """Whether the removal ends the one open life and lies behind everything known of the device in this slot."""
    return latest.valid_to is None and latest.valid_from < mark.at and not _strays_of(state, mark)


def _stints_of(state: Devices, mark: Stray) -> list[Stint]:
    return [stint for stint in state.stint.where("device", mark.device) if stint.slot == mark.slot]


def _strays_of(state: Devices, mark: Stray) -> list[Stray]:
    return [stray for stray in state.stray.where("device", mark.device) if stray.slot == mark.slot]


def _by_time(marks: Iterable[Stray], *, inserted: bool) -> dict[datetime, Stray]:
    """One mark a time: saying the same twice says nothing new."""
    by_time: dict[datetime, Stray] = {}
    for mark in marks:
        if mark.inserted == inserted:
            known = by_time.get(mark.at)
            by_time[mark.at] = mark if known is None else max(known, mark, key=_rank)
    return by_time


def _rank(mark: Stray) -> tuple[bool, str, str, str, str, str]:
    return (mark.retired, mark.serial or "", mark.uuid or "", mark.model or "", mark.source, mark.epoch)


def _marks_of(stint: Stint) -> list[Stray]:
    device, slot, began, ended = stint.device, stint.slot, stint.valid_from, stint.valid_to
    said = (stint.serial, stint.uuid, stint.model, stint.source, stint.epoch)
    marks = [Stray(device, slot, began, True, False, *said)]
    if ended is not None:
        marks.append(Stray(device, slot, ended, False, stint.retired, None, None, None, stint.source, stint.epoch))
    return marks


def _begin(mark: Stray) -> Stint:
    return Stint(
        mark.device, mark.slot, mark.at, None, False, mark.serial, mark.uuid, mark.model, mark.source, mark.epoch
    )


def _end(stint: Stint, mark: Stray) -> Stint:
    return stint._replace(valid_to=mark.at, retired=mark.retired)


def _began(stint: Stint) -> datetime:
    return stint.valid_from


def _interned(text: str | None) -> str | None:
    return None if text is None else intern(text)


HANDLERS: Handlers = {DeviceInserted: inserted, DeviceRemoved: removed}

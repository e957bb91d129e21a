"""Pairs insertions and removals into installations: which removal ends which insertion.

The facts about one device in one slot are taken in event time. At one instant a removal first ends an earlier
installation, otherwise the one that begins now; a fact that fits none is kept as a stray. The result depends only on
the set of facts, so a late fact pairs those of its device and slot again and nothing else.
"""

from collections.abc import Iterable
from datetime import datetime
from sys import intern
from typing import NamedTuple

from gpuledger.domain.devices.contradictions import reconcile_overlaps, reconcile_strays
from gpuledger.domain.devices.fold import (
    IN_SERVICE,
    INSTALLATION,
    REMOVED,
    RETIRED,
    Device,
    Devices,
    Installation,
    Slot,
    Stray,
    occupied_after,
    refresh_device,
    refresh_slot,
    unseen_device,
    unseen_slot,
    with_open_lives,
)
from gpuledger.domain.devices.history import put_latest, rewrite_from
from gpuledger.domain.fact import AbsentRowsError, Fact, Handlers, Touched
from gpuledger.events.device import DeviceAttached, DeviceDetached, DeviceInserted, DeviceRemoved


class Pairing(NamedTuple):
    """The installations and strays of one device in one slot."""

    installations: list[Installation]
    strays: list[Stray]


def inserted(state: Devices, fact: Fact, data: DeviceInserted) -> None:
    """Begin an installation, or keep an insertion that fits none as a stray."""
    event = fact.event
    installation = Installation(
        intern(event.subject),
        intern(data.slot),
        event.time,
        None,
        False,
        data.serial,
        data.uuid,
        data.model and intern(data.model),
        intern(event.source),
        intern(event.epoch),
    )
    if not _begin_in_order(state, installation):
        _take(state, _insertion_of(installation))


def removed(state: Devices, fact: Fact, data: DeviceRemoved) -> None:
    """End an installation, or keep a removal that fits none as a stray."""
    device, slot, at, retired = intern(fact.event.subject), intern(data.slot), fact.event.time, data.retired
    if not _end_in_order(state, device, slot, at, retired=retired):
        _take(state, _removal(device, slot, at, retired=retired))


def touched(state: Devices, fact: Fact) -> Touched:
    """The lives of a device and of a slot, where an event changes what was true before one of them ended."""
    data = fact.event.data
    if not isinstance(data, DeviceInserted | DeviceRemoved | DeviceAttached | DeviceDetached):
        return ()
    device, slot, at = fact.event.subject, data.slot, fact.event.time
    passport, place = state.device.rows.get(device), state.slot.rows.get(slot)
    if passport is None or place is None:
        return ()
    if _lies_before(passport.removed_at, at) and _lies_before(place.vacated_at, at):
        return ()
    return [(INSTALLATION.name, "device", device), (INSTALLATION.name, "slot", slot)]


def pair(marks: Iterable[Stray]) -> Pairing:
    """The installations and strays that follow from the facts about one device in one slot, in any order."""
    insertions, removals = _by_time(marks, inserted=True), _by_time(marks, inserted=False)
    result = Pairing([], [])
    began: Stray | None = None
    for time in sorted(insertions.keys() | removals.keys()):
        insertion, removal = insertions.get(time), removals.get(time)
        if began is not None and removal is not None:
            result.installations.append(_end(_begin(began), removal.at, retired=removal.retired))
            began = removal = None
        if insertion is not None:
            if began is None:
                began = insertion
            else:
                result.strays.append(insertion)
        if removal is not None:
            if began is not None:
                result.installations.append(_end(_begin(began), removal.at, retired=removal.retired))
                began = None
            else:
                result.strays.append(removal)
    if began is not None:
        result.installations.append(_begin(began))
    return result


def _begin_in_order(state: Devices, installation: Installation) -> bool:
    """Begin an installation that is later than all facts about device and slot; False where it is not."""
    device, slot, at = installation.device, installation.slot, installation.valid_from
    passport = state.device.rows.get(device) or unseen_device(device, at)
    place = state.slot.rows.get(slot) or unseen_slot(slot, at)
    if passport.places or place.occupants or _has_strays(state, device):
        return False
    if not (_lies_before(passport.removed_at, at) and _lies_before(place.vacated_at, at)):
        return False
    state.installation.put(installation)
    placed = Device(
        passport.device,
        IN_SERVICE,
        slot,
        at,
        1,
        installation.serial or passport.serial,
        installation.uuid or passport.uuid,
        installation.model or passport.model,
        min(at, passport.first_seen_at),
        passport.removed_at,
        passport.lives + 1,
        passport.failures,
        passport.last_failed_at,
    )
    seen_at = min(at, place.first_seen_at)
    taken = Slot(slot, place.node, place.slot_index, device, 1, place.lives + 1, seen_at, place.vacated_at)
    _put(state, placed, taken, at)
    return True


def _end_in_order(state: Devices, device: str, slot: str, at: datetime, *, retired: bool) -> bool:
    """End the device's only open installation, later than all facts; False where it is not so.

    What it contradicts, if anything, has ended before, and so has each such contradiction.
    """
    passport, place = state.device.rows.get(device), state.slot.rows.get(slot)
    if passport is None or place is None or passport.slot != slot or passport.places != 1 or place.occupants != 1:
        return False
    if _has_strays(state, device):
        return False
    began = passport.in_service_since
    if began is None or not (_lies_before(began, at) and _lies_before(passport.removed_at, at)):
        return False
    if not _lies_before(place.vacated_at, at):
        return False
    state.installation.put(_end(state.installation.rows[device, slot, began], at, retired=retired))
    gone = Device(
        passport.device,
        RETIRED if retired else REMOVED,
        None,
        None,
        0,
        passport.serial,
        passport.uuid,
        passport.model,
        passport.first_seen_at,
        at,
        passport.lives,
        passport.failures,
        passport.last_failed_at,
    )
    free = Slot(slot, place.node, place.slot_index, None, 0, place.lives, place.first_seen_at, at)
    _put(state, gone, free, at)
    return True


def _take_latest(state: Devices, mark: Stray) -> bool:
    """Begin or end a life beside others that are open, later than all facts; False where it is not so, or a stray.

    Lives that ended have ended before, so neither it nor its contradictions depend on them: only their numbers count.
    """
    device, slot, at = mark.device, mark.slot, mark.at
    passport = state.device.rows.get(device) or unseen_device(device, at)
    place = state.slot.rows.get(slot) or unseen_slot(slot, at)
    if _has_strays(state, device) or not (_lies_before(passport.removed_at, at) and _lies_before(place.vacated_at, at)):
        return False
    mine, inside = _open_lives(state, "device", device), _open_lives(state, "slot", slot)
    old = [life for life in mine if life.slot == slot]
    if mark.inserted == bool(old) or any(life.valid_from >= at for life in (*mine, *inside)):
        return False
    new = [_begin(mark)] if mark.inserted else [_end(life, at, retired=mark.retired) for life in old]
    for life in new:
        state.installation.put(life)
    reconcile_overlaps(state, old, new)
    moved = with_open_lives(passport, mark, _open_lives(state, "device", device))
    _put(state, moved, occupied_after(place, mark, _open_lives(state, "slot", slot)), at)
    return True


def _open_lives(state: Devices, column: str, value: str) -> list[Installation]:
    return [life for life in state.installation.where(column, value) if life.valid_to is None]


def _put(state: Devices, device: Device, slot: Slot, at: datetime) -> None:
    state.device.put(device)
    state.slot.put(slot)
    put_latest(state, device, slot, at)


def _has_strays(state: Devices, device: str) -> bool:
    return bool(state.stray.rows and state.stray.by["device"].get(device))


def _lies_before(time: datetime | None, at: datetime) -> bool:
    return time is None or time < at


def _take(state: Devices, mark: Stray) -> None:
    if not _take_latest(state, mark):
        _repair(state, mark)


def _repair(state: Devices, mark: Stray) -> None:
    """Pair all facts about the device in this slot again, and update all rows that follow from them."""
    _require_lives(state, mark.device, mark.slot)
    before, strays = _installations_of(state, mark), _strays_of(state, mark)
    after = pair([mark, *strays, *(part for installation in before for part in _marks_of(installation))])
    was, will_be = set(before), set(after.installations)
    old = [installation for installation in before if installation not in will_be]
    new = [installation for installation in after.installations if installation not in was]
    kept = {installation.valid_from for installation in new}
    for installation in old:
        if installation.valid_from not in kept:
            state.installation.delete(state.installation.key_of(installation))
    for installation in new:
        state.installation.put(installation)
    reconcile_overlaps(state, old, new)
    reconcile_strays(state, strays, after.strays)
    refresh_device(state, mark.device, mark.at)
    refresh_slot(state, mark.slot, mark.at)
    rewrite_from(state, mark.device, mark.slot, mark.at, old)


def _require_lives(state: Devices, device: str, slot: str) -> None:
    """Check that all lives of a device and of a slot are in memory: both count theirs.

    Raises:
        AbsentRowsError: some that ended have left it.
    """
    held, passport, place = state.installation.by, state.device.rows.get(device), state.slot.rows.get(slot)
    absent = []
    if passport is not None and len(held["device"].get(device)) < passport.lives:
        absent.append((INSTALLATION.name, "device", device))
    if place is not None and len(held["slot"].get(slot)) < place.lives:
        absent.append((INSTALLATION.name, "slot", slot))
    if absent:
        raise AbsentRowsError(absent)


def _installations_of(state: Devices, mark: Stray) -> list[Installation]:
    return [
        installation
        for installation in state.installation.where("device", mark.device)
        if installation.slot == mark.slot
    ]


def _strays_of(state: Devices, mark: Stray) -> list[Stray]:
    if not state.stray.rows:
        return []
    return [stray for stray in state.stray.where("device", mark.device) if stray.slot == mark.slot]


def _by_time(marks: Iterable[Stray], *, inserted: bool) -> dict[datetime, Stray]:
    """One fact for each time: a repeated fact adds nothing."""
    by_time: dict[datetime, Stray] = {}
    for mark in marks:
        if mark.inserted == inserted:
            previous = by_time.get(mark.at)
            by_time[mark.at] = mark if previous is None else max(previous, mark, key=_rank)
    return by_time


def _rank(mark: Stray) -> tuple[bool, str, str, str, str, str]:
    return (mark.retired, mark.serial or "", mark.uuid or "", mark.model or "", mark.source, mark.epoch)


def _marks_of(installation: Installation) -> list[Stray]:
    marks = [_insertion_of(installation)]
    if installation.valid_to is not None:
        marks.append(
            _removal(installation.device, installation.slot, installation.valid_to, retired=installation.retired)
        )
    return marks


def _insertion_of(installation: Installation) -> Stray:
    fields = (installation.serial, installation.uuid, installation.model, installation.source, installation.epoch)
    return Stray(installation.device, installation.slot, installation.valid_from, True, False, *fields)


def _removal(device: str, slot: str, at: datetime, *, retired: bool) -> Stray:
    """A removal has no source; otherwise the rows would depend on which source recorded it first."""
    return Stray(device, slot, at, False, retired, None, None, None, "", "")


def _begin(mark: Stray) -> Installation:
    return Installation(
        mark.device, mark.slot, mark.at, None, False, mark.serial, mark.uuid, mark.model, mark.source, mark.epoch
    )


def _end(installation: Installation, at: datetime, *, retired: bool) -> Installation:
    return Installation(
        installation.device,
        installation.slot,
        installation.valid_from,
        at,
        retired,
        installation.serial,
        installation.uuid,
        installation.model,
        installation.source,
        installation.epoch,
    )


HANDLERS: Handlers = {
    DeviceInserted: inserted,
    DeviceRemoved: removed,
    DeviceAttached: inserted,
    DeviceDetached: removed,
}

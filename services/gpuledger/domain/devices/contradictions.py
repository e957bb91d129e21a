"""Finds contradictions: overlapping installations, and insertions and removals that fit none. It never repairs them.

Two installations overlap when each begins before the other ends; an open one has not ended. A late fact may end a
contradiction, shorten it or show that there was none: the rows follow the installations. The fold never reads them:
they are written and leave memory.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from operator import attrgetter

from gpuledger.domain.devices.fold import Contradiction, Devices, Installation, Stray
from gpuledger.domain.table import Key

TWO_DEVICES = "two-devices-in-slot"
TWO_SLOTS = "device-in-two-slots"
INSERTED_TWICE = "inserted-twice"
REMOVED_NOT_INSERTED = "removed-not-inserted"

_device, _slot = attrgetter("device"), attrgetter("slot")


def reconcile_overlaps(state: Devices, old: list[Installation], new: list[Installation]) -> None:
    """Replace the contradictions of the `old` installations by those of the `new` ones, which are in the table.

    All are of one device in one slot, so they contradict others and not each other. The contradictions of the old ones
    follow from them again, so the slot's other rows need not be searched.
    """
    was = {key: row for installation in old for key, row in _overlaps(state, installation)}
    for installation in new:
        for key, row in _overlaps(state, installation):
            if was.pop(key, None) != row:
                state.contradiction.put(row)
    for row in was.values():
        _delete(state, row)


def reconcile_strays(state: Devices, old: list[Stray], new: list[Stray]) -> None:
    """Replace the strays of one device in one slot, and their contradictions."""
    before, after = set(old), set(new)
    for stray in old:
        if stray not in after:
            state.stray.delete(state.stray.key_of(stray))
            _delete(state, _contradiction_of(stray))
    for stray in new:
        if stray not in before:
            state.stray.put(stray)
            state.contradiction.put(_contradiction_of(stray))


def _delete(state: Devices, row: Contradiction) -> None:
    """Put first: the table does not know that the store has it."""
    state.contradiction.put(row)
    state.contradiction.delete(state.contradiction.key_of(row))


def _overlaps(state: Devices, installation: Installation) -> Iterator[tuple[Key, Contradiction]]:
    """The contradictions of an installation with others of its slot and of its device."""
    device, slot = installation.device, installation.slot
    installations, key_of = state.installation.rows, state.contradiction.key_of
    for key in state.installation.by["slot"].get(slot):
        if key[0] != device and _overlap(installation, installations[key]):
            row = _between(TWO_DEVICES, slot, _device, installation, installations[key])
            yield key_of(row), row
    for key in state.installation.by["device"].get(device):
        if key[1] != slot and _overlap(installation, installations[key]):
            row = _between(TWO_SLOTS, device, _slot, installation, installations[key])
            yield key_of(row), row


def _overlap(one: Installation, other: Installation) -> bool:
    if one.valid_from == one.valid_to or other.valid_from == other.valid_to:
        return False
    return _before(one.valid_from, other.valid_to) and _before(other.valid_from, one.valid_to)


def _before(start: datetime, end: datetime | None) -> bool:
    return end is None or start < end


def _between(
    kind: str, subject: str, name: Callable[[Installation], str], one: Installation, other: Installation
) -> Contradiction:
    first, second = one, other
    if (other.valid_from, name(other)) < (one.valid_from, name(one)):
        first, second = other, one
    ends = [installation.valid_to for installation in (one, other) if installation.valid_to is not None]
    return Contradiction(
        kind,
        subject,
        name(first),
        first.valid_from,
        name(second),
        second.valid_from,
        second.valid_from,
        min(ends) if ends else None,
    )


def _contradiction_of(stray: Stray) -> Contradiction:
    kind = INSERTED_TWICE if stray.inserted else REMOVED_NOT_INSERTED
    return Contradiction(kind, stray.device, stray.slot, stray.at, "", stray.at, stray.at, stray.at)

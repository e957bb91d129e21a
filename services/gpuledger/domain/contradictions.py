"""Contradictions between stints, and the strays: found by the fold, kept, never repaired.

Two lives overlap when each begins before the other ends; a life without an end is still going on. A late fact may end
a contradiction, shorten it or show that there was none: rows follow the stints.
"""

from collections.abc import Callable
from datetime import datetime

from gpuledger.domain.devices import Contradiction, Devices, Stint, Stray

TWO_DEVICES = "two-devices-in-slot"
TWO_SLOTS = "device-in-two-slots"
INSERTED_TWICE = "inserted-twice"
REMOVED_NOT_INSERTED = "removed-not-inserted"


def reconcile_overlaps(state: Devices, old: list[Stint], new: list[Stint]) -> None:
    """Replace what `old` stints contradicted by what the `new` ones, already in the table, contradict."""
    for stint in old:
        _forget(state, TWO_DEVICES, stint.slot, (stint.device, stint.valid_from))
        _forget(state, TWO_SLOTS, stint.device, (stint.slot, stint.valid_from))
    for stint in new:
        _find(state, stint)


def reconcile_strays(state: Devices, old: list[Stray], new: list[Stray]) -> None:
    """Replace the strays of one device in one slot, and the contradictions that tell of them."""
    for stray in old:
        if stray not in new:
            state.stray.delete(state.stray.key_of(stray))
            state.contradiction.delete(state.contradiction.key_of(_told(stray)))
    for stray in new:
        if stray not in old:
            state.stray.put(stray)
            state.contradiction.put(_told(stray))


def _find(state: Devices, stint: Stint) -> None:
    for key in state.stint.by["slot"].get(stint.slot):
        if key[0] != stint.device:
            other = state.stint.rows[key]
            if _overlap(stint, other):
                state.contradiction.put(_between(TWO_DEVICES, stint.slot, _device, stint, other))
    for key in state.stint.by["device"].get(stint.device):
        if key[1] != stint.slot:
            other = state.stint.rows[key]
            if _overlap(stint, other):
                state.contradiction.put(_between(TWO_SLOTS, stint.device, _slot, stint, other))


def _forget(state: Devices, kind: str, subject: str, life: tuple[str, datetime]) -> None:
    if not state.contradiction.by["subject"].get(subject):
        return
    for row in state.contradiction.where("subject", subject):
        if row.kind == kind and life in ((row.first, row.first_at), (row.second, row.second_at)):
            state.contradiction.delete(state.contradiction.key_of(row))


def _overlap(one: Stint, other: Stint) -> bool:
    if one.valid_from == one.valid_to or other.valid_from == other.valid_to:
        return False
    return _before(one.valid_from, other.valid_to) and _before(other.valid_from, one.valid_to)


def _before(start: datetime, end: datetime | None) -> bool:
    return end is None or start < end


def _device(stint: Stint) -> str:
    return stint.device


def _slot(stint: Stint) -> str:
    return stint.slot


def _between(kind: str, subject: str, name: Callable[[Stint], str], one: Stint, other: Stint) -> Contradiction:
    first, second = sorted((one, other), key=lambda stint: (stint.valid_from, name(stint)))
    ends = [stint.valid_to for stint in (one, other) if stint.valid_to is not None]
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


def _told(stray: Stray) -> Contradiction:
    kind = INSERTED_TWICE if stray.inserted else REMOVED_NOT_INSERTED
    return Contradiction(kind, stray.device, stray.slot, stray.at, "", stray.at, stray.at, stray.at)

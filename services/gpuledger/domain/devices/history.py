"""Keeps what devices and slots were from moment to moment, so that any past moment is one look-up for each of them.

A version follows from the installations that had begun by its moment, and says nothing that they do not. The fold
never reads versions: they are written and leave memory.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from gpuledger.domain.devices.fold import (
    Device,
    Devices,
    DeviceVersion,
    Installation,
    Slot,
    SlotOccupancy,
    occupied,
    passport,
    unseen_device,
    unseen_slot,
)
from gpuledger.domain.table import Table


def put_latest(state: Devices, device: Device, slot: Slot, at: datetime) -> None:
    """Add the versions of a moment that is later than all before of this device and slot."""
    state.history.put(_device_version(device, at))
    state.occupancy.put(_slot_occupancy(slot, at))


def rewrite_from(state: Devices, device: str, slot: str, at: datetime, gone: Iterable[Installation]) -> None:
    """Bring the versions of a device and a slot from a moment on in line with their installations.

    Args:
        state: the installations are as they should be.
        device: the device of the fact that changed them.
        slot: its slot.
        at: when the fact happened; versions before stay as they are.
        gone: installations that no longer exist in this form, with whose moments versions may go.
    """
    moments = {moment for installation in gone for moment in _moments(installation)}
    devices = _Versions(
        state.history, lambda until, then: _device_version(passport(unseen_device(device, then), until), then)
    )
    slots = _Versions(
        state.occupancy, lambda until, then: _slot_occupancy(occupied(unseen_slot(slot, then), until), then)
    )
    devices.rewrite(state.installation.where("device", device), at, moments)
    slots.rewrite(state.installation.where("slot", slot), at, moments)


class _Versions:
    """The versions of one thing: `version` makes one of the installations that had begun by a moment."""

    def __init__(self, table: Table[Any], version: Callable[[list[Installation], datetime], Any]) -> None:
        self._table = table
        self._version = version

    def rewrite(self, installations: list[Installation], at: datetime, before: set[datetime]) -> None:
        """Put the versions from a moment on; `before` are moments that may have had one."""
        now = {moment for installation in installations for moment in _moments(installation)}
        for moment in sorted(now | before):
            if moment < at:
                continue
            version = self._version([_as_of(one, moment) for one in installations if one.valid_from <= moment], moment)
            # One that is gone is put first: the table does not know that the store has it.
            self._table.put(version)
            if moment not in now:
                self._table.delete(self._table.key_of(version))


def _moments(installation: Installation) -> Iterable[datetime]:
    yield installation.valid_from
    if installation.valid_to is not None:
        yield installation.valid_to


def _as_of(installation: Installation, moment: datetime) -> Installation:
    """The installation as it was at a moment: one that ended later was still open."""
    if installation.valid_to is None or installation.valid_to <= moment:
        return installation
    return installation._replace(valid_to=None, retired=False)


def _device_version(device: Device, at: datetime) -> DeviceVersion:
    """All but the first sight and the failures; sliced, as every insertion and removal passes here."""
    return DeviceVersion(device[0], at, *device[1:8], device[9], device[10])


def _slot_occupancy(slot: Slot, at: datetime) -> SlotOccupancy:
    return SlotOccupancy(slot.slot, at, slot.device, slot.occupants, slot.lives, slot.vacated_at)

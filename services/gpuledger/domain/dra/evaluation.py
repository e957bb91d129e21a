"""Evaluates every device of one view of a pool, and updates the result incrementally. Pure.

When a device is taken or released, only that device and those that draw on the same counters are evaluated again. When
a slice changes, only the slices for which the pool's state changed are.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuledger.domain.dra.counters import Balance, Left, short_counters
from gpuledger.domain.dra.device_state import (
    AvailabilityState,
    Blockers,
    UnavailableReason,
    blockers,
    pool_reason,
    state_of,
    taints_of,
)
from gpuledger.domain.dra.objects import DraDevice, PoolId, Slice, TaintRule
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.use import UNUSED, Use


class DeviceAvailability(NamedTuple):
    """A device in a view: its use, what blocks it, and the state that follows."""

    device: DraDevice
    use: Use
    blockers: Blockers
    state: AvailabilityState
    reason: UnavailableReason | None


class EvaluationContext(NamedTuple):
    """The inputs of an evaluation besides the view and its slices: uses by device, and taint rules."""

    uses: Mapping[str, Use]
    rules: Iterable[TaintRule]


class _SliceEvaluation:
    """One slice of a view: its devices, and how many of them are in which state."""

    def __init__(self, one: Slice, reason: UnavailableReason | None) -> None:
        self.slice = one
        self.reason = reason
        self.availabilities: dict[str, DeviceAvailability] = {}
        self.counts: Counter[AvailabilityState] = Counter()
        self.allocated = 0

    def is_as(self, other: "_SliceEvaluation", *, has_counters_alike: bool) -> bool:
        """Whether its devices have the same states as those of the other."""
        is_alike = self.slice is other.slice and self.reason == other.reason
        return is_alike and (has_counters_alike or not any(one.consumes for one in self.slice.devices))

    def put(self, availability: DeviceAvailability) -> DeviceAvailability | None:
        """Store the device's new availability and return the old one."""
        previous = self.availabilities.get(availability.device.name)
        self.availabilities[availability.device.name] = availability
        _count(self, availability, 1)
        if previous is not None:
            _count(self, previous, -1)
        return previous


class PoolEvaluation:
    """A view with the devices of its own slices, whatever their generation.

    `before` is the same view before slices or labels of nodes changed; all other facts are those that it knew last.
    """

    def __init__(
        self,
        pool: PoolId,
        view: PoolView,
        own: tuple[Slice, ...],
        context: EvaluationContext,
        before: "PoolEvaluation | None" = None,
    ) -> None:
        self.pool = pool
        self.view = view
        self.own = own
        self.counts: Counter[AvailabilityState] = Counter()
        """How many devices are in which state."""
        self.allocated = 0
        """How many devices somebody has at least a share of."""
        self._balance = Balance(view, context.uses)
        self._current = {one.name for one in view.slices}
        self.fresh: list[str] = []
        """The slices whose devices were evaluated anew, because their states may have changed."""
        self._parts = {one.name: self._part(one, context, before) for one in own}
        self._consuming: dict[str, list[_SliceEvaluation]] | None = None
        for part in self._parts.values():
            self.counts.update(part.counts)
            self.allocated += part.allocated

    @property
    def left(self) -> Left:
        """The remaining counters; empty where the pool has none, or offers no devices."""
        return self._balance.left

    @property
    def availabilities(self) -> Mapping[str, Mapping[str, DeviceAvailability]]:
        """The devices by slice and name, in the order in which the slice lists them."""
        return {name: part.availabilities for name, part in self._parts.items()}

    def of(self, name: str) -> Mapping[str, DeviceAvailability]:
        """The devices of a slice by name."""
        return self._parts[name].availabilities

    def owner(self) -> str:
        """The slice whose status describes the pool: the first current one, or the first of all."""
        return min(self._parts.keys() & self._current or self._parts)

    def update(self, device: str, before: Use, context: EvaluationContext) -> set[str]:
        """Apply a change in a device's use; returns the slices whose status changed."""
        was_overdrawn = self._balance.overdrawn
        others = self._balance.move(device, before, context.uses.get(device, UNUSED))
        touched = {self.owner()} if others and (was_overdrawn or self._balance.overdrawn) else set()
        again = [(part, part.availabilities[device]) for part in self._parts.values() if device in part.availabilities]
        for part, previous in (*again, *self._short_otherwise(others - {device})):
            now = self._availability(part, previous.device, context)
            part.put(now)
            _count(self, now, 1)
            _count(self, previous, -1)
            touched.add(part.slice.name)
        return touched

    def kept(self, part: _SliceEvaluation, left: Left) -> _SliceEvaluation | None:
        """The evaluation of the same slice here, if it is equal with those remaining counters."""
        previous = self._parts.get(part.slice.name)
        return previous if previous and previous.is_as(part, has_counters_alike=left == self.left) else None

    def _short_otherwise(self, devices: Iterable[str]) -> list[tuple[_SliceEvaluation, DeviceAvailability]]:
        """Those of the devices for which other counters are short than before."""
        if self._consuming is None:
            self._consuming = {}
            for part in self._parts.values():
                for one in part.slice.devices:
                    if one.consumes and part.reason is None:
                        self._consuming.setdefault(one.name, []).append(part)
        previous = ((part, part.availabilities[name]) for name in devices for part in self._consuming.get(name, ()))
        return [(part, one) for part, one in previous if one.blockers.counters != self._short(one.device, one.use)]

    def _short(self, device: DraDevice, use: Use) -> tuple[str, ...]:
        return tuple(short_counters(device, use, self._balance.left, self._balance.overdrawn))

    def _part(self, one: Slice, context: EvaluationContext, before: "PoolEvaluation | None") -> _SliceEvaluation:
        """The earlier evaluation of the slice where it still holds, or a new one of every device."""
        part = _SliceEvaluation(one, pool_reason(self.view, is_current=one.name in self._current))
        previous = before.kept(part, self.left) if before else None
        if previous is not None:
            return previous
        self.fresh.append(one.name)
        for device in one.devices:
            part.put(self._availability(part, device, context))
        return part

    def _availability(
        self, part: _SliceEvaluation, device: DraDevice, context: EvaluationContext
    ) -> DeviceAvailability:
        use, taints = context.uses.get(device.name, UNUSED), taints_of(self.pool, device, context.rules)
        found = blockers(device, use, self._balance, taints, part.reason)
        return DeviceAvailability(device, use, found, *state_of(use, found))


def _count(counting: _SliceEvaluation | PoolEvaluation, availability: DeviceAvailability, times: int) -> None:
    counting.counts[availability.state] += times
    counting.allocated += times * availability.use.is_used

"""A view of a pool with all its devices looked at, kept so that a change costs what it touches. Pure.

A device that comes into use or goes has itself looked at again, and where devices share counters those that consume of
the same; a slice that comes or goes has those looked at that the pool now stands otherwise for.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuledger.domain.dra.counters import Balance, Left, short_counters
from gpuledger.domain.dra.objects import Device, PoolId, Slice, TaintRule
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.use import UNUSED, Use
from gpuledger.domain.dra.verdicts import DeviceState, Obstacle, Verdict, obstacle_of, state_of, taints_of, verdict


class Standing(NamedTuple):
    """How a device stands in a view."""

    device: Device
    use: Use
    verdict: Verdict
    state: DeviceState
    reason: Obstacle | None


class Facts(NamedTuple):
    """What a device's standing follows from, apart from its slice and the view: uses by device, and taint rules."""

    uses: Mapping[str, Use]
    rules: Iterable[TaintRule]


class _Part:
    """A slice of a view: its devices, and how many of them are in which state."""

    def __init__(self, one: Slice, obstacle: Obstacle | None) -> None:
        self.slice = one
        self.obstacle = obstacle
        self.standings: dict[str, Standing] = {}
        self.counts: Counter[DeviceState] = Counter()
        self.allocated = 0

    def is_as(self, other: "_Part", *, has_counters_alike: bool) -> bool:
        """Whether its devices stand as those of the other."""
        is_alike = self.slice is other.slice and self.obstacle == other.obstacle
        return is_alike and (has_counters_alike or not any(one.consumes for one in self.slice.devices))

    def put(self, standing: Standing) -> Standing | None:
        """A device stands so now; returns how it stood."""
        known = self.standings.get(standing.device.name)
        self.standings[standing.device.name] = standing
        _count(self, standing, 1)
        if known is not None:
            _count(self, known, -1)
        return known


class Evaluated:
    """A view with the devices of its own slices, whatever their generation.

    `before` is the same view before slices or labels of nodes changed; all other facts are those that it knew last.
    """

    def __init__(
        self, pool: PoolId, view: PoolView, own: tuple[Slice, ...], facts: Facts, before: "Evaluated | None" = None
    ) -> None:
        self.pool = pool
        self.view = view
        self.own = own
        self.counts: Counter[DeviceState] = Counter()
        """How many devices are in which state."""
        self.allocated = 0
        """How many devices somebody has at least a share of."""
        self._balance = Balance(view, facts.uses)
        self._current = {one.name for one in view.slices}
        self.fresh: list[str] = []
        """The slices whose devices were looked at, because they may stand otherwise than before."""
        self._parts = {one.name: self._part(one, facts, before) for one in own}
        self._consuming: dict[str, list[_Part]] | None = None
        for part in self._parts.values():
            self.counts.update(part.counts)
            self.allocated += part.allocated

    @property
    def left(self) -> Left:
        """What is left of the counters; none where the pool has none, or gives nothing."""
        return self._balance.left

    @property
    def standings(self) -> Mapping[str, Mapping[str, Standing]]:
        """The devices by slice and name, in the order in which the slice lists them."""
        return {name: part.standings for name, part in self._parts.items()}

    def of(self, name: str) -> Mapping[str, Standing]:
        """The devices of a slice by name."""
        return self._parts[name].standings

    def owner(self) -> str:
        """The slice that tells about the pool: the first of those that count, or of all where none does."""
        return min(self._parts.keys() & self._current or self._parts)

    def update(self, device: str, before: Use, facts: Facts) -> set[str]:
        """A device is used otherwise than before; returns the slices whose status is another now."""
        was_overdrawn = self._balance.overdrawn
        others = self._balance.move(device, before, facts.uses.get(device, UNUSED))
        touched = {self.owner()} if others and (was_overdrawn or self._balance.overdrawn) else set()
        again = [(part, part.standings[device]) for part in self._parts.values() if device in part.standings]
        for part, known in (*again, *self._short_otherwise(others - {device})):
            now = self._standing(part, known.device, facts)
            part.put(now)
            _count(self, now, 1)
            _count(self, known, -1)
            touched.add(part.slice.name)
        return touched

    def kept(self, part: _Part, left: Left) -> _Part | None:
        """A slice as it is here, where its devices stand as in another evaluation with so much left of counters."""
        known = self._parts.get(part.slice.name)
        return known if known and known.is_as(part, has_counters_alike=left == self.left) else None

    def _short_otherwise(self, devices: Iterable[str]) -> list[tuple[_Part, Standing]]:
        """Those of the devices that other counters keep from being had than before."""
        if self._consuming is None:
            self._consuming = {}
            for part in self._parts.values():
                for one in part.slice.devices:
                    if one.consumes and part.obstacle is None:
                        self._consuming.setdefault(one.name, []).append(part)
        known = ((part, part.standings[name]) for name in devices for part in self._consuming.get(name, ()))
        return [(part, one) for part, one in known if one.verdict.counters != self._short(one.device, one.use)]

    def _short(self, device: Device, use: Use) -> tuple[str, ...]:
        return tuple(short_counters(device, use, self._balance.left, self._balance.overdrawn))

    def _part(self, one: Slice, facts: Facts, before: "Evaluated | None") -> _Part:
        """A slice as it was before, or with every device looked at."""
        part = _Part(one, obstacle_of(self.view, is_current=one.name in self._current))
        known = before.kept(part, self.left) if before else None
        if known is not None:
            return known
        self.fresh.append(one.name)
        for device in one.devices:
            part.put(self._standing(part, device, facts))
        return part

    def _standing(self, part: _Part, device: Device, facts: Facts) -> Standing:
        use, taints = facts.uses.get(device.name, UNUSED), taints_of(self.pool, device, facts.rules)
        found = verdict(device, use, self._balance, taints, part.obstacle)
        return Standing(device, use, found, *state_of(use, found))


def _count(counting: _Part | Evaluated, standing: Standing, times: int) -> None:
    counting.counts[standing.state] += times
    counting.allocated += times * standing.use.is_used

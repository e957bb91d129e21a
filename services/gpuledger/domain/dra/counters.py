"""What remains of the counters that a pool's partitions share. Pure.

Rule 5 of the allocator: each device in use counts once, as it is published now, wherever it can be used. A device that
consumes counters needs every counter of the pool: one that is overdrawn blocks them all.
"""

from collections.abc import Iterable, Mapping

from gpuledger.domain.dra.objects import DraDevice
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.use import UNUSED, Use

Left = dict[str, dict[str, int]]
"""Billionths by counter set and counter; less than nothing where more is in use than there is."""


def counters_left(view: PoolView, uses: Mapping[str, Use]) -> Left:
    """The remaining amount of each counter."""
    left = {
        name: {counter: amount.nanos for counter, amount in counters.items()}
        for name, counters in view.shared().items()
    }
    for located in view.located():
        if uses.get(located.device.name, UNUSED).is_used:
            _take(left, located.device, 1)
    return left


def overdrawn_counters(left: Left) -> list[str]:
    """The counters, as `set/counter`, that more is taken from than they hold."""
    return [f"{name}/{counter}" for name, counters in left.items() for counter, nanos in counters.items() if nanos < 0]


def short_counters(device: DraDevice, use: Use, left: Left, overdrawn: Iterable[str]) -> list[str]:
    """The counters that keep one more claim from getting a device: its own, and those that are overdrawn."""
    if not device.consumes or (device.is_shareable and use.consumed is not None):
        return []
    own = (
        f"{name}/{counter}"
        for name, counters in device.consumes.items()
        for counter, amount in counters.items()
        if (has := left.get(name, {}).get(counter)) is not None and has < amount.nanos
    )
    return sorted({*own, *overdrawn})


class Balance:
    """The counters of a view, kept while its devices come into use and go.

    Nobody asks for the counters of a pool that gives nothing: then there are none.
    """

    def __init__(self, view: PoolView, uses: Mapping[str, Use]) -> None:
        self.left: Left = counters_left(view, uses) if view.gives else {}
        self.overdrawn = overdrawn_counters(self.left)
        self._named: dict[str, list[DraDevice]] = {}
        self._consuming: dict[str, dict[str, None]] = {}
        if self.left:
            for located in view.located():
                self._enter(located.device)

    def move(self, name: str, before: Use, now: Use) -> set[str]:
        """A device of that name is used otherwise now; returns the devices that may fare otherwise for it.

        Those are who consumes of the same sets, and all of them where other counters are overdrawn now.
        """
        devices = self._named.get(name, ())
        if before.is_used == now.is_used or not devices:
            return set()
        for device in devices:
            _take(self.left, device, 1 if now.is_used else -1)
        was, self.overdrawn = self.overdrawn, overdrawn_counters(self.left)
        if was != self.overdrawn:
            return set(self._named)
        return {other for device in devices for of in device.consumes for other in self._consuming[of]}

    def _enter(self, device: DraDevice) -> None:
        if device.consumes:
            self._named.setdefault(device.name, []).append(device)
        for name in device.consumes:
            self._consuming.setdefault(name, {})[device.name] = None


def _take(left: Left, device: DraDevice, times: int) -> None:
    """Take what a device consumes so many times; of devices with one name on several nodes each counts."""
    for name, counters in device.consumes.items():
        of = left.get(name, {})
        for counter, amount in counters.items():
            if counter in of:
                of[counter] -= times * amount.nanos

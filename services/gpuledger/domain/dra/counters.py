"""What is left of a pool's shared counters, which partitions of one device draw from. Pure.

Rule 5 of the allocator: every device in use counts once, as it is published now, wherever it can be used. Who consumes
counters needs every counter of the pool, also those it takes nothing from: one that is overdrawn blocks them all.
"""

from collections.abc import Iterable, Mapping

from gpuledger.domain.dra.objects import Device
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.use import UNUSED, Use

Left = dict[str, dict[str, int]]
"""Billionths by counter set and counter; less than nothing where more is in use than there is."""


def counters_left(view: PoolView, uses: Mapping[str, Use]) -> Left:
    """What is left of each counter."""
    left = {
        name: {counter: amount.nanos for counter, amount in counters.items()}
        for name, counters in view.shared().items()
    }
    for device in _in_use(view, uses):
        for name, counters in device.consumes.items():
            for counter, amount in counters.items():
                if counter in left.get(name, {}):
                    left[name][counter] -= amount.nanos
    return left


def short_counters(device: Device, use: Use, left: Left) -> list[str]:
    """The counters, as `set/counter`, that keep one more claim from getting a device."""
    if not device.consumes or (device.is_shareable and use.consumed is not None):
        return []
    return [
        f"{name}/{counter}"
        for name, counters in left.items()
        for counter, amount in counters.items()
        if amount < _needs(device, name, counter)
    ]


def _needs(device: Device, name: str, counter: str) -> int:
    amount = device.consumes.get(name, {}).get(counter)
    return amount.nanos if amount else 0


def _in_use(view: PoolView, uses: Mapping[str, Use]) -> Iterable[Device]:
    """Devices in use; of those with one name on several nodes each counts."""
    devices = (placed.device for placed in view.placed())
    return (device for device in devices if device.consumes and uses.get(device.name, UNUSED).is_used)

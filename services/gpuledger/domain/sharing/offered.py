"""What a node's shared devices amount to. Pure."""

from collections.abc import Iterable

from gpuledger.events.sharing import SharedDevice


def totals(devices: Iterable[SharedDevice], *, with_unhealthy: bool = False) -> dict[str, int]:
    """What the healthy devices have together, by resource; the others count nothing, or as much `with_unhealthy`."""
    found: dict[str, int] = {}
    for device in devices:
        for resource, amount in device.resources.items() if device.healthy or with_unhealthy else ():
            found[resource] = found.get(resource, 0) + amount
    return found

"""Adds up what claims hold of a pool's devices. Pure.

Rule 1 of the allocator: results without administrators' access are in use, by device name, whatever the generation.
Shares add up what they consume; a result without a share holds its device exclusively.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuledger.domain.dra.objects import Holding


class Use(NamedTuple):
    """How a device is used. `consumed` is in billionths and None where no share recorded any consumption."""

    is_exclusive: bool = False
    shares: int = 0
    consumed: Mapping[str, int] | None = None

    @property
    def is_used(self) -> bool:
        """Whether anybody has the device or a share of it."""
        return self.is_exclusive or self.shares > 0

    def consumed_of(self, capacity: str) -> int:
        """How much of a capacity is consumed."""
        return self.consumed.get(capacity, 0) if self.consumed else 0


UNUSED = Use()


def uses_of(holdings: Iterable[Holding]) -> dict[str, Use]:
    """How each device of one pool is used, by its name; who is not in it is not used."""
    uses: dict[str, Use] = {}
    for one in holdings:
        if one.holds:
            uses[one.device] = _with(uses.get(one.device, UNUSED), one)
    return uses


def _with(use: Use, holding: Holding) -> Use:
    if holding.share is None:
        return use._replace(is_exclusive=True)
    if not holding.consumed:
        return use._replace(shares=use.shares + 1)
    consumed = dict(use.consumed or {})
    for name, amount in holding.consumed.items():
        consumed[name] = consumed.get(name, 0) + amount.nanos
    return use._replace(shares=use.shares + 1, consumed=consumed)

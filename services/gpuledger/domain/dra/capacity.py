"""How much of a capacity a claim consumes, and how much remains for others. Pure; all amounts are in billionths.

Rule 7 of the allocator. Amounts, minimum and step are rounded up to whole numbers before steps are counted, unless the
claim requests less than the minimum.
"""

from collections.abc import Mapping

from gpuledger.domain.dra.objects import Capacity, DraDevice, Policy
from gpuledger.domain.dra.use import Use
from gpuledger.domain.quantities import UNIT

LEAST = 1
"""The least that can be requested."""


def consumption(capacity: Capacity, requested: int | None) -> int | None:
    """The consumption of a claim that requests this amount, or (None) no amount; None where the policy refuses it."""
    policy = capacity.policy
    if requested is None:
        default = policy.default if policy else None
        return capacity.value.nanos if default is None else default
    if policy is None:
        return requested
    if policy.values:
        return next((value for value in policy.values if value >= requested), None)
    if policy.low is None:
        return requested
    rounded = _in_range(policy, policy.low, requested)
    return None if policy.high is not None and rounded > policy.high else rounded


def least(capacity: Capacity) -> int:
    """The least that a claim can consume: asking for next to nothing, or for nothing in particular."""
    options = (consumption(capacity, LEAST), consumption(capacity, None))
    return min(one for one in options if one is not None)


def fits(device: DraDevice, use: Use, requested: Mapping[str, int | None]) -> bool:
    """Whether one more claim with these requests fits; None, or a missing capacity, requests no amount."""
    return all(
        (consumed := consumption(one, requested.get(name))) is not None
        and use.consumed_of(name) + consumed <= one.value.nanos
        for name, one in device.capacity.items()
    )


def fits_least(device: DraDevice, use: Use) -> bool:
    """Whether a claim that requests as little as possible fits; a device that cannot be shared is requested whole."""
    if not device.is_shareable:
        return fits(device, use, {})
    return all(use.consumed_of(name) + least(one) <= one.value.nanos for name, one in device.capacity.items())


def _in_range(policy: Policy, low: int, requested: int) -> int:
    if requested < low:
        return low
    if policy.step is None:
        return requested
    start, step = _up(low), _up(policy.step)
    return start + -(-(_up(requested) - start) // step) * step


def _up(nanos: int) -> int:
    return -(-nanos // UNIT) * UNIT

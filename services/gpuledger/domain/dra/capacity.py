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
    """What a claim consumes that asks for so much, or names no amount; None where the policy refuses it."""
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


def most(capacity: Capacity, free: int) -> int:
    """The most that a claim can consume of what is free; 0 where nothing fits."""
    return max(_fitting(capacity, free), default=0)


def free_of(device: DraDevice, use: Use) -> dict[str, int]:
    """What is left of each capacity; less than nothing where too much is consumed."""
    return {name: one.value.nanos - use.consumed_of(name) for name, one in device.capacity.items()}


def fits(device: DraDevice, use: Use, requested: Mapping[str, int | None]) -> bool:
    """Whether one more claim fits that asks for so much of each capacity; None, or no word, names no amount."""
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


def remaining(device: DraDevice, use: Use) -> dict[str, int]:
    """The most that one more claim can consume of each capacity, the others at their least; 0 where it does not fit."""
    free = free_of(device, use)
    needs = {name: least(one) for name, one in device.capacity.items()}
    return {
        name: most(one, free[name])
        if all(needs[other] <= free[other] for other in device.capacity if other != name)
        else 0
        for name, one in device.capacity.items()
    }


def _in_range(policy: Policy, low: int, requested: int) -> int:
    if requested < low:
        return low
    if policy.step is None:
        return requested
    start, step = _up(low), _up(policy.step)
    return start + -(-(_up(requested) - start) // step) * step


def _fitting(capacity: Capacity, free: int) -> list[int]:
    """Consumptions that fit, the largest among them."""
    policy = capacity.policy
    options = [consumption(capacity, None)]
    if policy is None or (not policy.values and policy.low is None):
        options.append(free)
    elif policy.values:
        options += policy.values
    else:
        options += _range_ends(policy, free)
    return [one for one in options if one is not None and 0 < one <= free]


def _range_ends(policy: Policy, free: int) -> list[int]:
    """The minimum, and the last amount of a range that is not beyond what is free."""
    low = policy.low or 0
    bound = free if policy.high is None else min(free, policy.high)
    if policy.step is None:
        return [low, *([bound] if bound >= low else [])]
    start, step = _up(low), _up(policy.step)
    return [low, *([start + (bound - start) // step * step] if bound >= start else [])]


def _up(nanos: int) -> int:
    return -(-nanos // UNIT) * UNIT

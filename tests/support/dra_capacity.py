"""What remains of a device's capacities under the allocator's rule 7, as test vectors have it.

The product decides only whether a claim fits. The vectors also have the largest amount that would, which this computes
from the product's own rules.
"""

from gpuledger.domain.dra.capacity import consumption, least
from gpuledger.domain.dra.objects import Capacity, DraDevice, Policy
from gpuledger.domain.dra.use import Use
from gpuledger.domain.quantities import UNIT


def most(capacity: Capacity, free: int) -> int:
    """The most that a claim can consume of what is free; 0 where nothing fits."""
    return max(_fitting(capacity, free), default=0)


def free_of(device: DraDevice, use: Use) -> dict[str, int]:
    """What is left of each capacity; less than nothing where too much is consumed."""
    return {name: one.value.nanos - use.consumed_of(name) for name, one in device.capacity.items()}


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

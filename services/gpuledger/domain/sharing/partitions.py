"""Whole GPUs that have to be, or had better be, a partition of linked GPUs of their node's table. Pure.

The rules are those of Koordinator's GPU partitions (vectors of sharing, Choice of devices).
"""

from collections.abc import Sequence
from typing import Final

from gpuledger.domain.sharing.candidates import FittingDevice, Offer
from gpuledger.domain.sharing.model import Partition, PartitionSpec, Refusal, TypeRequest
from gpuledger.domain.sharing.partition_tables import HONOR
from gpuledger.domain.sharing.topology import within

_WORTH: Final = {8: 10_000, 4: 100, 2: 1}
"""What a partition of so many GPUs is worth that stays free: one of eight more than all smaller ones together."""


def partition(
    offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]
) -> list[FittingDevice] | Refusal | None:
    """The GPUs of the best partition; None: partitions do not decide, or are only preferred and none fits."""
    spec, policy = offer.request.partition, offer.node.partition_policy
    if asked.shared or (spec is None and policy is None):
        return None
    best = _best(offer, asked, candidates, spec or PartitionSpec())
    if best is not None:
        return [one for one in candidates if one.device.minor in best.minors]
    return _refusal(offer, asked) if spec is not None or policy == HONOR else None


def _refusal(offer: Offer, asked: TypeRequest) -> Refusal:
    if not offer.node.partitions:
        return Refusal(f"Insufficient {asked.type} devices: the node has no table of partitions.", unresolvable=True)
    if not offer.node.partitions.get(asked.number):
        sizes = ", ".join(map(str, sorted(offer.node.partitions)))
        reason = f"no partition of the node has {asked.number}; ask for one of {sizes}."
        return Refusal(f"Insufficient {asked.type} devices: {reason}", unresolvable=True)
    return Refusal(f"Insufficient {asked.type} devices: no partition of {asked.number} that fits is free.")


def _best(
    offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice], spec: PartitionSpec
) -> Partition | None:
    """The fitting partition with the best score, then with the most value left; the first of equals."""
    listed = offer.node.partitions.get(asked.number, ())
    least = max((one.score for one in listed), default=0) if spec.restricted else 0
    unused = _unused(offer, asked)
    by_minor = {one.device.minor: one.device for one in candidates if one.device.minor in unused}
    fitting = [
        one
        for one in listed
        if one.score >= least
        and len(one.minors) == asked.number
        and one.minors <= by_minor.keys()
        and _is_fast_enough(one, spec)
        and within([by_minor[minor] for minor in one.minors], asked.hint.required_scope)
    ]
    return max(fitting, key=lambda one: (one.score, _value(offer, asked.number, unused - one.minors)), default=None)


def _unused(offer: Offer, asked: TypeRequest) -> frozenset[int]:
    """Healthy GPUs of which nobody holds anything."""
    return frozenset(one.minor for one in offer.devices(asked.type) if one.healthy and not offer.in_use(one))


def _is_fast_enough(one: Partition, spec: PartitionSpec) -> bool:
    """Whether the partition has the bandwidth that is asked for; one that states none has not."""
    if spec.ring_bus_bandwidth is None:
        return True
    return one.ring_bus_bandwidth is not None and one.ring_bus_bandwidth >= spec.ring_bus_bandwidth


def _value(offer: Offer, number: int, left: frozenset[int]) -> int:
    """What the partitions are worth that stay free when `left` are; those smaller than the request do not count."""
    return sum(
        worth
        for size, worth in _WORTH.items()
        if size >= number
        for one in offer.node.partitions.get(size, ())
        if one.minors <= left
    )

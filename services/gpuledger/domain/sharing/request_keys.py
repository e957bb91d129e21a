"""By what requests are equal: keys under which the results of placements are remembered. Pure."""

from collections.abc import Hashable

from gpuledger.domain.sharing.model import Allocation, Amounts, PodRequest, TypeRequest

Key = Hashable


def key_of(request: PodRequest) -> Key:
    """Equal requests have equal keys."""
    designated = None if request.designated is None else _allocation(request.designated)
    numa = request.numa_nodes
    return tuple(map(_type, request.types)), request.joint, request.partition, numa, designated


def _type(one: TypeRequest) -> Key:
    return one.type, one.number, _amounts(one.per_device), one.shared, one.hint


def _allocation(allocation: Allocation) -> Key:
    return tuple(
        (kind, tuple((one.minor, _amounts(one.resources), one.functions) for one in devices))
        for kind, devices in sorted(allocation.items())
    )


def _amounts(amounts: Amounts) -> Key:
    return tuple(sorted(amounts.items()))

"""Rows of pools as the status that GPUPools and ClusterGPUPools show. Pure."""

from collections.abc import Iterable

from gpuledger.api.conditions import TRUE, PoolConditionType
from gpuledger.domain.inventory.status import Document, condition
from gpuledger.domain.pools.pools import PoolCondition, PoolTotal


def pool_status(total: PoolTotal | None, conditions: Iterable[PoolCondition], used: int, warning: str = "") -> Document:
    """The status of a pool; `used` is how many of its units pods on nodes request.

    How many are available follows from the total, and is left out while there is none. A warning about its spec is the
    message of Configured, unless that has one.
    """
    generation = 0 if total is None else total.observed_generation
    kept = sorted(conditions, key=lambda one: one.type)
    return {
        "capacity": capacity(None if total is None else total.total, used),
        "conditions": [
            condition(one.type, one.status, one.reason, one.changed_at, one.message or _warning(one, warning))
            | {"observedGeneration": generation}
            for one in kept
        ],
    }


def _warning(one: PoolCondition, warning: str) -> str:
    return warning if (one.type, one.status) == (PoolConditionType.CONFIGURED, TRUE) else ""


def capacity(total: int | None, used: int) -> Document:
    """`status.capacity`, in units of the pool's resource."""
    if total is None:
        return {"used": used}
    return {"total": total, "used": used, "available": max(0, total - used)}

"""Rows of pools as the status that GPUPools and ClusterGPUPools show. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from gpuledger.api.conditions import FALSE, TRUE, PoolConditionType
from gpuledger.api.reasons import PoolReason
from gpuledger.domain.inventory.status import Document, condition
from gpuledger.domain.pools.pools import PoolCondition, PoolTotal

WITH_WARNING: Final = "The pool's spec is valid, with a warning: the message of Configured has it."


def pool_status(total: PoolTotal | None, conditions: Iterable[PoolCondition], used: int, warning: str = "") -> Document:
    """The status of a pool; `used` is how many of its units pods on nodes request.

    How many are available follows from the total, and is left out while there is none. A warning about its spec is the
    message of Configured, unless that has one, and its reason says that there is one.
    """
    generation = 0 if total is None else total.observed_generation
    kept = sorted(conditions, key=lambda one: one.type)
    return {
        "capacity": capacity(None if total is None else total.total, used),
        "conditions": [
            condition(one.type, one.status, *_explained(one, warning)) | {"observedGeneration": generation}
            for one in kept
        ],
    }


def _explained(one: PoolCondition, warning: str) -> tuple[str, datetime, str]:
    """Reason, time and message of a condition."""
    is_plain = bool(warning) and not one.message
    if is_plain and (one.type, one.status) == (PoolConditionType.CONFIGURED, TRUE):
        return PoolReason.CONFIGURED_WITH_WARNING, one.changed_at, warning
    if is_plain and (one.type, one.status) == (PoolConditionType.MISCONFIGURED, FALSE):
        return one.reason, one.changed_at, WITH_WARNING
    return one.reason, one.changed_at, one.message


def capacity(total: int | None, used: int) -> Document:
    """`status.capacity`, in units of the pool's resource."""
    if total is None:
        return {"used": used}
    return {"total": total, "used": used, "available": max(0, total - used)}

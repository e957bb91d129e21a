"""The histories that operators may shorten: which there are, and how much of each stays. Pure.

What a table's rows were before a bound depends on nothing but facts of before, so a fold that drops the rows which
ended before it, and refuses such facts from there on, has the same rows of after as one that keeps all.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.workload import WorkloadScheduled

KEPT_MIN: Final = timedelta(days=31)
"""How much of a history stays at least, counted from the time when it is shortened.

An agent that was away has this long to tell what happened meanwhile.
"""

_UNIX = datetime(1970, 1, 1, tzinfo=UTC)


class History(NamedTuple):
    """A history, by the name of the table that people read.

    `aggregate` is that of the facts which a late one changes, so that those of before its beginning are refused; None
    where no fact changes what has ended, or the fold itself passes over those of before.
    """

    name: str
    aggregate: str | None
    holds: str


CONTAINER_ALLOCATIONS: Final = History(
    "container_allocation_history", AllocationObserved.AGGREGATE, "Which container held which device."
)
DEVICE_ALLOCATIONS: Final = History("device_allocation", None, "Which claim held which device.")
POOL_AVAILABILITY: Final = History("pool_availability", None, "How many devices of a DRA pool were in which state.")
PREFLIGHT_CHECKS: Final = History("preflight_check", None, "How pods that are gone went through preflight checks.")
SHARED_ALLOCATIONS: Final = History("shared_allocation", None, "What pods that are gone held of shared devices.")
WORKLOAD_ALLOCATIONS: Final = History("allocation", WorkloadScheduled.AGGREGATE, "Which workload held which device.")
HISTORIES: Final[Mapping[str, History]] = {
    one.name: one
    for one in (
        CONTAINER_ALLOCATIONS,
        DEVICE_ALLOCATIONS,
        POOL_AVAILABILITY,
        PREFLIGHT_CHECKS,
        SHARED_ALLOCATIONS,
        WORKLOAD_ALLOCATIONS,
    )
}


def latest_beginning(now: datetime) -> datetime:
    """The latest time at which a history may begin that is shortened now."""
    return (now - KEPT_MIN).replace(microsecond=0)


def seconds_of(begins: datetime, recorded_at: datetime) -> int:
    """When a history begins that was shortened, in whole seconds since 1970; `KEPT_MIN` stays, whatever was asked."""
    return max(0, int((min(begins, latest_beginning(recorded_at)) - _UNIX).total_seconds()))


def time_of(seconds: int) -> datetime:
    """The time that `seconds_of` counts to."""
    return _UNIX + timedelta(seconds=seconds)

"""Pods that ask for units of pools, read from the log: those of a moment in the past, without all else of that moment.

What holds now is in the rows of pools. The log of pods is read once, and of it only pods that are there are kept.
"""

from datetime import datetime

from gpuledger.cli.backend import Backend
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.pods import POD_HANDLERS, units_by_resource
from gpuledger.domain.pools.rows import POOL_POD, PoolPod
from gpuledger.domain.pools.spec import resource_name
from gpuledger.domain.table import Table
from gpuledger.events.envelope import decode
from gpuledger.events.errors import EventError
from gpuledger.events.pod import PodObserved
from gpuledger.events.subjects import aggregate_filter
from gpuledger.ledger.api import Message
from gpuledger.tools.explain.pools import PodUse


class _Pods:
    """The pods that are there."""

    def __init__(self) -> None:
        self.pod = Table(POOL_POD)
        self.pod.never_written()


async def pods_asking(place: Backend, until: datetime | None = None, name: str | None = None) -> dict[str, PoolPod]:
    """The pods (or the one of this name) that ask for units of pools, by name; up to a time, or all that is known."""
    state = _Pods()
    async for messages in place.ledger.history(subject_filter=aggregate_filter(PodObserved.AGGREGATE, name)):
        for message in messages:
            _tell(state, message, until)
    return state.pod.rows


def uses_of(pods: dict[str, PoolPod], pool: str) -> list[PodUse]:
    """The pods that ask for units of a pool, by name."""
    namespace, resource = pool.rpartition("/")[0], resource_name(pool)
    asking = (row for row in pods.values() if namespace in ("", row.pod.partition("/")[0]))
    uses = (PodUse(row.pod, row.node, units_by_resource(row).get(resource, 0)) for row in asking)
    return sorted(one for one in uses if one.units)


def _tell(state: _Pods, message: Message, until: datetime | None) -> None:
    try:
        told = decode(message.data)
    except EventError:
        return
    handler = POD_HANDLERS.get(type(told.data))
    if handler is not None and (until is None or told.time <= until):
        handler(state, Fact(told, message.sequence, message.recorded_ns), told.data)

"""Pools as the ledger has them: now, at a time in the past, and the pods that request their units.

Nothing here writes or decides: what was decided in the past is among the recorded facts.
"""

from datetime import datetime
from typing import Final

from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.fact import Fact, Handler
from gpuledger.domain.pools import rows
from gpuledger.domain.pools.pods import POD_HANDLERS
from gpuledger.domain.pools.pools import Pool
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.table import Table
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.envelope import decode, parse
from gpuledger.events.errors import EventError
from gpuledger.events.pod import PodObserved
from gpuledger.events.position import order
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Projection
from gpuledger.tools.errors import ToolError
from gpuledger.tools.queries.backend import Backend, current, folded
from gpuledger.tools.queries.devices import RecordedEvent, recorded_events_of_each
from gpuledger.tools.queries.named_events import assignments_to, messages_about
from gpuledger.tools.queries.pool_name import PoolName

BOOKKEEPING: Final = (rows.POOL_TALLY.name, rows.DEVICE_PROBLEM.name, rows.POOL_MODULE.name)
"""Tables that no command shows."""


async def current_pools(backend: Backend) -> PoolFacts:
    """Pools, devices and assignments of now, and the pods that request units."""
    state: PoolFacts = await current(backend, PoolsProjection(), without=BOOKKEEPING)
    return state


async def pools_as_of(backend: Backend, until: datetime) -> PoolFacts:
    """Pools, devices, assignments and pods at a time in the past, by everything recorded to date."""
    state = (await folded(backend, _PoolsUntil(until))).state
    assert isinstance(state, PoolFacts)
    return state


def find_pool(state: PoolFacts, name: PoolName) -> Pool | None:
    """The pool that a name stands for; None where there is none.

    Raises:
        ToolError: it stands for several.
    """
    found = [row for row in state.pool.where("name", name.name) if name.matches(row.subject)]
    if len(found) > 1:
        several = ", ".join(sorted(row.subject for row in found))
        raise ToolError(f"Several pools are called {name.name!r}: {several}", "Name one with -n, or as NAMESPACE/NAME")
    return found[0] if found else None


async def assignments_of(backend: Backend, pool: str) -> list[RecordedEvent]:
    """The decisions by which devices came to a pool, changed in it, and left it."""
    devices = {parse(one.data).subject for one in await assignments_to(backend, pool)}
    found = await recorded_events_of_each(backend, "device", devices, event=DeviceAssignmentChanged.EVENT)
    everyone = sorted((one for events in found.values() for one in events), key=lambda one: order(one.sequence))
    decisions, inside = list[RecordedEvent](), set[str]()
    for one in everyone:
        data, device = one.event.data, one.event.subject
        is_inside = isinstance(data, DeviceAssignmentChanged) and data.pool == pool
        if is_inside or device in inside:
            decisions.append(one)
        (inside.add if is_inside else inside.discard)(device)
    return decisions


async def requesting_pods(
    backend: Backend, until: datetime | None = None, name: str | None = None
) -> dict[str, rows.PoolPod]:
    """The pods (or the one of this name) that request units of pools, by name; up to a time, or all there are.

    Reads the events about pods alone, or about the one pod, and keeps of them only pods that still exist.
    """
    state = _Pods()
    async for messages in messages_about(backend, PodObserved.AGGREGATE, name):
        for message in messages:
            _fold_pod(state, message, until)
    return state.pod.rows


class _Pods:
    """The pods that exist."""

    def __init__(self) -> None:
        self.pod = Table(rows.POOL_POD)
        self.pod.never_written()


def _fold_pod(state: _Pods, message: Message, until: datetime | None) -> None:
    try:
        event = decode(message.data)
    except EventError:
        return
    handler = POD_HANDLERS.get(type(event.data))
    if handler is not None and (until is None or event.time <= until):
        handler(state, Fact(event, message.sequence, message.recorded_ns), event.data)


class _FactsUntil(PoolFacts):
    """Pools up to a time."""

    def __init__(self, until: datetime) -> None:
        super().__init__()
        self.until = until


def _until(handler: Handler) -> Handler:
    def fold(state: _FactsUntil, fact: Fact, data: object) -> None:
        if fact.event.time <= state.until:
            handler(state, fact, data)

    return fold


class _PoolsUntil(Projection):
    """Folds what the `pools` service folds, except for facts of a later time."""

    name, version, specs = PoolsProjection.name, PoolsProjection.version, ()
    handlers = {model: _until(handler) for model, handler in PoolsProjection.handlers.items()}

    def __init__(self, until: datetime) -> None:
        self._until = until

    def new_state(self) -> _FactsUntil:
        """An empty state."""
        return _FactsUntil(self._until)

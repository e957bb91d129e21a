"""Slices, claims and pools of dynamic resource allocation: now, from the tables; in the past, from a fold of the log.

Both give the same `Availability`, and rows follow from that alone. The rows of pools have the field names of upstream's
ResourcePoolStatusRequest, and ours where it has none. Nothing here writes.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

import orjson

from gpuledger.domain.dra.device_state import AvailabilityState
from gpuledger.domain.dra.evaluation import PoolEvaluation
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.pool_index import EVERYWHERE
from gpuledger.domain.dra.pools import PoolView
from gpuledger.domain.dra.rows import DeviceAllocation
from gpuledger.domain.dra.state import Availability, views
from gpuledger.domain.dra.status import VALID, conditions_of, overdrawn_errors, vanished_errors
from gpuledger.domain.fact import Fact, Handler
from gpuledger.domain.table import Table
from gpuledger.events.position import Offset, order
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.projections import AvailabilityProjection
from gpuledger.tools.queries.backend import Backend, current, folded, folded_past
from gpuledger.tools.queries.found_rows import RowDict


async def current_availability(backend: Backend, *, without: Collection[str] = ()) -> Availability:
    """The current state, once the tables hold all that is in the log; of what has ended, nothing.

    Args:
        backend: the servers.
        without: names of tables that the caller does not need.
    """
    state: Availability = await current(backend, AvailabilityProjection(), without=without)
    return state


async def availability_as_of(backend: Backend, until: datetime | Offset) -> Availability:
    """The state at a time, by everything recorded to date; or what the log up to a sequence amounts to.

    Up to a time, the facts of that time and before count, in the order of their times; those with the same time in the
    order of the log.
    """
    if not isinstance(until, datetime):
        state = (await folded_past(backend, AvailabilityProjection(), until)).state
        assert isinstance(state, Availability)
        return state
    facts = (await folded(backend, _FactCollector(until))).state
    assert isinstance(facts, _CollectedFacts)
    return facts.replayed()


def slice_rows(state: Availability) -> Iterator[RowDict]:
    """A row for each slice, its devices counted as its status counts them."""
    for name, row in sorted(state.slice.rows.items()):
        evaluation = state.evaluation(PoolId(row.driver, row.pool), row.node or EVERYWHERE)
        availabilities = evaluation.availabilities[row.name].values()
        states = [one.state for one in availabilities]
        allocated, available = sum(one.use.is_used for one in availabilities), states.count(AvailabilityState.AVAILABLE)
        yield {
            "name": name,
            "driver": row.driver,
            "pool": row.pool,
            "node": row.node,
            "total": len(states),
            "allocated": allocated,
            "available": available,
            "partial": states.count(AvailabilityState.PARTIAL),
            "unavailable": len(states) - allocated - available,
            "generation": row.pool_generation,
            "complete": evaluation.view.is_complete,
            "valid": evaluation.view.is_consistent,
            "published_at": row.published_at,
        }


def pool_rows(state: Availability) -> Iterator[RowDict]:
    """A row for each view of each pool: from a node with slices of its own, or from the whole cluster."""
    for pool, node in sorted(views(state)):
        evaluation = state.evaluation(pool, node)
        seen, counts, total = evaluation.view, evaluation.counts, evaluation.counts.total()
        available = counts[AvailabilityState.AVAILABLE]
        yield {
            "driver": pool.driver,
            "poolName": pool.name,
            "nodeName": node or None,
            "generation": seen.generation,
            "resourceSliceCount": seen.expected,
            "observedSliceCount": seen.observed,
            "totalDevices": total,
            "allocatedDevices": evaluation.allocated,
            "availableDevices": available,
            "partiallyAllocatedDevices": counts[AvailabilityState.PARTIAL],
            "unavailableDevices": total - evaluation.allocated - available,
            "complete": seen.is_complete,
            "valid": seen.is_consistent,
            "validationError": _validation_error(seen),
            "warnings": _warnings(state, pool, evaluation),
        }


def claim_rows(state: Availability) -> Iterator[RowDict]:
    """A row for each claim, with what it holds."""
    for claim, row in sorted(state.claim.rows.items()):
        namespace, _, name = str(claim).partition("/")
        held = sorted(state.held(row.claim))
        yield {
            "namespace": namespace,
            "name": name,
            "phase": row.phase,
            "devices": len(held),
            "requests": row.requests,
            "owner": row.owner,
            "since": row.since,
            "uid": row.uid,
            "held": [_holding(one) for one in held],
        }


def _validation_error(view: PoolView) -> str | None:
    """What is wrong with the pool's slices, in the words of its conditions."""
    found = [
        message for type_, is_met, _, message in conditions_of(view) if not is_met or (type_ == VALID and view.errors)
    ]
    return " ".join(found) or None


def _warnings(state: Availability, pool: PoolId, evaluation: PoolEvaluation) -> list[str]:
    """Defects that do not keep anybody from using the pool, and do not lie in its slices."""
    return [*vanished_errors(state.index(pool).vanished(), redacted=False), *overdrawn_errors(evaluation)]


def _holding(row: DeviceAllocation) -> RowDict:
    return {
        "request": row.request,
        "driver": row.driver,
        "pool": row.pool,
        "device": row.device,
        "share": row.share or None,
        "consumed": orjson.loads(row.consumed) if row.consumed else None,
        "admin_access": row.admin_access,
    }


class _CollectedFacts:
    """A state that keeps the facts themselves."""

    def __init__(self, until: datetime) -> None:
        self._until = until
        self._facts: list[tuple[Fact, Handler]] = []

    def tables(self) -> Mapping[str, Table[Any]]:
        """None."""
        return {}

    def add(self, fact: Fact, handler: Handler) -> None:
        """Keep a fact for its handler, unless it is of a later time."""
        if fact.event.time <= self._until:
            self._facts.append((fact, handler))

    def replayed(self) -> Availability:
        """What the facts amount to in the order of their times."""
        state = Availability()
        for table in state.tables().values():
            table.never_written()
        for fact, handler in sorted(self._facts, key=lambda one: (one[0].event.time, order(one[0].sequence))):
            handler(state, fact, fact.event.data)
        return state


def _collecting(handler: Handler) -> Handler:
    return lambda collected, fact, _data: collected.add(fact, handler)


class _FactCollector(Projection):
    """Collects the facts that the projection would fold."""

    name, version, specs = AvailabilityProjection.name, AvailabilityProjection.version, ()
    handlers = {model: _collecting(handler) for model, handler in AvailabilityProjection.handlers.items()}

    def __init__(self, until: datetime) -> None:
        self._until = until

    def new_state(self) -> _CollectedFacts:
        """An empty state."""
        return _CollectedFacts(self._until)

"""Slices, claims and pools of dynamic resource allocation: now, from the tables; in the past, from a fold of the log.

Both give the same `Availability`, so that callers need not know which it is. Nothing here writes.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from gpuledger.domain.dra.fold import Availability
from gpuledger.domain.fact import Fact, Handler
from gpuledger.domain.table import Table
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.availability import AvailabilityProjection
from gpuledger.tools.queries.backend import Backend, bring_current, folded, load_state


async def current_availability(backend: Backend, *, without: Collection[str] = ()) -> Availability:
    """The current state, once the tables hold all that is in the log; of what has ended, nothing.

    Args:
        backend: the servers.
        without: names of tables that the caller does not need.
    """
    projection = AvailabilityProjection()
    await bring_current(backend, [projection])
    state = projection.new_state()
    await load_state(backend, state, without=without)
    return state


async def availability_as_of(backend: Backend, until: datetime | int) -> Availability:
    """The state at a time, by everything recorded to date; or what the log up to a sequence amounts to.

    Up to a time, the facts of that time and before count, in the order of their times; those with the same time in the
    order of the log.
    """
    if isinstance(until, int):
        state = (await folded(backend, AvailabilityProjection(), until)).state
        assert isinstance(state, Availability)
        return state
    facts = (await folded(backend, _FactCollector(until))).state
    assert isinstance(facts, _CollectedFacts)
    return facts.replayed()


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
        state = AvailabilityProjection().new_state()
        for table in state.tables().values():
            table.never_written()
        for fact, handler in sorted(self._facts, key=lambda one: (one[0].event.time, one[0].sequence)):
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

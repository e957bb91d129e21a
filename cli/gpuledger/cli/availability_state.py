"""Slices, claims and pools as the ledger knows them: now, from the tables; at a moment before, from a fold of the log.

Both give the same `Availability`, so whoever asks it need not know which one it is. Nothing here writes.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from gpuledger.cli.backend import Backend, bring_current
from gpuledger.cli.live_state import load
from gpuledger.cli.render import progress
from gpuledger.domain.dra.fold import Availability
from gpuledger.domain.fact import Fact, Handler
from gpuledger.domain.table import Table
from gpuledger.projection.asof import fold_until
from gpuledger.projection.definition import Projection
from gpuledger.readmodels.availability import AvailabilityProjection


async def current(place: Backend, *, without: Collection[str] = ()) -> Availability:
    """What is there now, once the tables hold all that is in the log; of what has ended, nothing.

    Args:
        place: the servers.
        without: names of tables that are not asked for, and need not be read.
    """
    projection = AvailabilityProjection()
    await bring_current(place, [projection])
    state = projection.new_state()
    await load(place, state, without=without)
    return state


async def as_of(place: Backend, until: datetime | int) -> Availability:
    """What was there at a time, with all that is known of it today; or what the log up to a sequence amounts to.

    Up to a time, the facts of that time and before count, in the order of their times; those of one moment in the order
    of the log.
    """
    if isinstance(until, int):
        folded = await _folded(place, AvailabilityProjection(), until)
        assert isinstance(folded, Availability)
        return folded
    facts = await _folded(place, _Facts(until), None)
    assert isinstance(facts, _Collected)
    return facts.replayed()


class _Collected:
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
        state = _unwritten(AvailabilityProjection())
        for fact, handler in sorted(self._facts, key=lambda one: (one[0].event.time, one[0].sequence)):
            handler(state, fact, fact.event.data)
        return state


def _collecting(handler: Handler) -> Handler:
    return lambda collected, fact, _said: collected.add(fact, handler)


class _Facts(Projection):
    """Collects what the projection would fold."""

    name, version, specs = AvailabilityProjection.name, AvailabilityProjection.version, ()
    handlers = {model: _collecting(handler) for model, handler in AvailabilityProjection.handlers.items()}

    def __init__(self, until: datetime) -> None:
        self._until = until

    def new_state(self) -> _Collected:
        """An empty state."""
        return _Collected(self._until)


async def _folded(place: Backend, projection: Projection, until: int | None) -> object:
    target = await place.ledger.head() if until is None else until
    with progress("Folding the log", total=target) as advance:
        fold = await fold_until(projection, place.ledger, target, lambda done, _total: advance.to(done))
    return fold.state


def _unwritten(projection: AvailabilityProjection) -> Availability:
    state = projection.new_state()
    for table in state.tables().values():
        table.never_written()
    return state

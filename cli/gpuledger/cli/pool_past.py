"""Pools as they were at a moment in the past: a fold of the log in memory, that writes nothing and decides nothing."""

from datetime import datetime

from gpuledger.cli.backend import Backend
from gpuledger.cli.render import progress
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.fact import Fact, Handler
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.projection.asof import fold_until
from gpuledger.projection.definition import Projection


async def pools_as_of(place: Backend, until: datetime) -> PoolFacts:
    """Pools, devices, assignments and pods by the facts of that time and before, with all that is known of it today."""
    target = await place.ledger.head()
    with progress("Folding the log", total=target) as advance:
        fold = await fold_until(_Past(until), place.ledger, target, lambda done, _total: advance.to(done))
    state = fold.state
    assert isinstance(state, PoolFacts)
    return state


class _Facts(PoolFacts):
    """Pools up to a time."""

    def __init__(self, until: datetime) -> None:
        super().__init__()
        self.until = until


def _up_to(handler: Handler) -> Handler:
    def folded(state: _Facts, fact: Fact, said: object) -> None:
        if fact.event.time <= state.until:
            handler(state, fact, said)

    return folded


class _Past(Projection):
    """Folds what `pools` folds, but for facts of a later time. What was decided then is among the facts."""

    name, version, specs = PoolsProjection.name, PoolsProjection.version, ()
    handlers = {model: _up_to(handler) for model, handler in PoolsProjection.handlers.items()}

    def __init__(self, until: datetime) -> None:
        self._until = until

    def new_state(self) -> _Facts:
        """An empty state."""
        return _Facts(self._until)

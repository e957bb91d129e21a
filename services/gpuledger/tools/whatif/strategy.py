"""Answers `gpuledger what-if strategy`: recorded arrivals placed again by a strategy, beside how they were placed.

Writes nothing. The whole log is read, because what pods ask for may have been recorded at any time before.
"""

from datetime import datetime
from random import Random
from typing import Any, Final, NamedTuple

from gpuledger.domain.sharing.fragmentation import Fragmentation
from gpuledger.events.position import Offset, events_up_to
from gpuledger.projection.definition import Projection
from gpuledger.projection.replay import fold_on, memory_fold
from gpuledger.tools.errors import RequestError
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.moments import sequence_of
from gpuledger.tools.scheduling.strategies import STRATEGIES
from gpuledger.tools.whatif.arrivals import HANDLERS, PodHolds, RecordedArrivals, Step
from gpuledger.tools.whatif.replayed_cluster import Measured
from gpuledger.tools.whatif.strategy_replay import AsRecorded, ByStrategy, largest_of, mix_of

AS_RECORDED: Final = "as recorded"
PLACES: Final = 2
"""After the decimal point."""

NOTHING: Final = "Nothing about pods with shared GPUs was recorded since then."
AMOUNTS: Final = (
    "The log does not say which GPUs these pods had, so what could not be used as it was placed is unknown."
)

_HOUR_S: Final = 3_600


class ArrivalsProjection(Projection):
    """Folds what is known of nodes that share GPUs and of pods that ask for them; nobody writes it."""

    name = "what-if-strategy"
    version = 1
    specs = ()
    handlers = HANDLERS
    state_class = RecordedArrivals


class StrategyAnswer(NamedTuple):
    """A row of each placement, and notes about all."""

    rows: list[RowDict]
    notes: list[str]


async def what_if_strategy(
    backend: Backend, strategy: str, since: datetime | tuple[int | None, Offset], against: str | None, seed: int
) -> StrategyAnswer:
    """What a strategy makes of the arrivals since a moment, beside what was recorded, or another strategy.

    Raises:
        RequestError: there is no such strategy, or no such position.
    """
    for name in (strategy, against):
        if name is not None and name not in STRATEGIES:
            raise RequestError(f"There is no strategy {name}", f"Name one of {', '.join(STRATEGIES)}")
    present, state = await _arrivals(backend, since)
    steps = state.steps
    measured = Fragmentation(mix_of(present, steps))
    if against is None:
        was = AsRecorded(measured).run(present, steps)
    else:
        was = _replay(present, steps, against, measured, seed)
    would = _replay(present, steps, strategy, measured, seed)
    rows: list[RowDict] = [_row(against or AS_RECORDED, was), _row(strategy, would)]
    return StrategyAnswer(rows, _notes(present, state, against))


async def _arrivals(
    backend: Backend, since: datetime | tuple[int | None, Offset]
) -> tuple[list[Step], RecordedArrivals]:
    begun, ledger = await sequence_of(backend, since), backend.ledger
    head = await ledger.head()
    with backend.reporter.progress("Folding the log", total=events_up_to(head)) as advance:
        fold = await memory_fold(ArrivalsProjection(), ledger)
        state = fold.state
        assert isinstance(state, RecordedArrivals), "what the projection folds into"
        await fold_on(fold, ledger, begun, lambda done, _total: advance.to(done))
        present = state.begin()
        await fold_on(fold, ledger, head, lambda done, _total: advance.to(done))
    return present, state


def _replay(present: list[Step], steps: list[Step], strategy: str, measured: Fragmentation, seed: int) -> Measured:
    chance = Random(seed)  # noqa: S311 - no secret
    return ByStrategy(measured, strategy, largest_of(present, steps), chance).run(present, steps)


def _row(placement: str, measured: Measured) -> dict[str, Any]:
    return {
        "placement": placement,
        "pods": measured.pods,
        "placed": measured.placed,
        "waited_hours": round(measured.waited.total_seconds() / _HOUR_S, PLACES),
        "gpus": round(measured.gpus, PLACES),
        "allocated": round(measured.allocated, PLACES),
        "rate": None if measured.rate is None else round(measured.rate, 4),
        "fragment": _rounded(measured.fragment),
        "fragment_at_end": _rounded(measured.fragment_at_end),
    }


def _rounded(gpus: float | None) -> float | None:
    return None if gpus is None else round(gpus, PLACES)


def _notes(present: list[Step], state: RecordedArrivals, against: str | None) -> list[str]:
    if not state.steps:
        return [NOTHING]
    first, last = min(one.time for one in state.steps), max(one.time for one in state.steps)
    notes = [f"From {first.isoformat()} to {last.isoformat()}; means are over this time."]
    holds = (one.what for one in (*present, *state.steps) if isinstance(one.what, PodHolds))
    if against is None and any(one.node is None for one in holds):
        notes.append(AMOUNTS)
    if state.refused:
        notes.append(f"{len(state.refused)} pods ask for what no node can give, and are left out.")
    return notes

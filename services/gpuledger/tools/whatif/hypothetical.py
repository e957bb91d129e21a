"""The pools as they would be under another definition of one of them, beside the recorded pools. Pure.

The hypothetical pools begin as a copy of the recorded ones at a moment, and the same decider decides about them by the
same facts. Its decisions must never be published, nor change what is recorded: the copy shares rows, which do not
change, but no table.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gpuledger.api.phases import AssignmentPhase
from gpuledger.deciders.pools.decide import on_fact
from gpuledger.deciders.pools.projection import PoolsProjection
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.folds import HANDLERS
from gpuledger.domain.pools.pools import Assignment
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceAssignmentChanged, DevicePoolReleased
from gpuledger.events.envelope import Event
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolDefined
from gpuledger.events.position import ORIGIN, Offset, next_after
from gpuledger.projection.definition import Decisions

HYPOTHETICAL: Final = "hypothetical"
"""The uid of a pool that does not exist, and the first part of the ids of hypothetical events."""

DEFINED_BY: Final = "/watchers/gpupools"
DECIDED_BY: Final = "/services/pools"
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""When a pool that never existed is defined: no fact that is recorded later may count as older."""


class Hypothesis(NamedTuple):
    """A pool by its id, and its other definition.

    The uid, the generation and the deletion stay as they are recorded, and so does the maintenance, unless the
    definition sets it.
    """

    pool: str
    definition: PoolDefined
    sets_maintenance: bool = False


class RecordedPools(PoolsProjection):
    """Folds the recorded pools and decides as the service does; passes on each fact before it decides."""

    def __init__(self) -> None:
        self.pass_on: Callable[[Fact, PoolFacts], None] = lambda _fact, _recorded: None

    def decide(self, state: PoolFacts, fact: Fact) -> Decisions:
        """The decisions that follow from a fact."""
        self.pass_on(fact, state)
        return super().decide(state, fact)


class HypotheticalPools:
    """The pools if one of them had the other definition from a moment on.

    Args:
        recorded: the recorded pools at the moment; nothing may be left to decide about them.
        hypothesis: the pool and its definition.
        position: the place of the definition in the log, which is that of the first fact that is replayed after it.
    """

    def __init__(self, recorded: PoolFacts, hypothesis: Hypothesis, position: Offset) -> None:
        self.state = copy_of(recorded)
        self.left: dict[str, DeviceAssignmentChanged] = {}
        """The last decision by which each device has to leave its pool."""
        self.taken: dict[str, DeviceAssignmentChanged] = {}
        """The last decision by which a pool takes each device."""
        self.replaced = 0
        """How many recorded definitions of the pool the other definition replaced."""
        self._hypothesis = hypothesis
        self._adopted: str | None = None
        self._events = 0
        row = self.state.pool.get(hypothesis.pool)
        new = hypothesis.definition.model_copy(update={"uid": HYPOTHETICAL, "generation": 0, "deleting": False})
        definition = self._instead_of(new if row is None else row.spec.definition)
        self._fold(self._fact(DEFINED_BY, hypothesis.pool, self._since(), definition, position))

    def replay(self, fact: Fact, recorded: PoolFacts) -> None:
        """Fold a fact that was recorded after the moment, and decide; recorded decisions must not be replayed.

        The other definition replaces each recorded one of the pool. A report that a device was released, because it had
        to leave according to `recorded`, is left out if it need not leave here. Every fact stands one place later than
        it was recorded, behind the definition that was put in.
        """
        data, fact = fact.event.data, fact._replace(sequence=next_after(fact.sequence))
        if isinstance(data, DevicePoolReleased):
            was_leaving, is_leaving = (
                _is_leaving(one, fact.event.subject, data.pool) for one in (recorded, self.state)
            )
            if was_leaving and not is_leaving:
                return
        if isinstance(data, PoolDefined) and fact.event.subject == self._hypothesis.pool:
            self.replaced += 1
            fact = fact._replace(event=fact.event._replace(data=self._instead_of(data)))
        self._fold(fact)

    def record(self, source: str, subject: str, time: datetime, data: Payload) -> None:
        """Fold a hypothetical fact, and decide what follows."""
        self._fold(self._fact(source, subject, time, data))

    def waiting(self) -> Iterator[Assignment]:
        """The assignments that wait for a report of the agent."""
        phases = (AssignmentPhase.PENDING, AssignmentPhase.UNASSIGNING)
        return (row for row in self.state.assignment.rows.values() if row.phase in phases)

    def _since(self) -> datetime:
        """The earliest time at which a definition counts."""
        row, end = self.state.pool.get(self._hypothesis.pool), self.state.end.get(self._hypothesis.pool)
        if row is not None:
            return row.defined_at
        return EARLIEST if end is None else end.gone_at

    def _instead_of(self, recorded: PoolDefined) -> PoolDefined:
        kept = {"uid": self._uid(recorded), "generation": recorded.generation, "deleting": recorded.deleting}
        if not self._hypothesis.sets_maintenance:
            kept["maintenance"] = recorded.maintenance
        return self._hypothesis.definition.model_copy(update=kept)

    def _uid(self, recorded: PoolDefined) -> str:
        """The uid of the recorded object, unless it takes the place of the hypothetical one from before."""
        row = self.state.pool.get(self._hypothesis.pool)
        if row is None or row.uid != HYPOTHETICAL or self._adopted not in (None, recorded.uid):
            return recorded.uid
        self._adopted = recorded.uid
        return HYPOTHETICAL

    def _fold(self, fact: Fact) -> None:
        HANDLERS[type(fact.event.data)](self.state, fact, fact.event.data)
        for decision in on_fact(self.state, fact):
            if isinstance(decision.data, DeviceAssignmentChanged):
                self._note(decision.subject, decision.data)
            decided = self._fact(DECIDED_BY, decision.subject, decision.time, decision.data)
            HANDLERS[type(decision.data)](self.state, decided, decision.data)

    def _note(self, device: str, data: DeviceAssignmentChanged) -> None:
        before = self.state.assignment.get(device)
        if data.phase == AssignmentPhase.UNASSIGNING.value:
            self.left[device] = data
        elif data.pool is not None and (before is None or before.pool != data.pool):
            self.taken[device] = data

    def _fact(self, source: str, subject: str, time: datetime, data: Payload, position: Offset = ORIGIN) -> Fact:
        self._events += 1
        event_id = f"{HYPOTHETICAL}-{self._events}"
        event = Event(event_id, source, data.TYPE, subject, time, data, HYPOTHETICAL, self._events)
        return Fact(event, position, 0)


def _is_leaving(state: PoolFacts, device: str, pool: str) -> bool:
    row = state.assignment.get(device)
    return row is not None and (row.pool, row.phase) == (pool, AssignmentPhase.UNASSIGNING)


def copy_of(state: PoolFacts) -> PoolFacts:
    """The same rows in tables of their own, which do not account for changes."""
    copied, tables = PoolFacts(), state.tables()
    for name, table in copied.tables().items():
        table.never_written()
        table.load(tables[name].rows.values())
    return copied

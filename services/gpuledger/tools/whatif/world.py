"""What would be if a pool were defined otherwise: the same facts, told to the same decider, in a world beside. Pure.

The world begins as a copy of what is recorded up to a moment. What is decided in it must never be published, and what
is recorded is never changed by it: the copy shares rows, which do not change, and no table.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from gpuledger.api.phases import AssignmentPhase
from gpuledger.deciders.pools.decide import on_fact
from gpuledger.domain.fact import Fact
from gpuledger.domain.pools.folds import HANDLERS
from gpuledger.domain.pools.pools import Assignment
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceAssignmentChanged, DevicePoolReleased
from gpuledger.events.envelope import Event
from gpuledger.events.payload import Payload
from gpuledger.events.pool import PoolDefined

SUPPOSED: Final = "supposed"
"""The uid of a pool that there was not, and what ids of supposed events begin with."""

SUPPOSER: Final = "/watchers/gpupools"
DECIDER: Final = "/services/pools"
EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""When a pool is defined that there never was: nothing that is recorded later may count as older."""


class Supposition(NamedTuple):
    """A pool by its id, and how it is supposed to be defined.

    What only the recorded object has (uid, generation, whether it is being deleted) stays as it is recorded, and so
    does the maintenance, unless the definition says something of it.
    """

    pool: str
    said: PoolDefined
    says_maintenance: bool = False


class SupposedPools:
    """The world in which the pool is defined so, from a moment on.

    Args:
        recorded: all that was recorded and decided up to the moment; it must have nothing left to decide.
        supposition: what is supposed.
        position: where the definition is supposed to stand in the log: that of the first fact that is told after it.
    """

    def __init__(self, recorded: PoolFacts, supposition: Supposition, position: int) -> None:
        self.state = copy_of(recorded)
        self.left: dict[str, DeviceAssignmentChanged] = {}
        """The last decision by which each device was to leave its pool."""
        self.taken: dict[str, DeviceAssignmentChanged] = {}
        """The last decision by which a pool was to have each device."""
        self.replaced = 0
        """How many recorded definitions of the pool were heard as the supposed one."""
        self._supposition = supposition
        self._adopted: str | None = None
        self._events = 0
        known = self.state.pool.get(supposition.pool)
        there = supposition.said.model_copy(update={"uid": SUPPOSED, "generation": 0, "deleting": False})
        said = self._instead_of(there if known is None else known.spec.definition)
        self._hear(self._fact(SUPPOSER, supposition.pool, self._since(), said, position))

    def tell(self, fact: Fact, recorded: PoolFacts) -> None:
        """Fold a fact that was recorded after the moment, and decide anew; recorded decisions must not be told.

        A definition of the pool that is supposed to be another is heard as the supposed one. That an agent released a
        device because it was to leave, as `recorded` has it at that point of the log, is not heard where it is not to
        leave here. Every fact stands one further on than it was recorded, behind the one that was put in.
        """
        data, fact = fact.event.data, fact._replace(sequence=fact.sequence + 1)
        if isinstance(data, DevicePoolReleased):
            is_asked, is_leaving = (_is_leaving(one, fact.event.subject, data.pool) for one in (recorded, self.state))
            if is_asked and not is_leaving:
                return
        if isinstance(data, PoolDefined) and fact.event.subject == self._supposition.pool:
            self.replaced += 1
            fact = fact._replace(event=fact.event._replace(data=self._instead_of(data)))
        self._hear(fact)

    def say(self, source: str, subject: str, time: datetime, data: Payload) -> None:
        """Fold a fact that nobody recorded, and decide what follows."""
        self._hear(self._fact(source, subject, time, data))

    def waiting(self) -> Iterator[Assignment]:
        """The devices that wait for their agents' word."""
        return (
            row
            for row in self.state.assignment.rows.values()
            if row.phase in (AssignmentPhase.PENDING, AssignmentPhase.UNASSIGNING)
        )

    def _since(self) -> datetime:
        """The earliest time at which a definition counts."""
        known, end = self.state.pool.get(self._supposition.pool), self.state.end.get(self._supposition.pool)
        if known is not None:
            return known.defined_at
        return EARLIEST if end is None else end.gone_at

    def _instead_of(self, recorded: PoolDefined) -> PoolDefined:
        said = self._supposition.said
        return said.model_copy(
            update={
                "uid": self._uid(recorded),
                "generation": recorded.generation,
                "deleting": recorded.deleting,
                "maintenance": said.maintenance if self._supposition.says_maintenance else recorded.maintenance,
            }
        )

    def _uid(self, recorded: PoolDefined) -> str:
        """That of the recorded object, unless it is the one that was supposed to be there before."""
        known = self.state.pool.get(self._supposition.pool)
        if known is None or known.uid != SUPPOSED or self._adopted not in (None, recorded.uid):
            return recorded.uid
        self._adopted = recorded.uid
        return SUPPOSED

    def _hear(self, fact: Fact) -> None:
        HANDLERS[type(fact.event.data)](self.state, fact, fact.event.data)
        for decision in on_fact(self.state, fact):
            if isinstance(decision.data, DeviceAssignmentChanged):
                self._note(decision.subject, decision.data)
            decided = self._fact(DECIDER, decision.subject, decision.time, decision.data)
            HANDLERS[type(decision.data)](self.state, decided, decision.data)

    def _note(self, device: str, data: DeviceAssignmentChanged) -> None:
        known = self.state.assignment.get(device)
        if data.phase == AssignmentPhase.UNASSIGNING.value:
            self.left[device] = data
        elif data.pool is not None and (known is None or known.pool != data.pool):
            self.taken[device] = data

    def _fact(self, source: str, subject: str, time: datetime, data: Payload, position: int = 0) -> Fact:
        self._events += 1
        event = Event(f"{SUPPOSED}-{self._events}", source, data.TYPE, subject, time, data, SUPPOSED, self._events)
        return Fact(event, position, 0)


def _is_leaving(state: PoolFacts, device: str, pool: str) -> bool:
    known = state.assignment.get(device)
    return known is not None and (known.pool, known.phase) == (pool, AssignmentPhase.UNASSIGNING)


def copy_of(state: PoolFacts) -> PoolFacts:
    """The same rows in tables of their own, of which no account is kept."""
    copied, known = PoolFacts(), state.tables()
    for name, table in copied.tables().items():
        table.never_written()
        table.load(known[name].rows.values())
    return copied

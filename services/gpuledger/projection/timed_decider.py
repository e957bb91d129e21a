"""Deciders that wait: that a wait is over is an event of their own, which takes effect where it stands in the log.

So a fact that is recorded before that event counts for what follows from it, and a replay has the same answer.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from gpuledger.domain.fact import Fact
from gpuledger.events.envelope import with_payload
from gpuledger.events.payload import Payload
from gpuledger.projection.definition import Decisions, Observed, Projection

StateT = TypeVar("StateT")
EndedT = TypeVar("EndedT", bound=Payload)


class TimedDecisions(NamedTuple, Generic[StateT, EndedT]):
    """What follows from a fact; that waits are over, each as an event of the type `ended`; and what follows from one.

    All are pure. `on_ended` has the event as the log has it.
    """

    on_fact: Callable[[StateT, Fact], Decisions]
    on_due: Callable[[StateT, datetime], Decisions]
    ended: type[EndedT]
    on_ended: Callable[[StateT, Fact, EndedT], Decisions]


class TimedDecider(Projection):
    """Observes the log for the events by which it recorded that waits are over, beside other types that it names."""

    decides = True
    observes = True
    decisions: ClassVar[TimedDecisions[Any, Any]]

    def __init_subclass__(cls) -> None:
        if "decisions" in vars(cls):
            cls.observed_types |= {cls.decisions.ended.TYPE}

    def decide(self, state: Any, fact: Fact) -> Decisions:  # noqa: ANN401 - each has its own state
        """The decisions that follow from a fact."""
        return self.decisions.on_fact(state, fact)

    def observed(self, state: Any, observed: Observed) -> Decisions:  # noqa: ANN401 - each has its own state
        """The decisions that follow from the end of a wait, at its place in the log."""
        event = with_payload(observed.event)
        assert isinstance(event.data, self.decisions.ended), "the type says what the data is"
        return self.decisions.on_ended(state, Fact(event, observed.sequence, observed.recorded_ns), event.data)

    def due(self, state: Any, now: datetime) -> Decisions:  # noqa: ANN401 - each has its own state
        """Record that waits are over."""
        return self.decisions.on_due(state, now)

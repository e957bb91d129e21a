"""The rows of `sources` follow from the log, though its leader folds a decision before that stands there."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gpuledger.deciders.sources.decide import GAP_GRACE_S
from gpuledger.deciders.sources.projection import SourcesProjection
from gpuledger.events.device import DeviceFailed
from gpuledger.events.envelope import Decoded
from gpuledger.events.node import EndedEpoch, NodeAgentStarted
from gpuledger.events.payload import Payload
from gpuledger.events.publishing import RULE_VERSIONS, Rule
from gpuledger.events.rule import RuleEnforced
from gpuledger.ledger.api import Message
from gpuledger.projection.definition import Numbering
from gpuledger.projection.fold import Fold
from support.events import AGENT, GENERATION, START, event, folded, message, rows_of
from support.thoroughness import examples

EPOCHS = ("a", "b")
GRACE = timedelta(seconds=GAP_GRACE_S)


class Record(NamedTuple):
    """The agent records an event behind so many others that it loses."""

    epoch: str
    lost: int


class RecordLate(NamedTuple):
    """The agent records an event of this number, or repeats it."""

    epoch: str
    number: int


class Start(NamedTuple):
    """The agent starts in an epoch, and names an end of the other, so far behind the last one or before it."""

    epoch: str
    behind: int


class Pass(NamedTuple):
    """So many graces of a missing number pass."""

    graces: int


class Publish(NamedTuple):
    """The leader publishes so many of its decisions, in their order."""

    decisions: int


Step = Record | RecordLate | Start | Pass | Publish

_epochs = st.sampled_from(EPOCHS)
_steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(Start, _epochs, st.integers(-1, 3)),
    st.builds(Record, _epochs, st.integers(0, 2)),
    st.builds(RecordLate, _epochs, st.integers(1, 9)),
    st.just(Pass(2)),
    st.builds(Publish, st.integers(1, 2)),
)
RULES = [
    event(RuleEnforced(version=RULE_VERSIONS[rule]), rule, number=number, source="/services/sources", epoch="before")
    for number, rule in enumerate(Rule, 1)
]


class Leader:
    """A fold that decides by time, publishes late, and appends to the log that it reads."""

    def __init__(self) -> None:
        self.fold = Fold(SourcesProjection(), GENERATION, numbering=Numbering("own", 1))
        self.log: list[Message] = []
        self._numbers, self._ends = dict.fromkeys(EPOCHS, 0), dict.fromkeys(EPOCHS, 0)
        self._now = START
        self._decided: list[Decoded] = []

    def append(self, events: Sequence[Decoded]) -> None:
        for one in events:
            self.log.append(message(one, len(self.log) + 1))
            self.fold.apply(self.log[-1])

    def take(self, step: Step) -> None:
        match step:
            case Record(epoch, lost):
                self._record(epoch, self._numbers[epoch] + lost + 1, DeviceFailed(kind="DBE"))
            case RecordLate(epoch, number):
                self._record(epoch, number, DeviceFailed(kind="DBE"))
            case Start(epoch, behind):
                (other,) = {*EPOCHS} - {epoch}
                end = EndedEpoch(epoch=other, last=max(0, self._ends[other] + behind))
                self._ends[other] = max(end.last, self._ends[other])
                started = NodeAgentStarted(version="1", hardware="nvml", clean=True, durable=True, ended=(end,))
                self._record(epoch, self._numbers[epoch] + 1, started)
            case Pass():
                self._now += step.graces * GRACE + timedelta(seconds=1)
                self.fold.due(self._now)
            case Publish():
                self.publish(step.decisions)

    def _record(self, epoch: str, number: int, data: Payload) -> None:
        self._numbers[epoch] = max(number, self._numbers[epoch])
        self._ends[epoch] = max(number, self._ends[epoch])
        subject = "n1" if isinstance(data, NodeAgentStarted) else "d1"
        self.append([event(data, subject, number=number, source=AGENT, epoch=epoch)])

    def publish(self, most: int) -> int:
        """Publish so many decisions; returns how many there were."""
        self._decided += self.fold.take_decided()
        ready, self._decided = self._decided[:most], self._decided[most:]
        self.append(ready)
        return len(ready)


@examples(3)
@given(st.lists(_steps, min_size=5, max_size=30))
def test_the_leaders_rows_are_those_of_the_log(steps: list[Step]) -> None:
    leader = Leader()
    leader.append(RULES)
    for step in steps:
        leader.take(step)
    while leader.publish(most=1):
        pass
    assert leader.fold.outstanding() == []
    assert rows_of(folded(SourcesProjection(), leader.log)) == rows_of(leader.fold)

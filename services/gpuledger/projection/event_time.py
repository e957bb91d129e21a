"""Folds in event time: what was true at a time, by the facts that a log holds up to a position.

The log is read in its order, so that repeats are dropped and rules enforced as everywhere. The facts up to the time are
then folded in the order of their times, those of one time in the order of the log. Nothing is decided: decisions are
facts of the log like others. What waits to be sorted lies in a file without a name, so that even a kill leaves none.
"""

import os
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from struct import Struct
from types import TracebackType
from typing import Any, Final, Self

import orjson

from gpuledger.domain.fact import AbsentRowsError, Fact, State
from gpuledger.domain.table import Table
from gpuledger.events.envelope import Decoded, Undecoded, encode, parse, to_document, with_payload
from gpuledger.events.payload import Payload
from gpuledger.events.position import Generations, Offset, number_of
from gpuledger.projection.definition import Decisions, Observed, Projection, RefusedEvent
from gpuledger.projection.enforced import NOTHING_IN_FORCE, InForce
from gpuledger.projection.errors import BadEventError, ScratchFullError

FACTS_PER_BATCH = 1_000

_HEAD: Final = Struct("<qqII?")
"""Sequence, time of recording in nanoseconds, size of the message, number of the rules, whether it is only observed."""

_UNIX: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class CollectedFacts:
    """A state that keeps the facts up to a time; a context manager. It holds 16 bytes of each in memory."""

    def __init__(self, at: datetime, bytes_max: int) -> None:
        self._at = at
        self._bytes_max = bytes_max
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `__exit__`
        self._times = array("q")
        self._ends = array("q", [0])
        self._rules: list[InForce] = [NOTHING_IN_FORCE]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def tables(self) -> Mapping[str, Table[Any]]:
        """None."""
        return {}

    def enforce(self, rules: InForce) -> None:
        """Note the rules that are enforced for the facts to come."""
        self._rules.append(rules)

    def add(self, fact: Fact) -> None:
        """Keep a fact, unless it is of a later time."""
        self._add(fact.event, encode(fact.event), fact.sequence, fact.recorded_ns, 0, is_observed=False)

    def observe(self, observed: Observed) -> None:
        """Keep an event that no handler folds."""
        event, size = observed.event, observed.size
        data = orjson.dumps(to_document(event, event.data), option=orjson.OPT_UTC_Z)
        self._add(event, data, observed.sequence, observed.recorded_ns, size, is_observed=True)

    def _add(
        self,
        event: Decoded | Undecoded,
        data: bytes,
        sequence: Offset,
        recorded_ns: int,
        size: int,
        *,
        is_observed: bool,
    ) -> None:
        if event.time > self._at:
            return
        frame = _HEAD.pack(number_of(sequence), recorded_ns, size, len(self._rules) - 1, is_observed)
        self._file.write(frame + data)
        self._times.append((event.time - _UNIX) // _MICROSECOND)
        end = self._ends[-1] + len(frame) + len(data)
        self._ends.append(end)
        if end > self._bytes_max:
            raise ScratchFullError("The facts to be sorted", end, self._bytes_max)

    def __len__(self) -> int:
        return len(self._times)

    def in_order(self) -> Iterator[list[tuple[InForce, Fact | Observed]]]:
        """The facts in the order of their times, in batches, each with the rules where it stands in the log."""
        self._file.flush()
        times, places = self._times, range(len(self._times))
        is_sorted = all(before <= after for before, after in pairwise(times))
        order: Sequence[int] = places if is_sorted else sorted(places, key=times.__getitem__)  # stable
        for first in range(0, len(order), FACTS_PER_BATCH):
            yield [self._read(place) for place in order[first : first + FACTS_PER_BATCH]]

    def _read(self, place: int) -> tuple[InForce, Fact | Observed]:
        begins, ends = self._ends[place], self._ends[place + 1]
        raw = os.pread(self._file.fileno(), ends - begins, begins)
        sequence, recorded_ns, size, number, is_observed = _HEAD.unpack_from(raw)
        rules, event = self._rules[number], parse(raw[_HEAD.size :])
        if is_observed:
            return rules, Observed(event, sequence, recorded_ns, size, rules=rules.rules)
        return rules, Fact(with_payload(event), sequence, recorded_ns, rules.rules)


def collector_of(projection: Projection, facts: CollectedFacts) -> Projection:
    """A projection that collects what another one would fold."""

    def collect(_state: object, fact: Fact, _data: Payload) -> None:
        facts.add(fact)

    class Collector(Projection):
        """Collects facts, and the projection's own events that no handler folds."""

        name, version, specs = projection.name, projection.version, ()
        handlers = dict.fromkeys(projection.handlers, collect)
        judges, observes, survives_restore = projection.judges, projection.observes, projection.survives_restore

        def new_state(self) -> CollectedFacts:
            return facts

        def follow_rules(self, state: CollectedFacts, rules: InForce) -> None:
            state.enforce(rules)

        def observed(self, state: CollectedFacts, observed: Observed) -> Decisions:
            if observed.event.source == self.source and observed.event.type not in _types(projection):
                state.observe(observed)
            return ()

    return Collector()


def _types(projection: Projection) -> frozenset[str]:
    return frozenset(model.TYPE for model in projection.handlers)


def fold_fact(projection: Projection, state: State, generations: Generations, item: Fact | Observed) -> None:
    """Fold one fact; of an event that is only observed, what it changes, and not what would be decided.

    Raises:
        BadEventError: this build fails at it.
        AbsentRowsError: its handler needs retired rows; see there.
    """
    try:
        if isinstance(item, Fact):
            projection.handlers[type(item.event.data)](state, item, item.event.data)
        else:
            _exhaust(projection.observed(state, item))
    except AbsentRowsError:
        raise
    except Exception as error:
        position, reason = generations.position(item.sequence), f"It does not fold in event time ({error!r})."
        raise BadEventError(projection.name, position, item.event.subject, reason) from error


def in_log_order(projection: Projection, at: datetime) -> Projection:
    """A projection that is about recording: the events up to a time, in the order of the log, without decisions."""

    def until(state: object, fact: Fact, data: Payload) -> None:
        if fact.event.time <= at:
            projection.handlers[type(data)](state, fact, data)

    class InLogOrder(Projection):
        """Folds what the other one folds, of events up to the time."""

        name, version, specs = projection.name, projection.version, projection.specs
        handlers = dict.fromkeys(projection.handlers, until)
        judges, observes, survives_restore = projection.judges, projection.observes, projection.survives_restore

        def new_state(self) -> Any:  # noqa: ANN401 - as the other one's
            return projection.new_state()

        def observed(self, state: Any, observed: Observed) -> Decisions:  # noqa: ANN401 - as the other one's
            if observed.event.time <= at:
                _exhaust(projection.observed(state, observed))
            return ()

        def refused(self, state: Any, refusal: RefusedEvent) -> Decisions:  # noqa: ANN401 - as the other one's
            if refusal.event is not None and refusal.event.time <= at:
                _exhaust(projection.refused(state, refusal))
            return ()

    return InLogOrder()


def _exhaust(decisions: Decisions) -> None:
    """Have a state follow what would be decided; the decisions themselves are in the log."""
    for _ in decisions:
        pass

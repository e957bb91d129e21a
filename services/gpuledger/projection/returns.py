"""Checks that a decider's own events come back from the log as it decided them. No I/O and no clock.

Only the leader publishes under a decider's name. What stands there when it begins is its past, whoever led then; behind
that, each own event must be one that it waits for, with the epoch and number that it gave. Otherwise another process
leads as well, from another database, and both would decide on rows that do not have the other's decisions.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpuledger.events.envelope import Decoded, Undecoded, with_data, with_payload
from gpuledger.events.payload import Payload
from gpuledger.events.position import (
    Generations,
    Offset,
    Position,
    generations_of,
    is_after,
    is_at_or_after,
    is_same,
    order,
)
from gpuledger.events.source import SourceMessageIdTaken
from gpuledger.projection.errors import AnotherLeaderError, DecisionConflictError, DecisionLostError

IDLE_TICKS_MAX = 60
"""How often in a row nothing may arrive while a decision is due back, before the log itself is asked."""


class _Due(NamedTuple):
    """A decision that is due back, in the order of the log."""

    order: int
    event_id: str
    sequence: Offset


def _due(event_id: str, sequence: Offset) -> _Due:
    return _Due(order(sequence), event_id, sequence)


class Returns:
    """The decisions that are in the log and have not come back, and what may come at all.

    `head` is the log's head when this leader began: up to there own events are its past. Up to `settled` it decides its
    past anew, maybe as another build than the one that recorded it, so that their contents may differ.
    """

    def __init__(
        self,
        projection: str,
        generation: int | Generations,
        *,
        head: Offset,
        settled: Offset,
        sent: Mapping[str, Offset],
        skipped: Iterable[Position],
    ) -> None:
        self._projection = projection
        self._generations = generations_of(generation)
        self._head = head
        self._settled = settled
        self._skipped = frozenset(skipped)
        self._sent = dict(sent)
        self._due_back = [_due(event_id, sequence) for event_id, sequence in sent.items()]
        heapify(self._due_back)
        self._idle_ticks = 0

    def sent(self, sequences: Mapping[str, Offset]) -> None:
        """Wait for decisions, by their ids, that were recorded at these positions."""
        self._sent.update(sequences)
        for event_id, sequence in sequences.items():
            heappush(self._due_back, _due(event_id, sequence))

    def came(self, sequence: Offset, event: Undecoded, expected: Decoded | None, data: Payload | None = None) -> None:
        """Check an own event of the log; `expected` is the decision with its id that had not come back.

        `data` is its payload, None where nobody has decoded it.

        Raises:
            AnotherLeaderError: this leader did not publish it.
            DecisionConflictError: it is not what was decided.
        """
        self._sent.pop(event.id, None)
        if event.type == SourceMessageIdTaken.TYPE:
            return
        is_ours = expected is not None and (expected.epoch, expected.number) == (event.epoch, event.number)
        if is_after(sequence, self._head) and not is_ours:
            raise AnotherLeaderError(self._projection, self._at(sequence), event.id, event.epoch)
        if expected is None or (not is_ours and is_at_or_after(self._settled, sequence)):
            return
        found = with_payload(event) if data is None else with_data(event, data)
        if found._replace(epoch=expected.epoch, number=expected.number) != expected:
            raise DecisionConflictError(self._projection, self._at(sequence), event.id)

    def repeats(self, sequence: Offset, event: Undecoded, expected: Decoded | None) -> None:
        """Every reader passes over an own event, because its number was seen before or its epoch is closed.

        `expected` is the decision with its id that had not come back. What a leader before this one published too late
        has another number than ours, and is not waited for.

        Raises:
            DecisionLostError: it is our decision, and was not held back to be published under another number.
        """
        if expected is None or (expected.epoch, expected.number) != (event.epoch, event.number):
            return
        if is_after(sequence, self._head) or event.id in self._sent:
            reason = "its number was given to another decision before, or a later leader closed its epoch"
            raise DecisionLostError(self._projection, self._at(sequence), event.id, reason)

    def check(self, sequence: Offset) -> None:
        """Check that everything has come back that was recorded up to a position, which has been folded.

        Raises:
            DecisionLostError: a decision has not.
        """
        self._idle_ticks = 0
        while self._due_back and is_at_or_after(sequence, self._due_back[0].sequence):
            _, event_id, recorded = heappop(self._due_back)
            if is_same(self._sent.get(event_id), recorded) and self._at(recorded) not in self._skipped:
                heappush(self._due_back, _due(event_id, recorded))
                raise self.lost(recorded, "the log has another event there, or a repeat")

    def overdue(self) -> Offset | None:
        """Note that nothing arrived; the position that should have, once that was so `IDLE_TICKS_MAX` times running."""
        waiting = bool(self._sent) and bool(self._due_back)
        self._idle_ticks = self._idle_ticks + 1 if waiting else 0
        return self._due_back[0].sequence if self._idle_ticks >= IDLE_TICKS_MAX else None

    def lost(self, sequence: Offset, reason: str) -> DecisionLostError:
        """The error for the decision that is due back first, at this position."""
        return DecisionLostError(self._projection, self._at(sequence), self._due_back[0].event_id, reason)

    def _at(self, sequence: Offset) -> Position:
        return self._generations.position(sequence)

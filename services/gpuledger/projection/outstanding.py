"""The decisions of one fold that it folded when they were made, and that have not come back from the log.

Where another version made a decision, it may come back with another content: the rows keep what this build decides, and
the log keeps what was recorded. Such decisions are counted.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gpuledger.events.envelope import Decoded, Undecoded
from gpuledger.events.payload import Payload
from gpuledger.events.position import Offset


class ChangedDecisions(NamedTuple):
    """How many decisions the log has with another content than the fold made, and where the last of them stands."""

    total: int
    last: Offset | None


NOTHING_CHANGED = ChangedDecisions(0, None)


class Outstanding:
    """Knows decisions by their ids; keeps them where they are published, and elsewhere a hash of their contents."""

    def __init__(self, decisions: Iterable[Decoded], *, publishes: bool) -> None:
        self.changed = NOTHING_CHANGED
        self._publishes = publishes
        self._returned: list[str] = []
        self._skipped: set[str] = set()
        self._decisions: dict[str, Decoded | int] = {}
        for decision in decisions:
            self.add(decision)

    def restore(self, skipped: Iterable[str], changed: ChangedDecisions) -> None:
        """Go on where a fold stood: the decisions that it met at skipped positions, and the count of changed ones."""
        self._skipped.update(skipped)
        self.changed = changed

    @property
    def skipped(self) -> list[str]:
        """The ids of the decisions that the log has at skipped positions."""
        return sorted(self._skipped)

    def __contains__(self, event_id: str) -> bool:
        """Whether a decision was folded when it was made, and is not to be folded where it stands in the log."""
        return event_id in self._decisions or event_id in self._skipped

    def add(self, decision: Decoded) -> None:
        """Wait for a decision, or note the number that it got."""
        self._decisions[decision.id] = decision if self._publishes else _content(decision.time, decision.data)

    def get(self, event_id: str) -> Decoded | None:
        """The decision with an id, where it is waited for and published."""
        decision = self._decisions.get(event_id)
        return None if isinstance(decision, int) else decision

    def came_back(self, event: Undecoded, data: Payload | None, sequence: Offset) -> bool:
        """Wait no longer for a decision that the log has; says whether it was waited for.

        `data` is the event's payload, None where the projection folds none of its type: no row shows its content. What
        a restore recorded anew names positions and times of the log of before.
        """
        decision = self._decisions.get(event.id)
        is_restored = event.recorded_at is not None
        if decision is not None and data is not None and not is_restored and _differs(decision, event.time, data):
            self.changed = ChangedDecisions(self.changed.total + 1, sequence)
        return self._leave(event.id)

    def skip(self, event_id: str) -> None:
        """Wait no longer for a decision at a skipped position; an earlier build published such a one again."""
        if self._leave(event_id):
            self._skipped.add(event_id)

    def is_skipped(self, event_id: str) -> bool:
        """Whether the log has the decision at a skipped position."""
        return event_id in self._skipped

    def take_returned(self) -> list[str]:
        """The ids of those that came back since the last call, where they are published."""
        returned, self._returned = self._returned, []
        return returned

    def all(self) -> list[Decoded]:
        """The decisions, in the order in which they were made."""
        assert self._publishes, "only their ids are kept"
        return [decision for decision in self._decisions.values() if not isinstance(decision, int)]

    def _leave(self, event_id: str) -> bool:
        is_back = event_id in self
        self._decisions.pop(event_id, None)
        if is_back and self._publishes:
            self._returned.append(event_id)
        return is_back


def _content(time: datetime, data: Payload) -> int:
    """A hash of what a decision says, the same within this process only."""
    return hash((time, data.model_dump_json()))


def _differs(decision: Decoded | int, time: datetime, data: Payload) -> bool:
    if isinstance(decision, int):
        return decision != _content(time, data)
    return (decision.time, decision.data) != (time, data)

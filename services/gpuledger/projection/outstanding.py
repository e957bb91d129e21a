"""The decisions of one fold that it folded when they were made, and that have not come back from the log."""

from collections.abc import Iterable

from gpuledger.events.envelope import Decoded


class Outstanding:
    """Knows decisions by their ids; keeps them only where they are published."""

    def __init__(self, decisions: Iterable[Decoded], *, publishes: bool) -> None:
        self.returned: list[str] = []
        """The ids of those that came back, where they are published, until somebody takes them."""

        self._publishes = publishes
        self._skipped: set[str] = set()
        self._decisions: dict[str, Decoded | None] = {}
        for decision in decisions:
            self.add(decision)

    def __contains__(self, event_id: str) -> bool:
        """Whether a decision was folded when it was made, and is not to be folded where it stands in the log."""
        return event_id in self._decisions or event_id in self._skipped

    def add(self, decision: Decoded) -> None:
        """Wait for a decision, or note the number that it got."""
        self._decisions[decision.id] = decision if self._publishes else None

    def get(self, event_id: str) -> Decoded | None:
        """The decision with an id, where it is waited for and published."""
        return self._decisions.get(event_id)

    def came_back(self, event_id: str) -> bool:
        """Wait no longer for a decision that the log has; says whether it was waited for."""
        is_back = event_id in self
        self._decisions.pop(event_id, None)
        if is_back and self._publishes:
            self.returned.append(event_id)
        return is_back

    def skip(self, event_id: str) -> None:
        """Wait no longer for a decision at a skipped position; an earlier build published such a one again."""
        if self.came_back(event_id):
            self._skipped.add(event_id)

    def is_skipped(self, event_id: str) -> bool:
        """Whether the log has the decision at a skipped position."""
        return event_id in self._skipped

    def take_returned(self) -> list[str]:
        """The ids of those that came back since the last call."""
        returned, self.returned = self.returned, []
        return returned

    def all(self) -> list[Decoded]:
        """The decisions, in the order in which they were made."""
        assert self._publishes, "only their ids are kept"
        return [decision for decision in self._decisions.values() if decision is not None]

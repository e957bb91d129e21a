"""The intents of one kind that have no outcome yet, by node. Pure.

The newest intent about a node is the one to carry out; those before it are superseded.
"""

from typing import Any, Generic, TypeVar

from gpuledger.domain.table import Table, TableSpec

IntentT = TypeVar("IntentT", bound=tuple[Any, ...])


class NodeIntents(Generic[IntentT]):
    """The newest intent about each node, in a table by node, and older ones, in a table by the id of the intent."""

    def __init__(self, newest: TableSpec[IntentT], older: TableSpec[IntentT]) -> None:
        self.newest = Table(newest)
        self.older = Table(older, "node")
        self.newest.never_written()
        self.older.never_written()
        self._touched: dict[str, None] = {}

    def nodes(self) -> list[str]:
        """The nodes about which there are intents without an outcome."""
        return sorted({*self.newest.rows, *map(self.newest.key_of, self.older.rows.values())})

    def about(self, node: str) -> list[IntentT]:
        """The intents about a node without an outcome, the newest one last."""
        newest = self.newest.get(node)
        return [*self.older.where("node", node), *([] if newest is None else [newest])]

    def is_newest(self, intent: IntentT) -> bool:
        """Whether no later intent about its node was recorded."""
        return self._is(self.newest.get(self.newest.key_of(intent)), self.older.key_of(intent))

    def decided(self, node: str, intent: IntentT | None) -> None:
        """An intent was recorded; None: the one before is cancelled."""
        before = self.newest.get(node)
        if before is not None and (intent is None or not self._is(before, self.older.key_of(intent))):
            self.older.put(before)
            self.newest.delete(node)
        if intent is not None:
            self.newest.put(intent)
        self._touched[node] = None

    def settled(self, node: str, intent: str) -> None:
        """An intent has an outcome."""
        self.older.delete(intent)
        if self._is(self.newest.get(node), intent):
            self.newest.delete(node)

    def take_touched(self) -> list[str]:
        """The nodes about which something was decided since the last call."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def _is(self, found: IntentT | None, intent: str) -> bool:
        return found is not None and bool(self.older.key_of(found) == intent)

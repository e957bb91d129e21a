"""Orders nodes by times, one entry to a node. Pure.

What happens to a node however often takes no more room than one node.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from datetime import datetime

NodesByTime = list[tuple[datetime, str]]
"""Nodes with a time each, the earliest first."""


def moved(nodes: NodesByTime, node: str, before: datetime | None, after: datetime | None) -> None:
    """Move a node to another time; None: it is not among them."""
    if before is not None:
        del nodes[bisect_left(nodes, (before, node))]
    if after is not None:
        insort(nodes, (after, node))


class NodeExpiries:
    """When something about each node ended, of all that is kept of it the earliest."""

    def __init__(self) -> None:
        self._nodes: NodesByTime = []
        self._earliest: dict[str, datetime] = {}
        self._until: datetime | None = None

    def __len__(self) -> int:
        return len(self._nodes)

    def note(self, node: str, ended_at: datetime) -> None:
        """Something about a node ended."""
        before = self._earliest.get(node)
        if before is None or ended_at < before:
            moved(self._nodes, node, before, ended_at)
            self._earliest[node] = ended_at

    def pop(self, until: datetime) -> Iterator[str]:
        """The nodes about which something ended before a time; the caller asks of each end whether `keeps` holds."""
        self._until = until
        while self._nodes and self._nodes[0][0] < until:
            _, node = self._nodes.pop(0)
            del self._earliest[node]
            yield node

    def keeps(self, node: str, ended_at: datetime) -> bool:
        """Whether an end of a node that was popped is kept until later; it is noted then."""
        assert self._until is not None, "the node was popped"
        if ended_at < self._until:
            return False
        self.note(node, ended_at)
        return True

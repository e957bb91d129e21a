"""Which nodes wait for what, the one that waits longest first, so that asking what is due costs what is due only.

It holds nothing that does not follow from the rows, and is told of every wait that begins. What has ended meanwhile
is still in it: who takes a wait looks whether it lasts.
"""

from collections.abc import Iterator
from datetime import datetime
from heapq import heappop, heappush
from typing import NamedTuple


class Wait(NamedTuple):
    """A node waits for a component since a time."""

    since: datetime
    node: str


class Waits:
    """Waits by component."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[Wait]] = {}
        self._noted: dict[tuple[str, str], datetime] = {}

    def note(self, component: str, since: datetime | None, node: str) -> None:
        """The node waits for the component since then, or (None) not any more."""
        if since is None:
            self._noted.pop((component, node), None)
        elif self._noted.get((component, node)) != since:
            self._noted[component, node] = since
            heappush(self._heaps.setdefault(component, []), Wait(since, node))

    def over(self, component: str, until: datetime, most: int) -> Iterator[Wait]:
        """Take the waits that began at `until` or before, `most` at a time; those that ended are passed over."""
        heap = self._heaps.get(component, [])
        while most > 0 and heap and heap[0].since <= until:
            wait = heappop(heap)
            if self._noted.get((component, wait.node)) == wait.since:
                del self._noted[component, wait.node]
                most -= 1
                yield wait

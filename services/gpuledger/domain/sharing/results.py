"""Remembers what was computed for requests and states of nodes, within a bound. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

RESULTS_MAX: Final = 200_000
"""So many results are remembered; then those of the requests that were not met for the longest time are forgotten."""

REQUESTS_MAX: Final = 4_096
"""Of so many requests anything is remembered."""

V = TypeVar("V")


class Results(Generic[V]):
    """Results by request, and by the state of a node."""

    def __init__(self, results_max: int = RESULTS_MAX) -> None:
        self._max = results_max
        self._requests: OrderedDict[Hashable, dict[int, V]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, request: Hashable) -> dict[int, V]:
        """What is remembered of a request, by state, to read; `put` adds to it."""
        found = self._requests.get(request)
        if found is None:
            found = self._requests[request] = {}
            self._keep_bounds()
        self._requests.move_to_end(request)
        return found

    def put(self, request: Hashable, state: int, result: V) -> V:
        """Remember a result; returns it."""
        of_request = self._requests.setdefault(request, {})
        self._count += state not in of_request
        of_request[state] = result
        self._keep_bounds()
        return result

    def forget(self) -> None:
        """Forget everything."""
        self._requests.clear()
        self._count = 0

    def _keep_bounds(self) -> None:
        while self._count > self._max or len(self._requests) > REQUESTS_MAX:
            _, oldest = self._requests.popitem(last=False)
            self._count -= len(oldest)

"""Which pods have to leave a node so that another one gets its devices, besides those that leave anyway. Pure.

Pods of higher priority stay where those of lower priority suffice, as Kubernetes has it; of these as few as possible
leave, and of equally many the least important ones: those of the lowest priority, then the newest.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from datetime import UTC, datetime
from math import comb
from typing import Final, NamedTuple

SEARCH_MAX: Final = 1_000
"""So many sets of pods are tried for one question, over all nodes; then pods are only spared one by one."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class Evictable(NamedTuple):
    """A pod that may be evicted; `since` is when it was first seen."""

    uid: str
    priority: int
    since: datetime | None = None


Fits = Callable[[Set[str]], bool]
"""Whether a pod fits on a node without the pods of these UIDs."""


class FewestVictims:
    """Answers about several nodes for one pod; the search for the smallest sets is bounded by `search_max` in all."""

    def __init__(self, search_max: int = SEARCH_MAX) -> None:
        self._left = search_max

    def besides(self, given: Set[str], evictable: Iterable[Evictable], fits: Fits) -> tuple[Evictable, ...] | None:
        """Who has to leave a node besides the `given` pods, the most important first; None: it would not help.

        Nobody where the given ones suffice. None of them can be spared; there is no smaller set either unless the
        bound of the search was met.
        """
        if fits(given):
            return ()
        pool = _lowest(given, sorted((one for one in evictable if one.uid not in given), key=_importance), fits)
        if pool is None:
            return None
        found = self._smallest(given, pool, fits)
        return tuple(reversed(_spared(given, pool, fits) if found is None else found))

    def _smallest(self, given: Set[str], pool: Sequence[Evictable], fits: Fits) -> Sequence[Evictable] | None:
        """The smallest set of the pool that helps, of equally large ones the least important; None: not found."""
        for size in range(1, len(pool)):
            number = comb(len(pool), size)
            if number > self._left:
                return None
            self._left -= number
            for places in _sets(len(pool), size):
                chosen = [pool[place] for place in places]
                if fits(_without(given, chosen)):
                    return chosen
        return pool


def _importance(one: Evictable) -> tuple[int, float, str]:
    """The least important first: lower priority, then newer."""
    return one.priority, -((one.since or _NEVER) - _NEVER).total_seconds(), one.uid


def _lowest(given: Set[str], order: Sequence[Evictable], fits: Fits) -> Sequence[Evictable] | None:
    """All pods up to the lowest priority with which it helps that they leave; None: it never does."""
    if not order or not fits(_without(given, order)):
        return None
    ends = [at for at in range(1, len(order)) if order[at - 1].priority != order[at].priority]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if fits(_without(given, order[: ends[middle]])):
            high = middle
        else:
            low = middle + 1
    return order[: ends[low]] if low < len(ends) else order


def _spared(given: Set[str], pool: Sequence[Evictable], fits: Fits) -> Sequence[Evictable]:
    """The pool without those that can be spared, of whom the most important ones are spared first."""
    left = list(pool)
    for one in reversed(pool):
        others = [each for each in left if each is not one]
        if fits(_without(given, others)):
            left = others
    return left


def _sets(number: int, size: int) -> Iterator[tuple[int, ...]]:
    """All sets of so many places; those whose greatest place is the lowest come first, and so on for the others."""
    if size == 0:
        yield ()
        return
    for greatest in range(size - 1, number):
        for others in _sets(greatest, size - 1):
            yield (*others, greatest)


def _without(given: Set[str], more: Iterable[Evictable]) -> frozenset[str]:
    return frozenset(given).union(one.uid for one in more)

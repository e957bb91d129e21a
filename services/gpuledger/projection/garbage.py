"""Why folding is not slowed down by Python's garbage collector.

A fold makes many small tuples and keeps them. The collector counts such allocations and then walks all of the young
ones, although rows hold no cycles: with its own settings that is a sixth of a fold's time, and more the more rows
there are. It is never switched off, because libraries around a fold do leave cycles behind.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG_OBJECTS_MAX = 20_000
"""Net allocations before the youngest generation is walked; Python's own setting is 700."""


class _Folds:
    """How many folds are under way, and what held before the first."""

    running = 0
    thresholds = gc.get_threshold()


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect less often while at least one such block is running."""
    if _Folds.running == 0:
        _Folds.thresholds = gc.get_threshold()
        gc.set_threshold(YOUNG_OBJECTS_MAX, *_Folds.thresholds[1:])
    _Folds.running += 1
    try:
        yield
    finally:
        _Folds.running -= 1
        if _Folds.running == 0:
            gc.set_threshold(*_Folds.thresholds)

"""Keeps Python's garbage collector from holding up folds and servers.

A fold makes many small tuples and keeps them. The collector counts such allocations and then walks all of the young
ones, although rows hold no cycles: with its own settings that is a sixth of a fold's time, and more the more rows
there are. It is never switched off, because libraries around a fold do leave cycles behind. Imports make as many
objects that stay: a sixth of the time that `gpuledger up` takes to import what it needs.

A process that holds many objects stands still while the collector walks all of them: 0.7 s with 10,000 claims. What
survives such a walk is rows and JSON, which reference counting frees, so it need not be walked again.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

YOUNG_OBJECTS_MAX = 200_000
"""Net allocations before the youngest generation is walked; Python's own setting is 700.

That is more than the messages of a batch amount to, most of which are gone when the next one comes: a walk before that
is spent on them. It bounds what cycles can hold in the meantime to some tens of megabytes, and the walk to some
hundredths of a second.
"""

STANDSTILL_MAX_S = 0.03
"""How long a walk may last before its survivors are exempt from later ones."""


class _Folds:
    """The number of folds under way, and the settings before the first."""

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


@contextmanager
def imports_unwalked() -> Iterator[None]:
    """Import without walks, and exempt what was imported from later ones: it stays as long as the process.

    Otherwise the first walk behind this block goes through all of it, which is only put off.
    """
    with seldom_collected():
        try:
            yield
        finally:
            gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not collect while many rows are made at once; nothing may wait in such a block, or others run in it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def ending_unwalked() -> Iterator[None]:
    """Spare a process that ends with this block the walks over all that it has imported and holds.

    The interpreter makes several of them at its end, which took a fifth of the processor time of a short command.
    Reference counting still frees what it can, and the system the rest.
    """
    try:
        yield
    finally:
        gc.freeze()


@contextmanager
def short_walks() -> Iterator[None]:
    """Exempt what survived a walk that took too long from later ones; for processes that serve.

    What is exempt and ends in a cycle is never freed. Therefore this happens only when walks have become long again,
    which takes as many new objects, and not after each walk.
    """
    walk = _Walk()
    gc.callbacks.append(walk)
    try:
        yield
    finally:
        gc.callbacks.remove(walk)
        gc.unfreeze()


class _Walk:
    """Times collections."""

    def __init__(self) -> None:
        self._begun_s = 0.0

    def __call__(self, phase: str, _about: Mapping[str, Any]) -> None:
        if phase == "start":
            self._begun_s = perf_counter()
        elif perf_counter() - self._begun_s > STANDSTILL_MAX_S:
            gc.freeze()

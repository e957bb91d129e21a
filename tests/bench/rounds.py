"""Rounds: what is compared takes turns, so that whatever else the machine does hits both."""

import gc
from collections.abc import Awaitable, Callable, Mapping
from statistics import median

Measure = Callable[[int], Awaitable[float]]
"""Given the number of the round, answers with what it measured."""


async def medians(measures: Mapping[str, Measure], rounds: int) -> dict[str, float]:
    """The median of each, over rounds in which they go one after the other; odd rounds go backwards."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds):
        names = list(measures)[:: 1 if number % 2 == 0 else -1]
        for name in names:
            gc.collect()
            found[name].append(await measures[name](number))
    return {name: median(values) for name, values in found.items()}

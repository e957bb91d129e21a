"""Validates the slices of a pool against each other: the cross-slice validation of KEP-5677. Pure.

A pool whose slices are not all there is checked as far as they go: two slices that use one name contradict each other,
whatever the missing ones hold. What a missing slice may still define is no error.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpuledger.domain.dra.objects import Slice

SLICES_NAMED_MAX: Final = 3
"""The most slices that an error names of those that agree with each other; it counts the others."""


def contradictions(slices: Sequence[Slice], near: Sequence[Slice]) -> Iterator[str]:
    """Names that are used twice, and counters that no slice defines. The allocator looks for these alone.

    Args:
        slices: those of the pool's generation, ordered by name; the first one's number of slices counts.
        near: those of them in reach, whose names must differ; devices of different nodes may have one name.
    """
    yield from _twice("device", [(device.name, one.name) for one in near for device in one.devices])
    sets = [(name, one.name) for one in near for name in (*one.counters, *one.repeated_sets)]
    yield from _twice("counter set", sets)
    yield from _undefined_counters(slices, is_one_missing=len(slices) < slices[0].expected)


def outdated(generation: int, slices: Iterable[Slice]) -> Iterator[str]:
    """Slices of older generations. Where the pool's own generation is incomplete, they may be those that are missing.

    Args:
        generation: the pool's.
        slices: those of any generation that count for the point of view.
    """
    for older, names in _grouped((one.generation, one.name) for one in slices if one.generation < generation):
        verb = "is" if len(names) == 1 else "are"
        yield f"{_listed(names)} {verb} of generation {older}, the pool is of generation {generation}"


def disagreements(slices: Sequence[Slice]) -> Iterator[str]:
    """What slices of one generation announce of their number, where that cannot be true."""
    numbers = {one.expected for one in slices}
    if len(numbers) > 1:
        announced = _grouped((one.expected, one.name) for one in slices)
        yield f"the slices announce different numbers of slices: {'; '.join(map(_number, announced))}"
    if len(slices) > (most := max(numbers)):
        yield f"{len(slices)} slices of generation {slices[0].generation} are there, and no more than {most} announced"


def _undefined_counters(slices: Sequence[Slice], *, is_one_missing: bool) -> Iterator[str]:
    """Counters that devices consume and that no slice defines; a missing slice may define a whole set."""
    defined = {name: set(counters) for one in slices for name, counters in one.counters.items()}
    if is_one_missing and not defined:
        return
    for one in slices:
        for device in one.devices:
            for name, counters in device.consumes.items():
                if name not in defined and not is_one_missing:
                    yield f"device {device.name} in {one.name} consumes the unknown counter set {name}"
                for counter in sorted(set(counters) - defined.get(name, set(counters))):
                    yield f"device {device.name} in {one.name} consumes the unknown counter {name}/{counter}"


def _twice(kind: str, named: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The names that occur more than once, with their places."""
    if len({name for name, _ in named}) == len(named):
        return
    places: dict[str, list[str]] = {}
    for name, where in named:
        places.setdefault(name, []).append(where)
    for name, everywhere in places.items():
        if len(everywhere) > 1:
            yield f"{kind} {name} appears {_in(sorted(set(everywhere)))}"


def _in(slices: Sequence[str]) -> str:
    return f"twice in {slices[0]}" if len(slices) == 1 else f"in both {' and '.join(slices)}"


def _grouped(named: Iterable[tuple[int, str]]) -> list[tuple[int, list[str]]]:
    """The names of each number; numbers and names ascend."""
    found: dict[int, list[str]] = {}
    for number, name in sorted(named):
        found.setdefault(number, []).append(name)
    return list(found.items())


def _number(group: tuple[int, list[str]]) -> str:
    number, names = group
    return f"{number} by {_listed(names)}"


def _listed(names: Sequence[str]) -> str:
    """Slices by name, and how many more there are."""
    more = len(names) - SLICES_NAMED_MAX
    text = ", ".join(names[:SLICES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"slice {text}" if len(names) == 1 else f"slices {text}"

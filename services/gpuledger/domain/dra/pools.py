"""A pool as one node sees it, or as the whole cluster does. Pure.

Rules 3 and 4 of the allocator: the newest generation in reach counts; a pool is complete when it has as many slices as
it announces, and valid when no device or counter set is defined twice and every consumed counter exists.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuledger.domain.dra.objects import Counters, DraDevice, LabelledNode, Slice
from gpuledger.domain.dra.reach import in_reach


class LocatedDevice(NamedTuple):
    """A device and the slice that publishes it."""

    slice: Slice
    device: DraDevice


class PoolView(NamedTuple):
    """A pool from one point of view. `slices` are those of its generation, `near` those of them in reach.

    `observed` counts slices of the generation; a pool that is not `on_node` gives that node nothing, and neither
    does one that is incomplete, or not `valid`, which `problems` explain. A view that `is_local` was decided by the
    slices in reach alone; whatever is published elsewhere changes nothing in it.
    """

    generation: int
    slices: tuple[Slice, ...]
    near: tuple[Slice, ...]
    observed: int
    expected: int
    problems: tuple[str, ...]
    on_node: bool = True
    is_local: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all slices are there, and no more."""
        return self.observed == self.expected

    @property
    def is_valid(self) -> bool:
        """Whether its slices agree; one that is incomplete is not checked."""
        return not self.problems

    @property
    def gives(self) -> bool:
        """Whether devices can be had from it."""
        return self.on_node and self.is_complete and self.is_valid

    def located(self) -> Iterator[LocatedDevice]:
        """Every device of `slices`."""
        return (LocatedDevice(one, device) for one in self.slices for device in one.devices)

    def shared(self) -> Counters:
        """The total of each of its counter sets."""
        return {name: counters for one in self.slices for name, counters in one.counters.items()}


def seen_from(slices: Sequence[Slice], node: LabelledNode) -> PoolView:
    """A pool's slices from a node. Where nothing is in reach, or a newer generation is elsewhere, it is not there."""
    near = [one for one in slices if in_reach(one, node)]
    if not near:
        return seen_everywhere(slices)._replace(on_node=False)
    generation = max(one.generation for one in near)
    current = _of_generation(near, generation)
    if len(current) == current[0].expected:
        return _view(generation, current, current)._replace(is_local=True)
    if any(one.generation > generation for one in slices):
        return seen_everywhere(slices)._replace(on_node=False)
    return _view(generation, _of_generation(slices, generation), current)


def seen_everywhere(slices: Sequence[Slice]) -> PoolView:
    """A pool's slices as if every one were in reach; there is at least one."""
    generation = max(one.generation for one in slices)
    current = _of_generation(slices, generation)
    return _view(generation, current, current)


def _of_generation(slices: Iterable[Slice], generation: int) -> tuple[Slice, ...]:
    return tuple(sorted((one for one in slices if one.generation == generation), key=lambda one: one.name))


def _view(generation: int, slices: tuple[Slice, ...], near: tuple[Slice, ...]) -> PoolView:
    expected = slices[0].expected
    problems = tuple(_problems(slices, near)) if len(slices) == expected else ()
    return PoolView(generation, slices, near, len(slices), expected, problems)


def _problems(slices: Sequence[Slice], near: Sequence[Slice]) -> Iterator[str]:
    yield from _twice("device", [(device.name, one.name) for one in near for device in one.devices])
    sets = [(name, one.name) for one in near for name in (*one.counters, *one.repeated_sets)]
    yield from _twice("counter set", sets)
    defined = {name: set(counters) for one in slices for name, counters in one.counters.items()}
    for one in slices:
        for device in one.devices:
            for name, counters in device.consumes.items():
                if name not in defined:
                    yield f"device {device.name} in {one.name} consumes the unknown counter set {name}"
                for counter in sorted(set(counters) - defined.get(name, set(counters))):
                    yield f"device {device.name} in {one.name} consumes the unknown counter {name}/{counter}"


def _twice(kind: str, named: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The names that occur more than once, with their places."""
    places: dict[str, list[str]] = {}
    for name, where in named:
        places.setdefault(name, []).append(where)
    for name, everywhere in places.items():
        if len(everywhere) > 1:
            yield f"{kind} {name} appears {_in(sorted(set(everywhere)))}"


def _in(slices: Sequence[str]) -> str:
    return f"twice in {slices[0]}" if len(slices) == 1 else f"in both {' and '.join(slices)}"

"""A pool as one node sees it, or as the whole cluster does. Pure.

Rules 3 and 4 of the allocator: the newest generation in reach counts; a pool is complete when it has as many slices as
it announces, and valid when no device or counter set is defined twice and every consumed counter exists. A view also
has what the allocator does not look for: errors of incomplete pools, and slices that disagree about the pool.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpuledger.domain.dra.objects import Counters, DraDevice, LabelledNode, Slice
from gpuledger.domain.dra.reach import in_reach
from gpuledger.domain.dra.slice_validation import contradictions, disagreements, outdated


class LocatedDevice(NamedTuple):
    """A device and the slice that publishes it."""

    slice: Slice
    device: DraDevice


class PoolView(NamedTuple):
    """A pool from one point of view. `slices` are those of its generation, `near` those of them in reach.

    `observed` counts slices of the generation; a pool that is not `on_node` gives that node nothing, and neither
    does one that is incomplete, or not valid, which `problems` explain. Slices that disagree about their number, and
    `outdated` ones of an older generation, keep nobody from its devices. A view that `is_local` was decided by the
    slices in reach alone; whatever is published elsewhere changes nothing in it.
    """

    generation: int
    slices: tuple[Slice, ...]
    near: tuple[Slice, ...]
    observed: int
    expected: int
    problems: tuple[str, ...]
    disagreements: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    on_node: bool = True
    is_local: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all slices are there, and no more."""
        return self.observed == self.expected

    @property
    def is_valid(self) -> bool:
        """Whether the allocator accepts it; one that is incomplete the allocator does not check."""
        return not (self.is_complete and self.problems)

    @property
    def errors(self) -> tuple[str, ...]:
        """Everything in which its slices contradict each other."""
        return self.problems + self.disagreements + self.outdated

    @property
    def is_consistent(self) -> bool | None:
        """Whether its slices agree; None while that depends on slices of its generation that are missing."""
        if self.problems or self.disagreements:
            return False
        return not self.outdated if self.is_complete else None

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
        return _view(generation, current, current, near)._replace(is_local=True)
    if any(one.generation > generation for one in slices):
        return seen_everywhere(slices)._replace(on_node=False)
    return _view(generation, _of_generation(slices, generation), current, slices)


def seen_everywhere(slices: Sequence[Slice]) -> PoolView:
    """A pool's slices as if every one were in reach; there is at least one."""
    generation = max(one.generation for one in slices)
    current = _of_generation(slices, generation)
    return _view(generation, current, current, slices)


def _of_generation(slices: Iterable[Slice], generation: int) -> tuple[Slice, ...]:
    return tuple(sorted((one for one in slices if one.generation == generation), key=lambda one: one.name))


def _view(generation: int, slices: tuple[Slice, ...], near: tuple[Slice, ...], every: Iterable[Slice]) -> PoolView:
    problems, disagreeing = tuple(contradictions(slices, near)), tuple(disagreements(slices))
    older = tuple(outdated(generation, every))
    return PoolView(generation, slices, near, len(slices), slices[0].expected, problems, disagreeing, older)

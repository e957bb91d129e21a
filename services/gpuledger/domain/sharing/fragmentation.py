"""How many GPUs of a node pods of an expected mix cannot use, and how much a placement adds to that. Pure.

Weng, Yang, Yu, Wang, Tang, Yang, Zhang: "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent", USENIX ATC 2023. A node's fragment for a class of pods is all that is free of its GPUs, if the class
cannot run there; else what is free of those GPUs that have less than the class asks of one. The node's fragment is the
mean over the classes, weighted by their popularity; a pod goes where the fragment grows least.

Free shares are in percent of a GPU. Fragments are exact integers: percent of a GPU, times the pods of the mix.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.api.sharing import WHOLE

NO_GPUS: Final = 0


class TaskClass(NamedTuple):
    """Pods that ask for the same: so many GPUs, of each so many percent, and CPU in thousandths of a core."""

    gpus: int
    share: int = WHOLE
    cpu_milli: int = 0


Mix = Mapping[TaskClass, int]
"""The expected pods: how many of each class."""


class Cause(StrEnum):
    """Why a class cannot use what is free of a node's GPUs: the regions of the paper's figure of demands."""

    LACKS_BOTH = "LacksBoth"
    """Neither GPUs nor CPU suffice (Q1)."""

    LACKS_GPU = "LacksGPU"
    """GPUs do not suffice (Q2), or these GPUs do not, on a node where the class can run (a part of Q3)."""

    LACKS_CPU = "LacksCPU"
    """GPUs suffice, CPU does not (Q4)."""

    NO_GPU = "NoGPU"
    """The class asks for no GPU."""


class _Several(NamedTuple):
    """Classes that ask for this share of several GPUs; `pods[k]`: how many can run where k GPUs have it."""

    share: int
    pods: tuple[int, ...]


class _Step(NamedTuple):
    """The classes whose CPU a node has. `single[f]`: what one-GPU classes can use of a GPU with f percent free."""

    single: tuple[int, ...]
    several: tuple[_Several, ...]


class Fragmentation:
    """The fragments of nodes for one mix.

    What one-GPU classes can use adds up over GPUs, so it comes from a table by free share, for each amount of CPU at
    which one more class can run.
    """

    def __init__(self, mix: Mix) -> None:
        self.mix = dict(mix)
        self.pods = sum(mix.values())
        self._cpus = sorted({one.cpu_milli for one in mix})
        self._steps = [_step([])]
        self._steps += [_step([(one, n) for one, n in mix.items() if one.cpu_milli <= cpu]) for cpu in self._cpus]

    def of(self, free: Sequence[int], cpu_milli: int | None = None) -> int:
        """The fragment of a node with these free shares and this free CPU (None: enough for every class)."""
        return self.pods * sum(free) - self._usable(free, cpu_milli)

    def in_gpus(self, fragment: int) -> float:
        """A fragment as a number of GPUs; 0 without a mix."""
        return fragment / (self.pods * WHOLE) if self.pods else 0.0

    def decrease(
        self, free: Sequence[int], after: Sequence[int], cpu: int | None = None, left: int | None = None
    ) -> int:
        """By how much the fragment shrinks when shares go from `free` to `after`, and CPU from `cpu` to `left`."""
        return self.of(free, cpu) - self.of(after, left)

    def causes(self, free: Sequence[int], cpu_milli: int | None = None) -> dict[Cause, int]:
        """The parts of `of(free, cpu_milli)`, by their cause. Slower than `of`."""
        parts = dict.fromkeys(Cause, 0)
        for one, pods in self.mix.items():
            cause, fragment = _fragment(one, free, cpu_milli)
            parts[cause] += pods * fragment
        return parts

    def _usable(self, free: Sequence[int], cpu_milli: int | None) -> int:
        step = self._steps[-1] if cpu_milli is None else self._steps[bisect_right(self._cpus, cpu_milli)]
        single = step.single
        usable = sum([single[share] for share in free])
        for several in step.several:
            enough = [share for share in free if share >= several.share]
            usable += sum(enough) * several.pods[min(len(enough), len(several.pods) - 1)]
        return usable


def _step(classes: Iterable[tuple[TaskClass, int]]) -> _Step:
    single, several = [0] * (WHOLE + 1), dict[int, dict[int, int]]()
    for one, pods in classes:
        if one.gpus == 1:
            single[one.share] += pods
        elif one.gpus > 1:
            of_share = several.setdefault(one.share, {})
            of_share[one.gpus] = of_share.get(one.gpus, 0) + pods
    running = _running(single)
    table = tuple(share * pods for share, pods in enumerate(running))
    return _Step(table, tuple(_Several(share, _by_number(several[share])) for share in sorted(several)))


def _by_number(pods: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(_running([pods.get(number, 0) for number in range(max(pods) + 1)]))


def _running(numbers: Iterable[int]) -> list[int]:
    total, sums = 0, []
    for number in numbers:
        total += number
        sums.append(total)
    return sums


def _fragment(one: TaskClass, free: Sequence[int], cpu_milli: int | None) -> tuple[Cause, int]:
    """The paper's definition for one class: why, and what is free without use to it."""
    everything = sum(free)
    if one.gpus == NO_GPUS:
        return Cause.NO_GPU, everything
    has_cpu = cpu_milli is None or cpu_milli >= one.cpu_milli
    if sum(share >= one.share for share in free) < one.gpus:
        return (Cause.LACKS_GPU if has_cpu else Cause.LACKS_BOTH), everything
    if not has_cpu:
        return Cause.LACKS_CPU, everything
    return Cause.LACKS_GPU, sum(share for share in free if share < one.share)

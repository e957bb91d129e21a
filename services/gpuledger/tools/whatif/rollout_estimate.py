"""Estimates what a rollout disturbs and how long it takes, in one order of the nodes or another. Pure.

Nodes go as the budget has places, each for the time of a drain and of an application. A device that is held now is
still held when its node's turn comes with the probability that past allocations of its age lasted that long; whatever
begins meanwhile is assumed to begin elsewhere.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush
from typing import Final, NamedTuple

SAMPLES_MIN: Final = 20
"""Past allocations without which nothing is concluded from them: what is held is then assumed to stay."""

DRAIN_ASSUMED_S: Final = 300.0
APPLY_ASSUMED_S: Final = 60.0
REBOOT_ASSUMED_S: Final = 300.0
"""Where the ledger has not measured any."""

_HOUR_S: Final = 3600.0


class StepLengths(NamedTuple):
    """How long a node takes, in seconds: to drain, to apply until it is given back, and to reboot beside that."""

    drain_s: float
    apply_s: float
    reboot_s: float = 0.0


class Step(NamedTuple):
    """A node to update: whether it is drained, and since when each of its held devices is."""

    node: str
    is_drained: bool
    held_since: Sequence[datetime]


class Estimate(NamedTuple):
    """What a rollout comes to.

    `took_s` is its whole length. `devices` are those held when their node's turn comes, as expected.
    `interrupted_gpu_h` is for how long they were held by then: work that is lost unless it was saved.
    `disturbed_gpu_h` is for how long they cannot be used, until their nodes are given back.
    """

    took_s: float
    devices: float
    busy_nodes: float
    interrupted_gpu_h: float
    disturbed_gpu_h: float
    node_hours: float


class PastLengths:
    """The lengths of allocations that have ended, in seconds, by which one that goes on is judged."""

    def __init__(self, lengths: Sequence[float]) -> None:
        self._lengths = sorted(lengths)

    @property
    def is_enough(self) -> bool:
        """Whether anything follows from them."""
        return len(self._lengths) >= SAMPLES_MIN

    @property
    def median_s(self) -> float | None:
        """The length that half of them did not exceed."""
        return self._lengths[len(self._lengths) // 2] if self._lengths else None

    def stays(self, age_s: float, further_s: float) -> float:
        """The probability that an allocation of an age lasts so many seconds more.

        One that is older than all that ended is assumed to stay.
        """
        lasted = self._longer(age_s)
        if not self.is_enough or not lasted:
            return 1.0
        return self._longer(age_s + further_s) / lasted

    def _longer(self, seconds: float) -> int:
        return len(self._lengths) - bisect_right(self._lengths, seconds)


def estimate(steps: Sequence[Step], at_once: int, lengths: StepLengths, past: PastLengths, now: datetime) -> Estimate:
    """What comes of updating nodes in this order, so many at once."""
    free = [0.0] * max(1, at_once)
    total = Estimate(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    for step in steps:
        begins_s = heappop(free)
        node_s = (lengths.drain_s if step.is_drained else 0.0) + lengths.apply_s + lengths.reboot_s
        heappush(free, begins_s + node_s)
        total = _with(total, step, begins_s, node_s, past, now)
    return total


def _with(total: Estimate, step: Step, begins_s: float, node_s: float, past: PastLengths, now: datetime) -> Estimate:
    ages = [max(0.0, (now - since).total_seconds()) for since in step.held_since]
    stays = [past.stays(age, begins_s) for age in ages]
    idle = 1.0
    for one in stays:
        idle *= 1.0 - one
    worked_s = sum(one * (age + begins_s) for one, age in zip(stays, ages, strict=True))
    return Estimate(
        max(total.took_s, begins_s + node_s),
        total.devices + sum(stays),
        total.busy_nodes + 1.0 - idle,
        total.interrupted_gpu_h + worked_s / _HOUR_S,
        total.disturbed_gpu_h + sum(stays) * node_s / _HOUR_S,
        total.node_hours + node_s / _HOUR_S,
    )


def steps_of(nodes: Sequence[tuple[str, bool]], held: Mapping[str, Sequence[datetime]]) -> list[Step]:
    """Nodes in an order, each with whether it is drained, as steps."""
    return [Step(node, is_drained, held.get(node, ())) for node, is_drained in nodes]

"""The load of the simulated fleet: which pods arrive, and how often. Pure; chance is an argument.

Pods arrive as a Poisson process whose rate gives every resource the same load, and run for log-normal times.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Final, NamedTuple, Protocol, TypeVar

from gpuledger.tools.simulation.allocation import SimulatedPod
from gpuledger.tools.simulation.fleet import Fleet
from gpuledger.tools.simulation.hardware import GPU_RESOURCE

T = TypeVar("T")

DAY_S: Final = 86_400.0
SUCCEEDED, FAILED = "Succeeded", "Failed"

COUNTS: Final = ((1, 50), (2, 20), (4, 15), (8, 15))
"""How many GPUs pods request, with weights; MIG instances are requested one at a time."""

OWNERS: Final = ("team-vision", "team-speech", "team-nlp", "team-search", "team-robotics", "team-genomics")
KINDS: Final = ("train", "finetune", "serve", "batch")


class Chance(Protocol):
    """The source of randomness: a part of `random.Random`."""

    def random(self) -> float:
        """From 0 up to, not including, 1."""

    def randrange(self, stop: int, /) -> int:
        """From 0 up to, not including, `stop`."""

    def expovariate(self, lambd: float, /) -> float:
        """Exponential, with the mean 1 / lambd."""

    def lognormvariate(self, mu: float, sigma: float, /) -> float:
        """Log-normal, with the median exp(mu)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often things happen, in simulated time. Failures are those of Meta's RSC-1 cluster.

    `load` is the share of the fleet that is requested on average. A card that fails is removed after
    `removal_mean_s`, and the next one is inserted after `insertion_mean_s` more. Agents check the exporters of
    their nodes every `heartbeat_s`. A node that reboots is down for `reboot_s`. `pace` is how many simulated seconds a
    real one is, for what depends on people and services, who have real time; at least one.
    """

    load: float = 0.75
    duration_median_s: float = 1_800.0
    duration_sigma: float = 1.2
    duration_min_s: float = 60.0
    duration_max_s: float = 7 * DAY_S
    failed_share: float = 0.08
    finished_kept_s: float = 600.0
    failures_per_1000_node_days: float = 6.5
    reset_mean_s: float = 600.0
    removal_mean_s: float = 4 * 3_600.0
    insertion_mean_s: float = 1_800.0
    heartbeat_s: float = 15.0
    reboot_s: float = 10.0
    pace: float = 1.0

    @property
    def duration_mean_s(self) -> float:
        """The mean of a pod's duration, but for the bounds."""
        return self.duration_median_s * exp(self.duration_sigma**2 / 2)


class ResourceDemand(NamedTuple):
    """The demand for one resource: pods per second, and how many units they request, with weights."""

    resource: str
    gpu_milli: int
    pods_per_s: float
    counts: tuple[tuple[int, int], ...]


def demands_of(fleet: Fleet, rates: Rates) -> list[ResourceDemand]:
    """The demand for each resource of the fleet."""
    units, most = _resources(fleet)
    demands = []
    for resource, total in sorted(units.items()):
        counts = tuple(one for one in COUNTS if one[0] <= most[resource]) if resource == GPU_RESOURCE else ((1, 1),)
        mean_count = sum(count * weight for count, weight in counts) / sum(weight for _, weight in counts)
        rate = rates.load * total / (mean_count * rates.duration_mean_s)
        demands.append(ResourceDemand(resource, fleet.gpu_milli[resource], rate, counts))
    return demands


def _resources(fleet: Fleet) -> tuple[Counter[str], Counter[str]]:
    """Of each resource: units in the fleet, and the most on one node."""
    units: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for node in fleet.nodes.values():
        offered = node.resources(range(len(node.addresses)))
        units += offered
        most |= offered
    return units, most


class Arrivals:
    """Draws the pods that arrive, numbered from `next_number` on."""

    def __init__(self, fleet: Fleet, rates: Rates, chance: Chance, next_number: int) -> None:
        self._demands = demands_of(fleet, rates)
        self._rates = rates
        self._chance = chance
        self._next_number = next_number
        self.pods_per_s = sum(demand.pods_per_s for demand in self._demands)

    def pause_s(self) -> float:
        """Seconds until the next pod."""
        return self._chance.expovariate(self.pods_per_s)

    def pod(self) -> SimulatedPod:
        """The next pod."""
        chance = self._chance
        demand = drawn(chance, [(demand, demand.pods_per_s) for demand in self._demands])
        count = drawn(chance, demand.counts)
        name = f"{KINDS[chance.randrange(len(KINDS))]}-{self._next_number:06d}"
        owner = OWNERS[chance.randrange(len(OWNERS))]
        self._next_number += 1
        gpu_milli = count * demand.gpu_milli
        return SimulatedPod(
            name, owner, demand.resource, count, gpu_milli, duration_s(chance, self._rates), self._outcome()
        )

    def _outcome(self) -> str:
        return FAILED if self._chance.random() < self._rates.failed_share else SUCCEEDED


def duration_s(chance: Chance, rates: Rates) -> float:
    """How long a pod runs; its median is the setting's."""
    drawn_s = rates.duration_median_s * chance.lognormvariate(0.0, rates.duration_sigma)
    return min(max(drawn_s, rates.duration_min_s), rates.duration_max_s)


def drawn(chance: Chance, weighted: Sequence[tuple[T, float]]) -> T:
    """One of several things with their weights."""
    left = chance.random() * sum(weight for _, weight in weighted)
    for thing, weight in weighted:
        left -= weight
        if left < 0:
            return thing
    return weighted[-1][0]

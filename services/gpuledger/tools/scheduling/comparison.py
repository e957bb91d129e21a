"""Answers `gpuledger schedule simulate`: the same pods on the same nodes, by one strategy after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from gpuledger.api.sharing import WHOLE
from gpuledger.domain.sharing.fragmentation import Cause
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.tools.scheduling.simulate import Outcome, simulate
from gpuledger.tools.scheduling.trace import read_nodes, read_pods
from gpuledger.tools.scheduling.workload import SimulatedNode, SimulatedPod, capacity_of, fragmentation_of, inflated

PLACES: Final = 2
"""After the decimal point, of numbers of GPUs."""


class Comparison(NamedTuple):
    """What all strategies are given: nodes, the pods of the list, and those that come."""

    nodes: Sequence[SimulatedNode]
    listed: Sequence[SimulatedPod]
    arrivals: Sequence[SimulatedPod]
    seed: int
    learn: bool
    notes: tuple[str, ...]

    @classmethod
    def read(cls, nodes: Path, pods: Path, *, inflate: float | None, seed: int, learn: bool) -> "Comparison":
        """Read the lists, and draw the pods that come: until they ask for `inflate` times the GPUs, or each once.

        Raises:
            RequestError: a list cannot be read, or has a bad row.
        """
        list_of_nodes, (listed, rounded) = read_nodes(nodes), read_pods(pods)
        arrivals = listed
        if inflate is not None:
            arrivals = inflated(listed, inflate * capacity_of(list_of_nodes), Random(seed))  # noqa: S311 - no secret
        rounding = f"{rounded} of {len(listed)} pods ask for no whole percent of a GPU, and get the next one."
        notes = (rounding,) if rounded else ()
        return cls(list_of_nodes, listed, arrivals, seed, learn, notes)

    def outcome(self, strategy: str, advance: Callable[[int], None] = lambda _done: None) -> Outcome:
        """What comes of one strategy."""
        measured = fragmentation_of(self.listed)
        expected = None if self.learn else ExpectedPods(measured.mix)
        return simulate(
            self.nodes,
            self.arrivals,
            strategy,
            expected=expected,
            measured=measured,
            chance=Random(self.seed),  # noqa: S311 - no secret
            advance=advance,
        )

    def row(self, outcome: Outcome, seconds: float) -> dict[str, Any]:
        """The outcome as a row, with GPUs in numbers and not in percent."""
        return {
            "strategy": outcome.strategy,
            "pods": outcome.pods,
            "placed": outcome.placed,
            "gpus": outcome.capacity // WHOLE,
            "asked": _gpus(outcome.requested),
            "allocated": _gpus(outcome.allocated),
            "rate": round(outcome.allocated / outcome.capacity, 4),
            "unallocated": _gpus(outcome.unallocated),
            "fragment": round(sum(outcome.fragment.values()), PLACES),
            "lacks_gpu": round(outcome.fragment[Cause.LACKS_GPU], PLACES),
            "lacks_cpu": round(outcome.fragment[Cause.LACKS_CPU], PLACES),
            "lacks_both": round(outcome.fragment[Cause.LACKS_BOTH], PLACES),
            "no_gpu": round(outcome.fragment[Cause.NO_GPU], PLACES),
            "seconds": round(seconds, 3),
            "pods_per_second": round(outcome.pods / seconds) if seconds else None,
        }


def _gpus(percent: int) -> float:
    return round(percent / WHOLE, PLACES)

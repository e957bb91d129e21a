"""The strategies of simulations: those of the extender, and two to compare them with. Pure.

`BestFit` and `Random` are baselines of Weng et al., USENIX ATC 2023.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from gpuledger.api.sharing import GPU, GPU_CORE, Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.machines import Machine, Needs
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.domain.sharing.model import Allocation, NodeState, PodRequest, Refusal
from gpuledger.domain.sharing.node_views import NodeView
from gpuledger.domain.sharing.placement import Choice, Placement
from gpuledger.domain.sharing.scores import Scoring, normalized
from gpuledger.domain.sharing.strategies import KeyedRequest
from gpuledger.tools.scheduling.workload import Chance

BEST_FIT: Final = "BestFit"
"""The node that has least left afterwards, of CPU and GPUs, each as a part of the largest node; its fullest GPU."""

RANDOM: Final = "Random"
"""Any node where the pod fits, and the first GPU."""

STRATEGIES: Final = (*Strategy, BEST_FIT, RANDOM)
"""All of them, by name."""


class Largest(NamedTuple):
    """The CPU and the GPUs of the largest node, in thousandths of a core and in percent of a GPU."""

    cpu_milli: int
    gpu_percent: int


class BestFit:
    """See `BEST_FIT`."""

    basis = None
    counts_cpu = True

    def __init__(self, largest: Largest) -> None:
        self._cpu_milli = max(1, largest.cpu_milli)
        self._gpu_percent = max(1, largest.gpu_percent)
        self._scoring = Scoring(Strategy.MOST_ALLOCATED)

    def rank(self, view: NodeView, pod: KeyedRequest) -> int:
        """The less is left, the better."""
        gpus = pod.request.of(GPU)
        percent = 0 if gpus is None else gpus.number * gpus.per_device.get(GPU_CORE, 0)
        node = view.node
        cpu_left = node.cpu_milli - pod.needs.cpu_milli if isinstance(node, Machine) else 0
        return -(cpu_left * self._gpu_percent + (sum(view.shares) - percent) * self._cpu_milli)

    def allocation(self, view: NodeView, pod: KeyedRequest, preempted: Set[str]) -> Allocation | Refusal:
        """The fullest GPUs that have room."""
        return allocate(view.node, pod.request, self._scoring, preempted=preempted)

    def scores(self, ranks: Mapping[str, int]) -> dict[str, int]:
        """The best node gets 100."""
        worst = min(ranks.values(), default=0)
        return normalized({name: rank - worst for name, rank in ranks.items()})


class Scheduler:
    """Places one pod after the other by a strategy, on nodes that others change."""

    def __init__(
        self, strategy: str, nodes: Mapping[str, NodeState], expected: ExpectedPods, chance: Chance, largest: Largest
    ) -> None:
        self._placement = Placement(nodes, expected=expected, others={BEST_FIT: BestFit(largest)})
        self._strategy = Strategy.MINOR_ORDER if strategy == RANDOM else strategy
        self._tie: Callable[[Sequence[int]], int] | None = None
        if strategy == RANDOM:
            self._tie = lambda places: places[chance.randrange(len(places))]

    def choose(self, request: PodRequest, needs: Needs) -> Choice | None:
        """Where the pod runs, and on which devices; None: it fits nowhere."""
        return self._placement.choose(request, self._strategy, needs=needs, tie=self._tie)

    def note(self, request: PodRequest, needs: Needs) -> None:
        """A pod has come: its kind is to be expected."""
        self._placement.note(request, needs)

"""How nodes that fit are compared, and which of a node's devices a pod gets, by strategy. Pure.

Ranks are whole numbers; the higher is better, and they are comparable between nodes for one request alone.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Final, NamedTuple, Protocol

from gpuledger.api.sharing import GPU, Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.conversion import completed
from gpuledger.domain.sharing.machines import NO_NEEDS, Machine, Needs
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.domain.sharing.model import Allocated, Allocation, Hint, PodRequest, Refusal, TypeRequest
from gpuledger.domain.sharing.node_views import FreeGpu, NodeView, share_of
from gpuledger.domain.sharing.request_keys import Key, key_of
from gpuledger.domain.sharing.results import Results
from gpuledger.domain.sharing.scores import SCORE_MAX, Scoring, node_score, normalized
from gpuledger.domain.sharing.selectors import selects

Shares = tuple[int, ...]
"""What is free of each GPU of a node, in percent."""

AFTER_MAX: Final = 20_000
"""Of so many requests and states it is remembered what would be free afterwards."""

NOBODY: Final[Set[str]] = frozenset()


class KeyedRequest(NamedTuple):
    """What a pod asks for, prepared for comparisons; `share_of_one` is its request if it is a part of any one GPU."""

    request: PodRequest
    needs: Needs
    key: Key
    share_of_one: TypeRequest | None


def keyed(request: PodRequest, needs: Needs = NO_NEEDS) -> KeyedRequest:
    """Prepare a request."""
    return KeyedRequest(request, needs, key_of(request), _share_of_one(request))


def _share_of_one(request: PodRequest) -> TypeRequest | None:
    if len(request.types) != 1 or request.partition or request.designated is not None:
        return None
    [one] = request.types
    is_plain = one.hint == Hint(one.hint.selector) and request.joint is None and request.numa_nodes is None
    return one if is_plain and one.type == GPU and one.number == 1 and one.shared else None


class Ranking(Protocol):
    """A strategy. Ranks hold as long as `basis` is the same object."""

    @property
    def basis(self) -> object:
        """What ranks depend on, besides node and request."""
        ...

    @property
    def counts_cpu(self) -> bool:
        """Whether ranks depend on the CPU of a `Machine` too, and not on its devices alone."""
        ...

    def rank(self, view: NodeView, pod: KeyedRequest) -> int:
        """How good the node is for the pod, which fits on it."""
        ...

    def allocation(self, view: NodeView, pod: KeyedRequest, preempted: Set[str]) -> Allocation | Refusal:
        """Which devices the pod gets on the node."""
        ...

    def scores(self, ranks: Mapping[str, int]) -> dict[str, int]:
        """The ranks of nodes, by name, as scores from 0 to 100."""
        ...


class Scored:
    """The strategies whose nodes and devices have scores: see `gpuledger.domain.sharing.scores`."""

    basis = None
    counts_cpu = False

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring

    def rank(self, view: NodeView, pod: KeyedRequest) -> int:
        """The node's score."""
        return node_score(view.node, pod.request, self._scoring)

    def allocation(self, view: NodeView, pod: KeyedRequest, preempted: Set[str] = NOBODY) -> Allocation | Refusal:
        """The devices of the best scores."""
        return allocate(view.node, pod.request, self._scoring, preempted=preempted)

    def scores(self, ranks: Mapping[str, int]) -> dict[str, int]:
        """The best node gets 100."""
        return normalized(ranks)


class Gradient:
    """Fragmentation gradient descent: where, and on which GPU, the fragment for the expected pods grows least."""

    counts_cpu = True

    def __init__(self, expected: ExpectedPods) -> None:
        self._expected = expected
        self._scoring = Scoring(Strategy.FRAGMENTATION)
        self._after: Results[list[Shares]] = Results(AFTER_MAX)

    @property
    def basis(self) -> object:
        """The mix in force."""
        return self._expected.fragmentation

    def rank(self, view: NodeView, pod: KeyedRequest) -> int:
        """By how much the best placement on the node makes its fragment smaller."""
        return max([self._decrease(view, pod, after) for after in self._results(view, pod)])

    def allocation(self, view: NodeView, pod: KeyedRequest, preempted: Set[str] = NOBODY) -> Allocation | Refusal:
        """The GPU whose share adds least to the fragment; several whole ones are as good as any others."""
        if pod.share_of_one is None or preempted:
            return self._plain(view, pod, preempted)
        choices = [
            (self._decrease(view, pod, after), -one.place, one) for one, after in _choices(view, pod.share_of_one)
        ]
        if not choices:
            return self._plain(view, pod)
        _, _, best = max(choices)
        only = Allocated(best.device.minor, completed(pod.share_of_one.per_device, best.device.resources))
        return allocate(view.node, pod.request._replace(designated={GPU: (only,)}), self._scoring)

    def scores(self, ranks: Mapping[str, int]) -> dict[str, int]:
        """100 for the steepest descent alone, so that it stays the best one when scores are made coarser."""
        best, worst = max(ranks.values(), default=0), min(ranks.values(), default=0)
        below, span = SCORE_MAX - SCORE_MAX // 10 - 1, max(1, best - worst)
        return {name: SCORE_MAX if one == best else below * (one - worst) // span for name, one in ranks.items()}

    def _results(self, view: NodeView, pod: KeyedRequest) -> list[Shares]:
        """The free shares after each placement that may be made on the node; of a `Machine` they are remembered.

        Machines in one state differ in CPU, so they have ranks of their own.
        """
        if not isinstance(view.node, Machine):
            return self._results_now(view, pod)
        results = self._after.of(pod.key).get(view.state)
        return self._after.put(pod.key, view.state, self._results_now(view, pod)) if results is None else results

    def _results_now(self, view: NodeView, pod: KeyedRequest) -> list[Shares]:
        if pod.share_of_one is None:
            return [_after(view, self._plain(view, pod))]
        return [after for _, after in _choices(view, pod.share_of_one)]

    def _plain(self, view: NodeView, pod: KeyedRequest, preempted: Set[str] = NOBODY) -> Allocation | Refusal:
        if not pod.request.types:
            return {}
        return allocate(view.node, pod.request, self._scoring, preempted=preempted)

    def _decrease(self, view: NodeView, pod: KeyedRequest, after: Shares) -> int:
        node = view.node
        cpu = node.cpu_milli if isinstance(node, Machine) else None
        left = None if cpu is None else cpu - pod.needs.cpu_milli
        return self._expected.fragmentation.decrease(view.shares, after, cpu, left)


def _choices(view: NodeView, asked_for: TypeRequest) -> Iterator[tuple[FreeGpu, Shares]]:
    """GPUs that have room, one of those that are alike, and all shares after a placement there."""
    selector = asked_for.hint.selector
    for one in view.gpus:
        if selector is not None and not selects(selector, one.device.labels):
            continue
        taken = completed(asked_for.per_device, one.device.resources)
        if all(one.free.get(name, 0) >= amount for name, amount in taken.items()):
            after = list(view.shares)
            after[one.place] = share_of({name: free - taken.get(name, 0) for name, free in one.free.items()})
            yield one, tuple(after)


def _after(view: NodeView, allocation: Allocation | Refusal) -> Shares:
    """The free shares of the node's GPUs after an allocation."""
    after = list(view.shares)
    if isinstance(allocation, Refusal):
        return view.shares
    taken = {one.minor: one.resources for one in allocation.get(GPU, ())}
    for place, minor in enumerate(view.node.devices.get(GPU, ())):
        if minor in taken:
            free = view.node.free(GPU, minor)
            after[place] = share_of({name: left - taken[minor].get(name, 0) for name, left in free.items()})
    return tuple(after)

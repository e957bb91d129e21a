"""Where pods fit, how good each node is, and which one is best: over many nodes, and remembered. Pure.

The extender, simulations and what-if questions decide with this. A result holds for every node in the same state, so a
cluster of 1,000 nodes costs few decisions per kind of pod, and after a placement one more.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from gpuledger.api.sharing import Strategy
from gpuledger.domain.sharing.allocation import allocate
from gpuledger.domain.sharing.machines import NO_NEEDS, Machine, Needs
from gpuledger.domain.sharing.mix import ExpectedPods
from gpuledger.domain.sharing.model import Allocation, NodeState, PodRequest, Refusal
from gpuledger.domain.sharing.node_views import NodeView, NodeViews, OrderedViews
from gpuledger.domain.sharing.ranked import MISFIT, RankedNodes
from gpuledger.domain.sharing.results import Results
from gpuledger.domain.sharing.scores import WEIGHTS, Scoring
from gpuledger.domain.sharing.strategies import NOBODY, Gradient, KeyedRequest, Ranking, Scored, keyed
from gpuledger.domain.sharing.tasks import task_of

NOT_SHARED: Final = Refusal("the node shares no devices", unresolvable=True)

NO_ALLOCATION: Final[Allocation] = {}

_FITS: Final = Scoring(Strategy.MINOR_ORDER)


class Choice(NamedTuple):
    """The node for a pod, and what it gets of the node's devices."""

    node: str
    allocation: Allocation


class Placement:
    """Places pods on nodes, whose states others change: it follows `nodes` and the version of each.

    `expected` is the mix of pods for fragmentation gradient descent; `note` adds to it. `others` are strategies besides
    those of `api.sharing`.
    """

    def __init__(
        self,
        nodes: Mapping[str, NodeState],
        *,
        weights: Mapping[str, int] = WEIGHTS,
        expected: ExpectedPods | None = None,
        others: Mapping[str, Ranking] | None = None,
    ) -> None:
        self.expected = ExpectedPods() if expected is None else expected
        self._views = NodeViews(nodes)
        self._strategies: dict[str, Ranking] = {one: Scored(Scoring(one, weights)) for one in Strategy}
        self._strategies[Strategy.FRAGMENTATION] = Gradient(self.expected)
        self._strategies.update(others or {})
        self._refusals: Results[Refusal | None] = Results()
        self._reasons: dict[Refusal, Refusal] = {}
        self._ranks: Results[int] = Results()
        self._ranked = RankedNodes()
        self._bases: dict[str, object] = {}

    def note(self, request: PodRequest, needs: Needs = NO_NEEDS) -> None:
        """A pod has come: more of its kind are to be expected."""
        self.expected.see(task_of(request, needs, self._views.gpu_memory))

    def fits(self, request: PodRequest, names: Iterable[str]) -> dict[str, Refusal | None]:
        """By node why the pod cannot have the devices that it asks for there; None: it can."""
        pod = keyed(request)
        return self._refusals_of(pod, self._named(names))

    def scores(self, request: PodRequest, names: Iterable[str], strategy: str) -> dict[str, int]:
        """By node how good it is for the pod, 0 to 100; a node where it does not fit gets 0."""
        pod, ranking, views = keyed(request), self._ranking(strategy), self._named(names)
        refusals = self._refusals_of(pod, views)
        key = (pod.key, strategy)
        remembered, ranks = self._ranks.of(key), {}
        for name, view in views:
            if view is not None and refusals[name] is None:
                rank = remembered.get(view.state)
                ranks[name] = self._ranks.put(key, view.state, ranking.rank(view, pod)) if rank is None else rank
        return {**dict.fromkeys(refusals, 0), **ranking.scores(ranks)}

    def allocation(
        self, request: PodRequest, name: str, strategy: str, *, preempted: Set[str] = NOBODY
    ) -> Allocation | Refusal:
        """What the pod gets of a node's devices, or why nothing; what the `preempted` pods hold counts as free."""
        view = self._views.of(name)
        if view is None:
            return NOT_SHARED
        return self._ranking(strategy).allocation(view, keyed(request), preempted)

    def choose(
        self,
        request: PodRequest,
        strategy: str,
        *,
        needs: Needs = NO_NEEDS,
        tie: Callable[[Sequence[int]], int] | None = None,
    ) -> Choice | None:
        """The best of all nodes and what the pod gets there; None: it fits nowhere.

        `tie` picks a place among those of the best ones, by default the first. CPU and memory count on a `Machine`.
        """
        pod, ranking, nodes = keyed(request, needs), self._ranking(strategy), self._current()
        rank = self._rank_in_choice(pod, strategy, ranking)
        ranks = self._ranked.update((pod.key, needs, strategy), ranking.basis, nodes, rank)
        best = max(ranks, default=MISFIT)
        if best == MISFIT:
            return None
        place = ranks.index(best) if tie is None else tie([at for at, one in enumerate(ranks) if one == best])
        view = nodes.views[place]
        allocation = ranking.allocation(view, pod, NOBODY)
        assert not isinstance(allocation, Refusal), "the pod fits on the node"
        return Choice(view.node.name, allocation)

    def _named(self, names: Iterable[str]) -> list[tuple[str, NodeView | None]]:
        found = self._views.named(names)
        self._forget_old_states()
        return found

    def _current(self) -> OrderedViews:
        nodes = self._views.all()
        self._forget_old_states()
        return nodes

    def _forget_old_states(self) -> None:
        if self._views.take_renumbered():
            self._refusals.forget()
            self._ranks.forget()
            self._reasons.clear()

    def _ranking(self, strategy: str) -> Ranking:
        ranking = self._strategies[strategy]
        if self._bases.get(strategy) is not ranking.basis:
            self._bases[strategy] = ranking.basis
            self._ranks.forget()
        return ranking

    def _refusals_of(
        self, pod: KeyedRequest, views: Iterable[tuple[str, NodeView | None]]
    ) -> dict[str, Refusal | None]:
        remembered = self._refusals.of(pod.key)
        return {
            name: NOT_SHARED
            if view is None
            else remembered[view.state]
            if view.state in remembered
            else self._refusal(pod, view)
            for name, view in views
        }

    def _refusal(self, pod: KeyedRequest, view: NodeView) -> Refusal | None:
        remembered = self._refusals.of(pod.key)
        if view.state in remembered:
            return remembered[view.state]
        result = allocate(view.node, pod.request, _FITS) if pod.request.types else NO_ALLOCATION
        refusal = self._reasons.setdefault(result, result) if isinstance(result, Refusal) else None
        return self._refusals.put(pod.key, view.state, refusal)

    def _rank_in_choice(self, pod: KeyedRequest, strategy: str, ranking: Ranking) -> Callable[[NodeView], int]:
        """How a node ranks, or that the pod does not fit there. Equal nodes share a rank that CPU does not change."""
        refusals, key = self._refusals.of(pod.key), (pod.key, strategy)
        shared = None if ranking.counts_cpu else self._ranks.of(key)

        def rank(view: NodeView) -> int:
            node, state = view.node, view.state
            if isinstance(node, Machine) and not node.has_room(pod.needs):
                return MISFIT
            refusal = refusals[state] if state in refusals else self._refusal(pod, view)
            if refusal is not None:
                return MISFIT
            if shared is None:
                return ranking.rank(view, pod)
            return shared[state] if state in shared else self._ranks.put(key, state, ranking.rank(view, pod))

        return rank

"""Answers kube-scheduler about pods and nodes, from what the leader has folded; binding is a matter of `binder`.

Nothing here waits: an answer is of one moment, and what it says may be over when the scheduler comes to bind.
"""

from collections.abc import Set
from functools import partial
from typing import Any

from gpuledger.domain.sharing.model import PodRequest, Refusal
from gpuledger.domain.sharing.preemption import FewestVictims
from gpuledger.edge.extender import metrics
from gpuledger.edge.extender.decide import filter_result, priorities, refused_everywhere, with_more_victims
from gpuledger.edge.extender.demand import SeenPods, demand_of
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.pods import SchedulablePod, read_pod
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.wire import (
    ExtenderArgs,
    FilterResult,
    PreemptionArgs,
    Victims,
    filter_document,
    preemption_document,
    priorities_document,
    read_args,
    read_preemption,
)


class Verbs:
    """Filter, prioritize and preempt. Each raises ArgumentsError for what kube-scheduler does not send."""

    def __init__(self, holdings: Holdings, seen: SeenPods, settings: ExtenderSettings) -> None:
        self._holdings = holdings
        self._placement = holdings.placement
        self._seen = seen
        self._settings = settings

    def filter(self, document: object) -> dict[str, Any]:
        """An ExtenderFilterResult for ExtenderArgs."""
        args = read_args(document)
        result = self._filtered(args)
        metrics.NODES_REFUSED.labels("true").inc(len(result.failed))
        metrics.NODES_REFUSED.labels("false").inc(len(result.unresolvable))
        return filter_document(args, result)

    def prioritize(self, document: object) -> list[dict[str, Any]]:
        """A HostPriorityList for ExtenderArgs."""
        args = read_args(document)
        request = demand_of(self._read(args.pod))
        scores: dict[str, int] = {}
        if isinstance(request, PodRequest):
            scores = self._placement.scores(request, args.names, self._settings.strategy)
        return priorities_document(priorities(args.names, scores))

    def preempt(self, document: object) -> dict[str, Any]:
        """An ExtenderPreemptionResult for ExtenderPreemptionArgs: where losing the victims helps, or some more."""
        args = read_preemption(document)
        pod = self._read(args.pod)
        request = demand_of(pod)
        if request is None:
            return preemption_document(args.victims)
        if isinstance(request, Refusal):
            return preemption_document({})
        return preemption_document(self._preempted(args, request, pod.priority))

    def _filtered(self, args: ExtenderArgs) -> FilterResult:
        pod = self._read(args.pod)
        request = demand_of(pod)
        if request is None:
            return FilterResult(args.names, {}, {})
        if isinstance(request, Refusal):
            return refused_everywhere(args.names, request)
        if self._seen.add(pod):
            self._placement.note(request)
        return filter_result(args.names, self._placement.fits(request, args.names))

    def _preempted(self, args: PreemptionArgs, request: PodRequest, priority: int) -> dict[str, Victims]:
        """By node all the victims that the scheduler has chosen, and as few more as suffice; without those left out."""
        fewest, kinds = FewestVictims(), {one.type for one in request.types}
        found: dict[str, Victims] = {}
        for node, given in args.victims.items():
            fits = partial(self._fits_without, request, node)
            more = fewest.besides(frozenset(given.uids), self._holdings.evictable(node, kinds, priority), fits)
            if more is not None and (more or given.uids):
                found[node] = with_more_victims(given, more, self._holdings.priority)
        return found

    def _fits_without(self, request: PodRequest, node: str, victims: Set[str]) -> bool:
        found = self._placement.allocation(request, node, self._settings.strategy, preempted=victims)
        return not isinstance(found, Refusal)

    def _read(self, pod: Any) -> SchedulablePod:  # noqa: ANN401 - a core/v1 object
        return read_pod(pod, self._settings.names)

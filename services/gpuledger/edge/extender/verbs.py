"""Answers kube-scheduler about pods and nodes, from what the leader has folded; binding is a matter of `binder`.

Nothing here waits: an answer is of one moment, and what it says may be over when the scheduler comes to bind.
"""

from typing import Any

from gpuledger.domain.sharing.model import PodRequest, Refusal
from gpuledger.edge.extender import metrics
from gpuledger.edge.extender.decide import filter_result, helped, priorities, refused_everywhere
from gpuledger.edge.extender.demand import SeenPods, demand_of
from gpuledger.edge.extender.holdings import Holdings
from gpuledger.edge.extender.pods import SchedulablePod, read_pod
from gpuledger.edge.extender.settings import ExtenderSettings
from gpuledger.edge.extender.wire import (
    ExtenderArgs,
    FilterResult,
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
        """An ExtenderPreemptionResult for ExtenderPreemptionArgs: the nodes where losing the victims helps."""
        args = read_preemption(document)
        request = demand_of(self._read(args.pod))
        if request is None:
            return preemption_document(args.victims)
        refusals = {node: self._without(request, node, frozenset(one.uids)) for node, one in args.victims.items()}
        return preemption_document(helped(args, refusals))

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

    def _without(self, request: PodRequest | Refusal, node: str, victims: frozenset[str]) -> Refusal | None:
        """Why the pod does not fit on a node without the victims; None: it does."""
        if isinstance(request, Refusal):
            return request
        found = self._placement.allocation(request, node, self._settings.strategy, preempted=victims)
        return found if isinstance(found, Refusal) else None

    def _read(self, pod: Any) -> SchedulablePod:  # noqa: ANN401 - a core/v1 object
        return read_pod(pod, self._settings.names)

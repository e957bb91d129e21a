"""Scores of devices and nodes: how full they would be with a request, or how empty they would stay. Pure.

The rules are those of Koordinator's device sharing (FACTS): whole numbers, every division rounds down, core is not
scored by default.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from gpuledger.api.sharing import GPU_MEMORY, GPU_MEMORY_RATIO, RDMA, Strategy
from gpuledger.domain.sharing.model import Amounts, Device, NodeState, PodRequest, TypeRequest
from gpuledger.domain.sharing.usage import Usage, usage_of

SCORE_MAX: Final = 100

WEIGHTS: Final[Mapping[str, int]] = {GPU_MEMORY_RATIO: 1, GPU_MEMORY: 1, RDMA: 1}
"""How much each resource counts by default."""


class Scoring(NamedTuple):
    """How devices and nodes that fit are compared. `weights` are above 0, by resource."""

    strategy: Strategy = Strategy.LEAST_ALLOCATED
    weights: Mapping[str, int] = WEIGHTS


def score(total: Amounts, used: Amounts, asked: Amounts, scoring: Scoring) -> int:
    """0 to 100: the weighted mean over the weighted resources that are there (`total` above 0).

    Only what the request names counts as asked: its memory is not derived from its ratio. Without a strategy that
    scores, or a weighted resource, it is 0. `FRAGMENTATION` fills a node's devices as `MOST_ALLOCATED` does.
    """
    if scoring.strategy is Strategy.MINOR_ORDER:
        return 0
    least = scoring.strategy is Strategy.LEAST_ALLOCATED
    points = weights = 0
    for resource, weight in scoring.weights.items():
        there = total.get(resource)
        if there:
            full = min(there, used.get(resource, 0) + asked.get(resource, 0))
            points += weight * ((there - full if least else full) * SCORE_MAX // there)
            weights += weight
    return points // weights if weights else 0


def node_score(node: NodeState, request: PodRequest, scoring: Scoring, *, preempted: Set[str] = frozenset()) -> int:
    """The node's scores for the types that are asked for, added up: 0 to 100 for each type.

    Each is that of the sums over the type's healthy devices, with what is asked of one device.
    """
    if scoring.strategy is Strategy.MINOR_ORDER:
        return 0
    usage = usage_of(node, preempted)
    return sum(_type_score(node, usage, one, scoring) for one in request.types)


def _type_score(node: NodeState, usage: Usage, asked: TypeRequest, scoring: Scoring) -> int:
    devices = [one for one in node.devices.get(asked.type, {}).values() if one.healthy]
    return score(_sums(devices, scoring), _used(devices, usage, scoring), asked.per_device, scoring)


def _sums(devices: Iterable[Device], scoring: Scoring) -> Amounts:
    return {resource: sum(one.resources.get(resource, 0) for one in devices) for resource in scoring.weights}


def _used(devices: Iterable[Device], usage: Usage, scoring: Scoring) -> Amounts:
    held = [usage.of(one.type, one.minor) for one in devices]
    return {resource: sum(one.get(resource, 0) for one in held) for resource in scoring.weights}


def normalized(scores: Mapping[str, int]) -> dict[str, int]:
    """Scores of nodes, by name, with the best one at 100; all 0 stay 0."""
    best = max(scores.values(), default=0)
    return {name: one * SCORE_MAX // best if best else 0 for name, one in scores.items()}

"""Which devices of a node a pod gets (seed 002, 4.2.3: Filter and Reserve). Pure and deterministic.

The same question and answer serve to filter nodes and to reserve devices. Nothing is tried twice: types are decided in
order, and what was chosen for one type is not reconsidered for another.
"""

from collections.abc import Sequence, Set

from gpuledger.api.sharing import GPU
from gpuledger.domain.sharing import joint, topology
from gpuledger.domain.sharing.candidates import FittingDevice, Offer, fitting, insufficient, ranked
from gpuledger.domain.sharing.model import Allocation, NodeState, PodRequest, Refusal, Scope, TypeRequest
from gpuledger.domain.sharing.partitions import partition
from gpuledger.domain.sharing.requests import on_devices
from gpuledger.domain.sharing.scores import Scoring
from gpuledger.domain.sharing.usage import usage_of

Chosen = list[FittingDevice] | Refusal


def allocate(
    node: NodeState, request: PodRequest, scoring: Scoring, *, preempted: Set[str] = frozenset()
) -> Allocation | Refusal:
    """What the pod gets on the node, by type of device, or why it gets nothing.

    What the `preempted` pods hold, by their UIDs, counts as free.
    """
    offer = Offer(node, usage_of(node, preempted), request, scoring)
    found: dict[str, list[FittingDevice]] = {}
    for asked in joint.in_order(request):
        chosen = _chosen(offer, asked, found)
        if isinstance(chosen, Refusal):
            return chosen
        found[asked.type] = chosen
    return {kind: tuple(one.allocated for one in sorted(chosen, key=_minor)) for kind, chosen in found.items()}


def _chosen(offer: Offer, given: TypeRequest, found: dict[str, list[FittingDevice]]) -> Chosen:
    """The devices of one type, after those of the types in `found`."""
    devices = offer.devices(given.type)
    if not devices:
        return Refusal(f"Insufficient {given.type} devices: the node has none.", unresolvable=True)
    asked = on_devices(given, devices)
    if isinstance(asked, Refusal):
        return asked
    candidates = fitting(offer, asked)
    if len(candidates) < asked.number:
        return insufficient(offer, asked, candidates)
    if joint.is_joint(offer.request, asked):
        return _near(offer, asked, candidates, found)
    return _gpus(offer, asked, candidates) if asked.type == GPU else _first(offer, asked, candidates)


def _first(offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]) -> list[FittingDevice]:
    """Without regard to where they are."""
    return ranked(offer, asked, candidates)[: asked.number]


def _gpus(offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]) -> Chosen:
    """A partition of linked GPUs, where the node or the pod has to do with them, or else GPUs near each other."""
    partitioned = partition(offer, asked, candidates)
    if partitioned is not None:
        return partitioned
    scope = asked.hint.required_scope
    if topology.has_tree(offer, asked):
        nearest = topology.nearest(offer, asked, candidates)
        return insufficient(offer, asked, candidates, scope) if nearest is None else nearest
    if scope in {None, Scope.NODE} or (scope is Scope.DEVICE and asked.number == 1):
        return _first(offer, asked, candidates)
    why = "only whole GPUs can be kept in one" if asked.shared else "the places of the node's GPUs are not known"
    return Refusal(f"Insufficient gpu devices within one {scope}: {why}.", unresolvable=True)


def _near(
    offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice], found: dict[str, list[FittingDevice]]
) -> Chosen:
    """Devices at the switches of those of the first joint type."""
    rule = offer.request.joint
    assert rule is not None
    switches = joint.switches_of(found[rule.types[0]])
    if rule.same_pcie:
        candidates = [one for one in candidates if one.switch in switches]
    chosen = joint.near(asked, joint.by_switch(ranked(offer, asked, candidates), switches), switches)
    if len(chosen) < asked.number or (rule.same_pcie and not joint.at_every_switch(chosen, switches)):
        return insufficient(offer, asked, candidates, Scope.PCIE)
    return chosen


def _minor(one: FittingDevice) -> int:
    return one.device.minor

"""Which devices of a node a pod gets (seed 002, 4.2.3: Filter and Reserve). Pure and deterministic.

The same question and answer serve to filter nodes and to reserve devices. Nothing is tried twice: types are decided in
order, and what was chosen for one type is not reconsidered for another; but a single device whose switch has to give
others is chosen among those whose switch can. So whether a pod fits does not depend on the strategy.
"""

from collections import Counter
from collections.abc import Sequence, Set
from typing import Final

from gpuledger.api.sharing import GPU, Strategy
from gpuledger.domain.sharing import joint, topology
from gpuledger.domain.sharing.candidates import FittingDevice, Offer, fitting, insufficient, ranked
from gpuledger.domain.sharing.model import Allocation, NodeState, PodRequest, Refusal, Scope, TypeRequest
from gpuledger.domain.sharing.partitions import partition
from gpuledger.domain.sharing.requests import on_devices
from gpuledger.domain.sharing.scores import Scoring
from gpuledger.domain.sharing.usage import usage_of

_SEVERAL_SHARES: Final = "shares of several GPUs cannot be kept near each other"
_PLACES_UNKNOWN: Final = "the node does not say where all of its GPUs are"

MINOR_ORDER: Final = Scoring(Strategy.MINOR_ORDER)

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
    if joint.must_lead(offer.request, asked):
        return _free_of_joint(*_leading(offer, asked, candidates), asked)
    return _free_of_joint(offer, candidates, asked)


def _free_of_joint(offer: Offer, candidates: Sequence[FittingDevice], asked: TypeRequest) -> Chosen:
    """The devices of a type that does not go by those of another one."""
    return _gpus(offer, asked, candidates) if asked.type == GPU else _first(offer, asked, candidates)


def _first(offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]) -> list[FittingDevice]:
    """Without regard to where they are."""
    return ranked(offer, asked, candidates)[: asked.number]


def _gpus(offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]) -> Chosen:
    """A partition of linked GPUs, where the node or the pod has to do with them, or else GPUs near each other."""
    scope = asked.hint.required_scope
    if scope is Scope.DEVICE and asked.number > 1:
        return _never_within(scope, f"{asked.number} are asked for")
    partitioned = partition(offer, asked, candidates)
    if partitioned is not None:
        return partitioned
    if topology.has_tree(offer, asked):
        nearest = topology.nearest(offer, asked, candidates)
        return insufficient(offer, asked, candidates, f"within one {scope}") if nearest is None else nearest
    if scope in {Scope.PCIE, Scope.NUMA}:
        several = asked.shared and asked.number > 1
        return _never_within(scope, _SEVERAL_SHARES if several else _PLACES_UNKNOWN)
    return _first(offer, asked, candidates)


def _never_within(scope: Scope, why: str) -> Refusal:
    return Refusal(f"Insufficient gpu devices within one {scope}: {why}.", unresolvable=True)


def _leading(
    offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice]
) -> tuple[Offer, Sequence[FittingDevice]]:
    """What is chosen from, and how, where the switches of what is chosen have to give devices of other types.

    One device is chosen among those whose switch gives enough, if there are any. Several are not chosen again, and so
    without the strategy: it must not decide whether the pod fits.
    """
    if asked.number > 1:
        return offer._replace(scoring=MINOR_ORDER), candidates
    for given in offer.request.types:
        follower = on_devices(given, offer.devices(given.type))
        if joint.is_joint(offer.request, given) and not isinstance(follower, Refusal):
            there = Counter(one.switch for one in fitting(offer, follower))
            with_enough = [one for one in candidates if one.switch is not None and there[one.switch] >= follower.number]
            candidates = with_enough or candidates
    return offer, candidates


def _near(
    offer: Offer, asked: TypeRequest, candidates: Sequence[FittingDevice], found: dict[str, list[FittingDevice]]
) -> Chosen:
    """Devices at the switches of those of the leading joint type."""
    rule = offer.request.joint
    assert rule is not None
    leaders = found[joint.leading(rule)]
    switches = joint.switches_of(leaders)
    chosen = joint.near(asked, joint.by_switch(ranked(offer, asked, candidates), switches), switches)
    if rule.same_pcie and not joint.same_switches(chosen, leaders):
        return insufficient(offer, asked, candidates, "at the PCIe switches of the other devices")
    return chosen


def _minor(one: FittingDevice) -> int:
    return one.device.minor

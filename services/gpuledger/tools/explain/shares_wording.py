"""The sentences about a pod's shared devices. Pure; they name nodes and devices, and no other pod."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from gpuledger.api.sharing import GPU_MEMORY
from gpuledger.domain.sharing.model import Allocation, Amounts, PodRequest
from gpuledger.domain.sharing.rows import NO_ALLOCATION
from gpuledger.domain.sharing.texts import allocation_of
from gpuledger.tools.explain.shares import Obstacle, SharesAnswer, SharesFinding, SharesObstacles, grouped

NODES_SHOWN_MAX: Final = 3
"""Nodes that a sentence names."""

GIB: Final = 2**30

ONLY_DEVICES: Final = (
    "Only shared devices were checked: cordons, taints, selectors and other resources may keep the pod off these nodes."
)


def shares_words(found: SharesAnswer) -> str:
    """The sentence about the devices; empty where it asks for none."""
    return _WORDS[found.finding](found)


def _gone(found: SharesAnswer) -> str:
    del found
    return "it has ended, or is gone, and holds no shared devices"


def _has(found: SharesAnswer) -> str:
    pod = found.pod
    words = f"it has {allocation_words(allocation_of(pod.allocation))} on node {pod.node}"
    if not pod.differs:
        return words
    reserved = f"{allocation_words(allocation_of(pod.reservation))} on node {pod.reserved_node}"
    return f"{words}, and not what was reserved for it, {reserved}: somebody else wrote its annotation or bound it"


def _reserved(found: SharesAnswer) -> str:
    pod = found.pod
    reserved = allocation_words(allocation_of(pod.allocation))
    since = "" if pod.reserved_at is None else f" since {pod.reserved_at.isoformat(timespec='seconds')}"
    return f"{reserved} on node {pod.node} are reserved for it{since}, and it is not bound yet"


def _without(found: SharesAnswer) -> str:
    pod = found.pod
    why = f": {pod.unreadable.rstrip('. ')}" if pod.unreadable else ", as its annotation names none"
    return f"it is bound to node {pod.node} without shared devices{why}{_scheduler(found)}"


def _invalid(found: SharesAnswer) -> str:
    return f"no node takes it: {found.problem.rstrip('. ')}"


def _nothing(found: SharesAnswer) -> str:
    del found
    return ""


def _not_shared(found: SharesAnswer) -> str:
    return f"it asks for {_request_words(found)}, and no node shares devices{_scheduler(found)}"


def _refused(found: SharesAnswer) -> str:
    nodes = "the one node" if found.nodes == 1 else f"none of the {found.nodes} nodes"
    has = "does not take it" if found.nodes == 1 else "takes it"
    reasons = "; ".join(map(obstacle_words, grouped(found.obstacles)))
    return f"it asks for {_request_words(found)}, and {nodes} with shared devices {has}: {reasons}{_last(found)}"


def _fits(found: SharesAnswer) -> str:
    where = f"node {found.fitting[0]} has" if len(found.fitting) == 1 else f"{_names(found.fitting)} have"
    waits = "" if found.has_other_scheduler else ", so that it waits for its scheduler"
    return f"it asks for {_request_words(found)}, and {where} them{waits}{_scheduler(found)}{_last(found)}"


def _request_words(found: SharesAnswer) -> str:
    return "shared devices" if found.request is None else request_words(found.request)


def _scheduler(found: SharesAnswer) -> str:
    """That nobody who gives shared devices places it, where that is so."""
    if not found.has_other_scheduler:
        return ""
    others = f"; {', '.join(found.schedulers)} has" if found.schedulers else ""
    return f"; its schedulerName is {found.pod.scheduler}, which has not given any pod shared devices{others}"


def _last(found: SharesAnswer) -> str:
    """How the last attempt to bind it ended."""
    pod = found.pod
    if pod.released_at is None or not pod.release_reason:
        return ""
    message = f": {pod.release_message.rstrip('. ')}" if pod.release_message else ""
    at = pod.released_at.isoformat(timespec="seconds")
    return f"; what was reserved for it last was released at {at} ({pod.release_reason}{message})"


def obstacle_words(one: SharesObstacles) -> str:
    """How many nodes have an obstacle, and what it is."""
    number = len(one.nodes)
    nodes = f"{number} node{'' if number == 1 else 's'} ({_names(one.nodes)})"
    return f"{nodes} {_OBSTACLES[one.obstacle](one)}"


def _insufficient(one: SharesObstacles) -> str:
    left = ", ".join(
        f"{resource} {amount_words(resource, one.best[resource][0])} on {one.best[resource][1]}"
        for resource in one.resources
    )
    return f"with too little {' and '.join(one.resources)} left on too many {one.type} devices, at most {left}"


def _fragmented(one: SharesObstacles) -> str:
    return f"with enough of each resource, but not together on enough {one.type} devices"


def _placement(one: SharesObstacles) -> str:
    return f"where its devices are not as it needs them ({one.message.rstrip('. ')})"


_OBSTACLES: Final[Mapping[Obstacle, Callable[[SharesObstacles], str]]] = {
    Obstacle.INSUFFICIENT: _insufficient,
    Obstacle.FRAGMENTED: _fragmented,
    Obstacle.UNHEALTHY: lambda one: f"where {one.type} devices with room are unhealthy",
    Obstacle.NOT_SELECTED: lambda one: f"with too few {one.type} devices that its annotation selects",
    Obstacle.TOO_FEW: lambda one: f"with fewer {one.type} devices than it asks for",
    Obstacle.NO_DEVICES: lambda one: f"without {one.type} devices",
    Obstacle.PLACEMENT: _placement,
}


def request_words(request: PodRequest) -> str:
    """What a pod asks for: `2 gpu devices with gpu-core 50 and gpu-memory 8Gi each`."""
    return ", and ".join(_type_words(one.type, one.number, one.per_device) for one in request.types)


def _type_words(kind: str, number: int, each: Amounts) -> str:
    amounts = " and ".join(f"{resource} {amount_words(resource, amount)}" for resource, amount in sorted(each.items()))
    several = number != 1
    return f"{number} {kind} device{'s' if several else ''} with {amounts}{' each' if several else ''}"


def allocation_words(allocation: Allocation) -> str:
    """The devices that a pod has: `gpu 0 (gpu-core 50, gpu-memory 8Gi)`."""
    named = (f"{kind} {one.minor}{_amounts(one.resources)}" for kind, devices in allocation.items() for one in devices)
    return ", ".join(named) or "nothing"


def _amounts(amounts: Amounts) -> str:
    words = ", ".join(f"{resource} {amount_words(resource, amount)}" for resource, amount in sorted(amounts.items()))
    return f" ({words})" if words else ""


def amount_words(resource: str, amount: int) -> str:
    """Memory in GiB, other amounts as they are."""
    return f"{amount / GIB:.4g}Gi" if resource == GPU_MEMORY else str(amount)


def shares_notes(found: SharesAnswer) -> Iterable[str]:
    """What was not checked, and what is wrong beside the answer."""
    if found.finding is SharesFinding.FITS:
        yield ONLY_DEVICES
    if found.pod.unreadable and found.pod.allocation != NO_ALLOCATION:
        yield f"{found.pod.unreadable} What was reserved for the pod counts as long as it is there."
    if found.problem and found.finding is not SharesFinding.INVALID:
        yield f"Its request would be refused: {found.problem}"


def _names(names: Sequence[str]) -> str:
    more = len(names) - NODES_SHOWN_MAX
    shown = ", ".join(names[:NODES_SHOWN_MAX])
    return shown if more <= 0 else f"{shown} and {more} more"


_WORDS: Final[Mapping[SharesFinding, Callable[[SharesAnswer], str]]] = {
    SharesFinding.GONE: _gone,
    SharesFinding.HAS: _has,
    SharesFinding.RESERVED: _reserved,
    SharesFinding.WITHOUT: _without,
    SharesFinding.INVALID: _invalid,
    SharesFinding.NOTHING: _nothing,
    SharesFinding.NOT_SHARED: _not_shared,
    SharesFinding.REFUSED: _refused,
    SharesFinding.FITS: _fits,
}

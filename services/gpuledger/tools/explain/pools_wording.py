"""The sentences about the units of a pool that a pod requests. Pure; they name no other pods, as not all may be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gpuledger.api.kinds import GPU_GROUP
from gpuledger.api.pool_ref import PoolRef
from gpuledger.tools.explain.pools import (
    HAS_OR_NEEDS_NONE,
    Barrier,
    Finding,
    Idle,
    NodeUnits,
    PoolAnswer,
    is_about_deletion,
)

SHOWN_MAX: Final = 3
"""Nodes or reasons that a sentence names; the tables have more of them, and `-o json` all."""

NOT_PLACED: Final = (
    "Kubernetes was not asked about the pod, so it was not checked whether the pod can run on a node otherwise."
)
ONLY_UNITS: Final = (
    "Only units of pools, node selectors, required node affinity and taints were checked; the scheduler checks more."
)
SEVERAL_POOLS: Final = "Admission refuses new pods that request units of several pools."

BARRIERS: Final[Mapping[Barrier, str]] = {
    Barrier.GONE: "is not in Kubernetes any more",
    Barrier.CORDONED: "is cordoned",
    Barrier.TAINTED: "has a taint that the pod does not tolerate",
    Barrier.NOT_SELECTED: "is not what the pod selects",
}
"""The words for a node that a pod cannot use."""

_WITH_NODES: Final = frozenset(
    {Finding.TOO_MANY, Finding.NODES_TOO_SMALL, Finding.IN_USE, Finding.FRAGMENTED, Finding.NODES_CLOSED}
)
"""The pod waits although nodes offer units, so that it matters whether it could run there."""


def pool_words(found: PoolAnswer) -> str:
    """The sentence for one pool; conditions against it come first, unless nothing is missing."""
    sentence = "; ".join([_WORDS[found.finding](found), *_nor_there(found)])
    against = [] if found.finding in HAS_OR_NEEDS_NONE else list(_against(found))
    if found.finding is Finding.FITS:
        return "; but ".join([sentence, *against[:1]])
    if found.finding is Finding.UNDECIDED and against:
        return "; ".join(against)
    return "; ".join([*against, sentence])


def apart_words(answers: Sequence[PoolAnswer]) -> str:
    """Why units of several pools that are available alone cannot be combined; empty if they can."""
    if len(answers) < 2 or any(one.finding is not Finding.FITS for one in answers):
        return ""
    common = set.intersection(*(set(one.fitting) for one in answers))
    return "" if common else "each of these could be had, but no node has room for all of them"


def barrier_words(room: NodeUnits) -> str:
    """What keeps the pod off a node."""
    barriers = (f"{BARRIERS[one.barrier]}{f' ({one.detail})' if one.detail else ''}" for one in room.constraints)
    return f"{room.node} {' and '.join(barriers)}"


def idle_words(idle: Sequence[Idle]) -> str:
    """How many devices offer nothing, and why: `2 PendingAssignment (AskedFor)`."""
    return _listed([f"{one.devices} {one.state} ({_because(one.reason, one.message)})" for one in idle])


def _against(found: PoolAnswer) -> Iterator[str]:
    label = PoolRef.parse(found.request.pool)
    if found.deleting:
        yield f"{label} is being deleted"
    seen = set[tuple[str, str]]()
    for one in found.against:
        if is_about_deletion(one) or (one.reason, one.message) in seen:
            continue
        seen.add((one.reason, one.message))
        yield f"{label} is {one.type}={one.status} ({_because(one.reason, one.message)})"


def _ended(found: PoolAnswer) -> str:
    return f"it has ended ({found.pod.ended}), and has no units of {found.request.resource} any more"


def _has(found: PoolAnswer) -> str:
    pod, request = found.pod, found.request
    since = "" if pod.since is None else f" since {pod.since:%Y-%m-%dT%H:%M:%SZ}"
    waits = "" if pod.running is not False else "; `kubectl describe pod` shows why its containers do not run yet"
    return f"it has its {_units(request.units)} of {request.resource} on node {pod.node}{since}{waits}"


def _not_found(found: PoolAnswer) -> str:
    return f"there is no {PoolRef.parse(found.request.pool)}, which {found.request.resource} stands for"


def _other_kind(found: PoolAnswer) -> str:
    pool = PoolRef.parse(found.request.pool)
    if pool.namespace:
        return (
            f"{_not_found(found)}; there is a ClusterGPUPool of that name: request {PoolRef(pool.name).resource_name}"
        )
    way = f"request {GPU_GROUP}/{pool.name} in its namespace"
    return f"{_not_found(found)}; there is a GPUPool of that name: {way}"


def _other_namespace(found: PoolAnswer) -> str:
    return f"{_not_found(found)}; a GPUPool of that name is in another namespace, and only pods there can use it"


def _undecided(found: PoolAnswer) -> str:
    return f"it is not decided yet what {PoolRef.parse(found.request.pool)} offers"


def _without_capacity(found: PoolAnswer) -> str:
    devices = f": {idle_words(found.idle)}" if found.idle else ", because it has no devices"
    return f"{_requested(found)}, and {PoolRef.parse(found.request.pool)} offers none{devices}"


def _too_many(found: PoolAnswer) -> str:
    all_of_it = f"all of {PoolRef.parse(found.request.pool)} has {found.total}"
    return f"{_requested(found)}, and {all_of_it}, so the request can never be met as it is{_more_to_come(found)}"


def _nodes_too_small(found: PoolAnswer) -> str:
    most = max((one.offered for one in found.rooms), default=0)
    if len(found.rooms) == 1:
        return (
            f"{_requested(found)}, and node {found.rooms[0].node} offers {most} of {found.total}{_more_to_come(found)}"
        )
    nodes = f"no node offers more than {most} of {found.total}"
    return f"{_requested(found)}, which have to be on one node, and {nodes}{_more_to_come(found)}"


def _in_use(found: PoolAnswer) -> str:
    pods = sum(1 for one in found.uses if one.node is not None and one.node in {room.node for room in found.rooms})
    what = "the others" if found.free else "them"
    who = f"{pods} pod{' has' if pods == 1 else 's have'} {what}"
    return f"{_requested(found)}, and {_free(found.free, found.offered)} free: {who}{_more_to_come(found)}"


def _fragmented(found: PoolAnswer) -> str:
    room = max(found.rooms, key=lambda one: one.free)
    spread = (
        f"{_free(found.free, found.offered)} free in all, but no node has so many: {room.node} has most, {room.free}"
    )
    return f"{_requested(found)}, which have to be on one node; {spread}{_more_to_come(found)}"


def _nodes_closed(found: PoolAnswer) -> str:
    closed = [barrier_words(one) for one in found.rooms if one.free >= found.request.units]
    return f"{_requested(found)}, and free where the pod cannot run: {_listed(closed)}"


def _fits(found: PoolAnswer) -> str:
    nodes = found.fitting
    room = next(one for one in found.rooms if one.node == nodes[0])
    more = f", and {len(nodes) - 1} more node{'s have' if len(nodes) > 2 else ' has'} room" if nodes[1:] else ""
    return f"{_requested(found)}, and {_are(room.free)} free on node {room.node}{more}: no unit is missing"


def _nor_there(found: PoolAnswer) -> Iterator[str]:
    """What would keep the pod off nodes even if enough of their units were free."""
    closed = [one for one in found.awaited if one.constraints]
    if closed and found.finding in _WITH_NODES:
        yield f"the pod cannot run on {_which(found, len(closed))} either: {_listed([*map(barrier_words, closed)])}"


def _which(found: PoolAnswer, closed: int) -> str:
    """So many of the nodes whose units the pod may come to have."""
    awaited, requested = found.awaited, found.request.units
    other = "other " if found.finding is Finding.NODES_CLOSED else ""
    what = "so many" if awaited[0].offered >= requested else "units"
    if len(found.rooms) == 1:
        return f"node {awaited[0].node}"
    if len(awaited) == 1:
        return f"the only {other}node that offers {what}"
    number = f"any of the {closed}" if closed == len(awaited) else f"{closed} of the {len(awaited)}"
    return f"{number} {other}nodes that offer {what}"


def _more_to_come(found: PoolAnswer) -> str:
    devices = sum(one.devices for one in found.idle)
    if not devices:
        return ""
    return f"; {devices} of its devices offer{'s' if devices == 1 else ''} nothing: {idle_words(found.idle)}"


def _requested(found: PoolAnswer) -> str:
    return f"{_units(found.request.units)} of {found.request.resource} requested"


def _free(free: int, offered: int) -> str:
    return f"{free or 'none'} of {offered} {'is' if free < 2 else 'are'}"


def _are(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'}"


def _units(number: int) -> str:
    return f"{number} unit{'' if number == 1 else 's'}"


def _because(reason: str, message: str) -> str:
    return f"{reason}: {message.rstrip('. ')}" if message else reason


def _listed(texts: Sequence[str]) -> str:
    more = [f"{len(texts) - SHOWN_MAX} more"] if len(texts) > SHOWN_MAX else []
    return ", ".join([*texts[:SHOWN_MAX], *more])


_WORDS: Final[Mapping[Finding, Callable[[PoolAnswer], str]]] = {
    Finding.ENDED: _ended,
    Finding.HAS: _has,
    Finding.NOT_FOUND: _not_found,
    Finding.OTHER_KIND: _other_kind,
    Finding.OTHER_NAMESPACE: _other_namespace,
    Finding.UNDECIDED: _undecided,
    Finding.WITHOUT_CAPACITY: _without_capacity,
    Finding.TOO_MANY: _too_many,
    Finding.NODES_TOO_SMALL: _nodes_too_small,
    Finding.IN_USE: _in_use,
    Finding.FRAGMENTED: _fragmented,
    Finding.NODES_CLOSED: _nodes_closed,
    Finding.FITS: _fits,
}

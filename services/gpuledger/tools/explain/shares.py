"""Why a pod has no shared devices, which ones it has, or where it could have them. Pure.

Whether a node takes the pod is the extender's own answer, from the same code on the same state. Beyond that this only
says what stands in the way there: what is missing of which resource, and how much of it is left at most.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import orjson

from gpuledger.api.sharing import SCHEDULER
from gpuledger.domain.sharing.conversion import completed
from gpuledger.domain.sharing.hints import hints_of
from gpuledger.domain.sharing.model import Amounts, Device, NodeState, PodRequest, Refusal, TypeRequest
from gpuledger.domain.sharing.node_states import NodeStates
from gpuledger.domain.sharing.placement import Placement
from gpuledger.domain.sharing.requests import on_devices, request_of
from gpuledger.domain.sharing.rows import NO_ALLOCATION, PodState, SharedPod
from gpuledger.domain.sharing.selectors import selects
from gpuledger.domain.sharing.state import Sharing


class SharesFinding(StrEnum):
    """The finding about the shared devices of a pod."""

    GONE = "PodGone"
    HAS = "HasDevices"
    RESERVED = "DevicesReserved"
    WITHOUT = "BoundWithoutDevices"
    INVALID = "RequestRefused"
    NOTHING = "NothingRequested"
    NOT_SHARED = "NoSharedDevices"
    REFUSED = "NoNodeFits"
    FITS = "Fits"


class Obstacle(StrEnum):
    """Why a node does not take a pod, in the order of sentences."""

    INSUFFICIENT = "Insufficient"
    FRAGMENTED = "Fragmented"
    UNHEALTHY = "Unhealthy"
    NOT_SELECTED = "NotSelected"
    TOO_FEW = "TooFewDevices"
    NO_DEVICES = "NoDevices"
    PLACEMENT = "Placement"


class NodeObstacle(NamedTuple):
    """What stands in the way on a node: of a type of device, of which resources, and the most that a device has left.

    `message` is the extender's own sentence.
    """

    node: str
    obstacle: Obstacle
    type: str
    resources: tuple[str, ...]
    best: Mapping[str, int]
    message: str


class SharesAnswer(NamedTuple):
    """The answer about a pod's shared devices. `nodes` are those that share devices, of which `fitting` take it.

    `schedulers` are those that have placed pods on shared devices; `problem` is what is wrong with the request.
    """

    pod: SharedPod
    finding: SharesFinding
    request: PodRequest | None = None
    problem: str = ""
    nodes: int = 0
    fitting: tuple[str, ...] = ()
    obstacles: tuple[NodeObstacle, ...] = ()
    schedulers: tuple[str, ...] = ()

    @property
    def has_other_scheduler(self) -> bool:
        """Whether no pod of its scheduler was ever given shared devices, and it is not the one of an installation."""
        name = self.pod.scheduler
        return name is not None and name != SCHEDULER and name not in self.schedulers


_BOUND: Final = frozenset({PodState.BOUND.value, PodState.RUNNING.value})


def shares_answer(state: Sharing, pod: SharedPod, *, only: str | None = None) -> SharesAnswer:
    """The answer about a pod; with `only` no other node is judged."""
    request = _request(pod)
    found = SharesAnswer(
        pod,
        SharesFinding.GONE,
        request if isinstance(request, PodRequest) else None,
        request.reason if isinstance(request, Refusal) else "",
        schedulers=_schedulers(state.shared_pod.rows.values()),
    )
    finding = _of_pod(pod) or _of_request(request)
    if finding is not None:
        return found._replace(finding=finding)
    assert isinstance(request, PodRequest), "nothing else is left"
    return _judged(found, state, request, only)


def _schedulers(pods: Iterable[SharedPod]) -> tuple[str, ...]:
    return tuple(sorted({one.scheduler for one in pods if one.scheduler and one.reserved_at is not None}))


def _request(pod: SharedPod) -> PodRequest | Refusal | None:
    hints = hints_of(pod.hint, pod.joint, pod.partition_spec)
    if isinstance(hints, Refusal):
        return hints
    amounts: Amounts = orjson.loads(pod.requests if pod.observed_at is not None else pod.reserved_requests)
    return request_of(amounts, hints)


def _of_pod(pod: SharedPod) -> SharesFinding | None:
    """What is there without a look at nodes; None: it waits for devices."""
    if pod.over_at is not None:
        return SharesFinding.GONE
    if pod.state in _BOUND:
        return SharesFinding.WITHOUT if pod.allocation == NO_ALLOCATION else SharesFinding.HAS
    return SharesFinding.RESERVED if pod.state == PodState.RESERVED else None


def _of_request(request: PodRequest | Refusal | None) -> SharesFinding | None:
    if request is None:
        return SharesFinding.NOTHING
    return SharesFinding.INVALID if isinstance(request, Refusal) else None


def _judged(found: SharesAnswer, state: Sharing, request: PodRequest, only: str | None) -> SharesAnswer:
    """What each node makes of the request."""
    nodes = NodeStates(state).nodes
    names = sorted(nodes) if only is None else [name for name in (only,) if name in nodes]
    refusals = Placement(nodes).fits(request, names)
    fitting = tuple(name for name in names if refusals[name] is None)
    obstacles = tuple(
        obstacle_of(nodes[name], request, refusal) for name in names if (refusal := refusals[name]) is not None
    )
    finding = SharesFinding.FITS if fitting else SharesFinding.REFUSED if names else SharesFinding.NOT_SHARED
    return found._replace(finding=finding, nodes=len(names), fitting=fitting, obstacles=obstacles)


def obstacle_of(node: NodeState, request: PodRequest, refusal: Refusal) -> NodeObstacle:
    """What stands in the way on a node that has refused the pod: the first type of device that it cannot give."""
    for given in request.types:
        found = _of_type(node, given, refusal.reason)
        if found is not None:
            return found
    return NodeObstacle(node.name, Obstacle.PLACEMENT, request.types[0].type, (), {}, refusal.reason)


def _of_type(node: NodeState, given: TypeRequest, message: str) -> NodeObstacle | None:
    """What stands in the way of so many devices; None: they are there, wherever they are."""
    devices = node.devices.get(given.type, {}).values()
    if not devices:
        return NodeObstacle(node.name, Obstacle.NO_DEVICES, given.type, (), {}, message)
    asked, selector = on_devices(given, devices), given.hint.selector
    allowed = [one for one in devices if selector is None or selects(selector, one.labels)]
    if len(devices) < given.number:
        return NodeObstacle(node.name, Obstacle.TOO_FEW, given.type, (), {}, message)
    if isinstance(asked, Refusal) or len(allowed) < asked.number:
        return NodeObstacle(node.name, Obstacle.NOT_SELECTED, given.type, (), {}, message)
    left = [(one, node.free(given.type, one.minor)) for one in allowed if one.healthy]
    roomy = sum(_has_room(one, free, asked) for one, free in left)
    if roomy >= asked.number:
        return None
    if roomy + sum(_has_room(one, _unused(node, one), asked) for one in allowed if not one.healthy) >= asked.number:
        return NodeObstacle(node.name, Obstacle.UNHEALTHY, given.type, (), {}, message)
    short = tuple(_short(asked, left))
    best = {one: max((free.get(one, 0) for _, free in left), default=0) for one in asked.per_device}
    return NodeObstacle(
        node.name, Obstacle.INSUFFICIENT if short else Obstacle.FRAGMENTED, given.type, short, best, message
    )


def _short(asked: TypeRequest, left: Sequence[tuple[Device, Amounts]]) -> Iterator[str]:
    """The resources of which too few devices have enough, each looked at alone."""
    for resource, amount in asked.per_device.items():
        if sum(free.get(resource, 0) >= amount for _, free in left) < asked.number:
            yield resource


def _has_room(device: Device, free: Amounts, asked: TypeRequest) -> bool:
    amounts = completed(asked.per_device, device.resources)
    return all(free.get(resource, 0) >= amount for resource, amount in amounts.items())


def _unused(node: NodeState, device: Device) -> Amounts:
    """What nobody holds of a device that is unhealthy."""
    used = node.used.get(device.type, {}).get(device.minor, {})
    return {resource: total - used.get(resource, 0) for resource, total in device.resources.items()}


class SharesObstacles(NamedTuple):
    """Nodes with one obstacle; `best` is by resource the most that any of them has left on a device, and on which."""

    obstacle: Obstacle
    type: str
    resources: tuple[str, ...]
    nodes: tuple[str, ...]
    best: Mapping[str, tuple[int, str]]
    message: str


def grouped(obstacles: Collection[NodeObstacle]) -> list[SharesObstacles]:
    """Obstacles that are the same, those of most nodes first."""
    found: dict[tuple[Obstacle, str, tuple[str, ...], str], list[NodeObstacle]] = {}
    for one in obstacles:
        message = one.message if one.obstacle is Obstacle.PLACEMENT else ""
        found.setdefault((one.obstacle, one.type, one.resources, message), []).append(one)
    groups = [_group(ones) for ones in found.values()]
    order = list(Obstacle)
    return sorted(groups, key=lambda one: (-len(one.nodes), order.index(one.obstacle), one.resources))


def _group(ones: Sequence[NodeObstacle]) -> SharesObstacles:
    first = ones[0]
    best = {}
    for resource in first.best:
        most = max(one.best[resource] for one in ones)
        best[resource] = (most, next(one.node for one in ones if one.best[resource] == most))
    nodes = tuple(one.node for one in ones)
    return SharesObstacles(first.obstacle, first.type, first.resources, nodes, best, first.message)

"""Why a pod has no units of a pool, or where it could have them. Pure; it must never claim more than it has checked.

A pod needs all its units on one node, so a node with room counts, and not the number of free units in all.
Priority and preemption are up to the scheduler, and are not judged.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.api.conditions import FALSE, TRUE, PoolConditionType
from gpuledger.api.phases import AssignmentPhase
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import UNIT_MIG
from gpuledger.api.reasons import PoolReason
from gpuledger.domain.inventory.status import held_state
from gpuledger.domain.pools.pods import units_by_resource
from gpuledger.domain.pools.pools import Assignment, Pool, PoolCondition
from gpuledger.domain.pools.rows import PoolPod
from gpuledger.domain.pools.state import PoolFacts


class UnitRequest(NamedTuple):
    """A request for units of a pool, by the pool's id and the extended resource in the pod."""

    resource: str
    pool: str
    units: int


class PodUse(NamedTuple):
    """A pod that requests units of a pool, and its node, if it has one yet."""

    pod: str
    node: str | None
    units: int


class PodState(NamedTuple):
    """The progress of a pod: bound to `node` since a time, and ended in a phase; `running` None is unknown."""

    node: str | None = None
    since: datetime | None = None
    ended: str | None = None
    running: bool | None = None


class Finding(StrEnum):
    """The finding about the units that a pod requests, in the words of admission where that refuses pods for it."""

    ENDED = "PodEnded"
    HAS = "HasUnits"
    NOT_FOUND = "PoolNotFound"
    OTHER_KIND = "PoolOfOtherKind"
    OTHER_NAMESPACE = "PoolInOtherNamespace"
    UNDECIDED = "PoolNotConfigured"
    WITHOUT_CAPACITY = "PoolWithoutCapacity"
    TOO_MANY = "CapacityExceeded"
    NODES_TOO_SMALL = "NodesTooSmall"
    IN_USE = "UnitsInUse"
    FRAGMENTED = "UnitsFragmented"
    NODES_CLOSED = "NodesClosed"
    FITS = "Fits"


HAS_OR_NEEDS_NONE: Final = frozenset({Finding.ENDED, Finding.HAS})
"""Nothing keeps such a pod waiting for units."""


class Barrier(StrEnum):
    """Why a pod cannot use a node. The order is that of sentences."""

    GONE = "NodeGone"
    CORDONED = "Cordoned"
    TAINTED = "Tainted"
    NOT_SELECTED = "NotSelected"


class NodeConstraint(NamedTuple):
    """One thing that keeps the pod off a node."""

    barrier: Barrier
    detail: str = ""


class NodeUnits(NamedTuple):
    """A node of the pool: how many units it offers, and how many of them pods that are bound to it have."""

    node: str
    offered: int
    used: int
    constraints: tuple[NodeConstraint, ...] = ()

    @property
    def free(self) -> int:
        """How many units nobody has; pods may have more than there still are."""
        return max(0, self.offered - self.used)

    def fits(self, requested: int) -> bool:
        """Whether a pod can have so many units there."""
        return self.free >= requested and not self.constraints


class Idle(NamedTuple):
    """How many devices of the pool offer nothing, and in which state they are for which reason."""

    state: str
    reason: str
    message: str
    devices: int


class PoolAnswer(NamedTuple):
    """The answer for one pool. `against` are the conditions against it; `total` None is unknown.

    `uses` are of all pods that have or request units, except for the pod in question while it has none.
    """

    request: UnitRequest
    finding: Finding
    pod: PodState = PodState()
    deleting: bool = False
    against: tuple[PoolCondition, ...] = ()
    total: int | None = None
    rooms: tuple[NodeUnits, ...] = ()
    idle: tuple[Idle, ...] = ()
    uses: tuple[PodUse, ...] = ()

    @property
    def offered(self) -> int:
        """How many units the checked nodes offer."""
        return sum(one.offered for one in self.rooms)

    @property
    def free(self) -> int:
        """How many of them nobody has."""
        return sum(one.free for one in self.rooms)

    @property
    def fitting(self) -> list[str]:
        """The nodes on which the pod can have its units."""
        return [one.node for one in self.rooms if one.fits(self.request.units)]

    @property
    def awaited(self) -> list[NodeUnits]:
        """The nodes whose units the pod may come to have: they offer so many, and too few of them are free.

        If no node offers so many, these are all nodes that offer any, as they may come to offer more.
        """
        offering = [one for one in self.rooms if one.offered]
        large = [one for one in offering if one.offered >= self.request.units] or offering
        return [one for one in large if one.free < self.request.units]


NodeConstraints = Mapping[str, Sequence[NodeConstraint]]
"""By node what keeps the pod off it. Other nodes are open to it, or were not checked."""

_AGAINST: Final = (
    (PoolConditionType.SUPPORTED, FALSE),
    (PoolConditionType.MISCONFIGURED, TRUE),
    (PoolConditionType.CONFIGURED, FALSE),
    (PoolConditionType.MAINTENANCE, TRUE),
)
"""In the order in which admission checks them."""


def answer(
    state: PoolFacts,
    request: UnitRequest,
    uses: Sequence[PodUse],
    pod: PodState,
    *,
    constraints: NodeConstraints | None = None,
    only: str | None = None,
) -> PoolAnswer:
    """The answer about the units that a pod requests; with `only` no other node is checked."""
    row = state.pool.get(request.pool)
    if row is None:
        return PoolAnswer(request, _of_pod(pod) or _missing(state, request), pod, uses=tuple(uses))
    found = PoolAnswer(
        request,
        Finding.UNDECIDED,
        pod,
        row.deleting,
        tuple(_against(state, request.pool)),
        None if (total := state.total.get(request.pool)) is None else total.total,
        tuple(_closed(one, constraints or {}) for one in rooms(state, row, uses, only=only)),
        tuple(_idle(state, request.pool)),
        tuple(uses),
    )
    return found._replace(finding=_of_pod(pod) or _of_units(found))


def uses_of(pods: Mapping[str, PoolPod], pool: str) -> list[PodUse]:
    """The pods that request units of a pool, by name."""
    ref = PoolRef.parse(pool)
    requesting = (row for row in pods.values() if ref.namespace in ("", row.pod.partition("/")[0]))
    uses = (PodUse(row.pod, row.node, units_by_resource(row).get(ref.resource_name, 0)) for row in requesting)
    return sorted(one for one in uses if one.units)


def rooms(state: PoolFacts, row: Pool, uses: Sequence[PodUse], *, only: str | None = None) -> Iterator[NodeUnits]:
    """The nodes that offer units of the pool, or on which pods have some, by name; or this one, whatever it has."""
    offered, used = state.units_by_node(row), Counter[str]()
    for one in uses:
        if one.node is not None:
            used[one.node] += one.units
    for node in sorted(offered.keys() | used.keys()) if only is None else (only,):
        yield NodeUnits(node, offered[node], used[node])


def _closed(room: NodeUnits, constraints: NodeConstraints) -> NodeUnits:
    return room._replace(constraints=tuple(constraints.get(room.node, ())))


def _of_pod(pod: PodState) -> Finding | None:
    if pod.ended is not None:
        return Finding.ENDED
    return None if pod.node is None else Finding.HAS


def _missing(state: PoolFacts, request: UnitRequest) -> Finding:
    others = [one.subject for one in state.pool.where("name", PoolRef.parse(request.pool).name)]
    if not PoolRef.parse(request.pool).namespace:
        return Finding.OTHER_KIND if others else Finding.NOT_FOUND
    if any(not PoolRef.parse(one).namespace for one in others):
        return Finding.OTHER_KIND
    return Finding.OTHER_NAMESPACE if others else Finding.NOT_FOUND


def _of_units(found: PoolAnswer) -> Finding:
    """Where the units are; the first that holds, so that each may take for granted that those before do not."""
    requested, total = found.request.units, found.total
    if not total:
        return Finding.UNDECIDED if total is None else Finding.WITHOUT_CAPACITY
    if requested > total:
        return Finding.TOO_MANY
    if all(one.offered < requested for one in found.rooms):
        return Finding.NODES_TOO_SMALL
    if any(one.fits(requested) for one in found.rooms):
        return Finding.FITS
    if any(one.free >= requested for one in found.rooms):
        return Finding.NODES_CLOSED
    return Finding.IN_USE if found.free < requested else Finding.FRAGMENTED


def _against(state: PoolFacts, pool: str) -> Iterator[PoolCondition]:
    for kind, status in _AGAINST:
        row = state.condition.get((pool, kind))
        if row is not None and row.status == status:
            yield row


def _idle(state: PoolFacts, pool: str) -> Iterator[Idle]:
    """Devices that offer nothing, by state and reason, most first."""
    found, messages = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    is_partitioned = _is_partitioned(state, pool)
    for held in sorted(state.assignment.where("pool", pool)):
        cards, partitions = state.offered(held.device)
        if not cards or (is_partitioned and not partitions):
            shown, reason, message = _condition_of(state, held)
            found[shown, reason] += 1
            messages.setdefault((shown, reason), message)
    for (shown, reason), count in sorted(found.items(), key=lambda item: (-item[1], item[0])):
        yield Idle(shown, reason, messages[shown, reason], count)


def _is_partitioned(state: PoolFacts, pool: str) -> bool:
    row = state.pool.get(pool)
    return row is not None and row.spec.definition.unit == UNIT_MIG


def _condition_of(state: PoolFacts, held: Assignment) -> tuple[str, str, str]:
    """A device's state, and why it offers nothing: its agent's last report takes precedence."""
    device, setup = state.device.get(held.device), state.setup.get(held.device)
    shown = str(held.phase) if device is None else held_state(device.prepared, held)
    if held.phase == AssignmentPhase.UNASSIGNING:
        shown = AssignmentPhase.UNASSIGNING.value
    if setup is not None and setup.pool == held.pool and setup.reason:
        return shown, setup.reason, setup.message
    return shown, held.reason, held.message


def is_about_deletion(one: PoolCondition) -> bool:
    """Whether a condition only repeats that the pool is being deleted."""
    return one.reason == PoolReason.DELETING


NODES_READ_MAX: Final = 100
"""Nodes to read from Kubernetes; others are judged by the their labels alone, and a note says so."""


def judged_nodes(answers: Iterable[PoolAnswer]) -> list[str]:
    """The nodes that offer units which the pod waits for: first those with room, then those large enough, by name."""
    ranks = dict[str, tuple[bool, bool]]()
    for one in answers:
        if one.finding not in HAS_OR_NEEDS_NONE:
            for room in filter(lambda room: room.offered, one.rooms):
                rank = _rank(room, one.request.units)
                ranks[room.node] = min(ranks.get(room.node, rank), rank)
    return sorted(ranks, key=lambda node: (ranks[node], node))


def checked_notes(judged: int, problem: str) -> Iterator[str]:
    """A note about nodes that could not be read from Kubernetes, or were too many; `problem` is why, empty if none."""
    if judged and problem:
        yield f"Not every node was checked for taints and a cordon: {problem}"
    elif judged > NODES_READ_MAX:
        yield (
            f"Only {NODES_READ_MAX} of {judged} nodes that offer units were checked for taints and a cordon; the "
            "others were judged by their labels alone."
        )


def _rank(room: NodeUnits, requested: int) -> tuple[bool, bool]:
    return not room.fits(requested), room.offered < requested

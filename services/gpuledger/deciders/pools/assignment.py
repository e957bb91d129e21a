"""Decides which pool a device belongs to next: by its annotation, else by a pool that approves it automatically. Pure.

A pool that holds a device keeps it until the device has to leave, and then until its agent has released it.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS
from gpuledger.api.phases import AgentReport, AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import MANUAL, SELECTOR
from gpuledger.api.reasons import AssignmentReason
from gpuledger.deciders.pools.conditions import closed
from gpuledger.deciders.pools.evacuation import evacuated
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.domain.pools.pools import Assignment, Pool
from gpuledger.domain.pools.rows import PoolDevice, SetupReport
from gpuledger.domain.pools.spec import approval_requirements, mismatch, selects
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.node import CARDS_PER_NODE_MAX
from gpuledger.events.node_sharing import NodeCardsLeft
from gpuledger.events.payload import truncated
from gpuledger.events.position import order

LEFT_TO_SHARING: Final = "A label of the node gives its cards to sharing; remove it to have a pool take the device."


class Rationale(NamedTuple):
    """Why a device is in its pool, or is not."""

    reason: AssignmentReason
    message: str = ""


class _Request(NamedTuple):
    """The pool that the device's annotation names, or the problem with the annotation; neither if it has none."""

    pool: Pool | None = None
    problem: Rationale | None = None


def next_step(state: PoolFacts, name: str) -> DeviceAssignmentChanged | None:
    """The next decision about a device; None if there is nothing new to decide."""
    device, current = state.device.get(name), state.assignment.get(name)
    if device is None:
        return None
    if current is None or current.pool is None:
        return _step_of_free(state, device, current)
    return _step_of_held(state, device, current, current.pool)


def _step_of_held(
    state: PoolFacts, device: PoolDevice, current: Assignment, pool: str
) -> DeviceAssignmentChanged | None:
    setup = state.setup.get(device.name)
    report = setup.report if setup is not None and setup.pool == pool else None
    if current.phase == AssignmentPhase.UNASSIGNING:
        return _released(state, device) if report == AgentReport.RELEASED else None
    request = _request(state, device)
    automatic = request.pool is None
    leaving = _why_to_leave(state, device, state.pool.get(pool), request)
    if leaving is not None:
        return evacuated(_assigned(pool, AssignmentPhase.UNASSIGNING, current.automatic, leaving), state, device)
    is_set_up = report == AgentReport.APPLIED and device.prepared == DeviceState.READY
    if current.phase == AssignmentPhase.PENDING and is_set_up:
        return _assigned(pool, AssignmentPhase.ASSIGNED, automatic, Rationale(AssignmentReason.CONFIRMED))
    lost = _lost(device, report, setup) if current.phase == AssignmentPhase.ASSIGNED else None
    if lost is not None:
        return _assigned(pool, AssignmentPhase.PENDING, automatic, lost)
    if current.automatic != automatic:
        reason = AssignmentReason.APPROVED if automatic else AssignmentReason.ASKED_FOR
        phase = AssignmentPhase(current.phase or AssignmentPhase.PENDING)
        return _assigned(pool, phase, automatic, Rationale(reason))
    return None


def _lost(device: PoolDevice, report: str | None, setup: SetupReport | None) -> Rationale | None:
    """Why an assigned device is no longer set up; None if it is."""
    if device.prepared != DeviceState.READY:
        return Rationale(AssignmentReason.LOST, f"The device is {device.prepared}.")
    if setup is not None and report in (AgentReport.REFUSED, AgentReport.RELEASED):
        return Rationale(AssignmentReason.TAKEN_BACK, setup.message or setup.reason)
    return None


def _released(state: PoolFacts, device: PoolDevice) -> DeviceAssignmentChanged:
    """The device has no pool, with the reason that keeps it so; if another pool takes it, that is the next step."""
    following = _step_of_free(state, device, None)
    if following is None:
        return _unassigned(Rationale(AssignmentReason.NOT_ASKED_FOR))
    return following if following.pool is None else _unassigned(Rationale(AssignmentReason.RELEASED))


def _step_of_free(state: PoolFacts, device: PoolDevice, current: Assignment | None) -> DeviceAssignmentChanged | None:
    if state.is_left_to_sharing(device):
        return _left_to_sharing(current)
    return _step_to_pool(state, device, current)


def _step_to_pool(state: PoolFacts, device: PoolDevice, current: Assignment | None) -> DeviceAssignmentChanged | None:
    request = _request(state, device)
    if request.pool is None and request.problem is None:
        taker = next(_takers(state, device), None)
        if taker is not None:
            why = Rationale(AssignmentReason.APPROVED)
            return _assigned(taker.subject, AssignmentPhase.PENDING, True, why)
        if current is None or current.reason == AssignmentReason.NOT_ASKED_FOR:
            return None
        return _unassigned(Rationale(AssignmentReason.NOT_ASKED_FOR))
    obstacle = request.problem or (request.pool and next(_obstacles(state, device, request.pool), None))
    if request.pool is not None and obstacle is None:
        why = Rationale(AssignmentReason.ASKED_FOR)
        return _assigned(request.pool.subject, AssignmentPhase.PENDING, False, why)
    if obstacle is None or (current is not None and (current.reason, current.message) == obstacle):
        return None
    return _unassigned(obstacle)


def _left_to_sharing(current: Assignment | None) -> DeviceAssignmentChanged | None:
    """No pool takes the device; `sharing` offers it once that is decided."""
    if current is not None and current.reason == AssignmentReason.LEFT_TO_SHARING:
        return None
    return _unassigned(Rationale(AssignmentReason.LEFT_TO_SHARING, LEFT_TO_SHARING))


def cards_left(state: PoolFacts, node: str) -> NodeCardsLeft | None:
    """The decision that no pool takes cards of a node with the label of sharing; None if it was decided already."""
    row = state.node.get(node)
    if row is None or not row.shares or row.sharing_at is None or row.left_as_of == row.sharing_at:
        return None
    return NodeCardsLeft(labelled_at=row.sharing_at)


def _request(state: PoolFacts, device: PoolDevice) -> _Request:
    """The request in the annotations, checked against the pools that exist."""
    mark = state.mark.get(device.name)
    if mark is None or (mark.requested_pool is None and mark.requested_cluster_pool is None):
        return _Request()
    if mark.requested_pool is not None and mark.requested_cluster_pool is not None:
        return _mismatched("The device has both assignment annotations; keep one of them.")
    name = mark.requested_pool if mark.requested_pool is not None else mark.requested_cluster_pool or ""
    kind = (GPU_POOLS if mark.requested_pool is not None else CLUSTER_GPU_POOLS).kind
    pool = state.owner(name)
    if pool is None:
        return _mismatched(f"There is no {kind} {name!r}; name one that exists.")
    if PoolRef.parse(pool.subject).kind != kind:
        return _mismatched(f"{name!r} is not a {kind}; use the annotation of the other kind of pool.")
    return _Request(pool)


def _mismatched(message: str) -> _Request:
    return _Request(problem=Rationale(AssignmentReason.MISMATCH, truncated(message)))


def _obstacles(state: PoolFacts, device: PoolDevice, pool: Pool) -> Iterator[Rationale]:
    """Why the pool does not take the device, the first reason first; none if it does."""
    yield from device_obstacles(device)
    if (why := _unselected(state, device, pool)) is not None:
        yield Rationale(AssignmentReason.MISMATCH, why.message)
    yield from node_obstacles(state, device, pool)
    if (problem := closed(state, pool)) is not None:
        yield Rationale(AssignmentReason.POOL_CLOSED, problem.message)


def device_obstacles(device: PoolDevice) -> Iterator[Rationale]:
    """What keeps the device out of every pool."""
    yield from _exclusions(device)
    if device.missing:
        yield Rationale(AssignmentReason.MISSING)
    elif device.prepared != DeviceState.READY:
        yield Rationale(AssignmentReason.LOST, f"The device is {device.prepared}.")


def node_obstacles(state: PoolFacts, device: PoolDevice, pool: Pool) -> Iterator[Rationale]:
    """What keeps the devices of the device's node out of the pool."""
    node, limit = state.node.get(device.node), pool.spec.definition.devices_per_node_max
    if node is None or not node.ready:
        yield Rationale(AssignmentReason.NODE_NOT_READY)
    if node is not None and node.aside:
        yield Rationale(AssignmentReason.NODE_ASIDE)
    if limit is not None and state.held_beside(device, pool.subject) >= limit:
        yield Rationale(AssignmentReason.NODE_FULL, f"The pool takes no more than {limit} devices of a node.")
    if state.is_crowded(device.node) and len(state.held_on(device.node)) >= CARDS_PER_NODE_MAX:
        message = f"Pools hold {CARDS_PER_NODE_MAX} devices of the node, and take no more of one."
        yield Rationale(AssignmentReason.NODE_FULL, message)


def _exclusions(device: PoolDevice) -> Iterator[Rationale]:
    """What takes the device out of its pool as well."""
    if device.ignored:
        yield Rationale(AssignmentReason.IGNORED)
    if not device.managed:
        yield Rationale(AssignmentReason.NOT_MANAGED)


def _unselected(state: PoolFacts, device: PoolDevice, pool: Pool, *, is_held: bool = False) -> Rationale | None:
    """Why the pool's selectors do not select the device: for its hardware, or for its node."""
    if (message := mismatch(pool.spec, device.facts, is_held=is_held)) is not None:
        return Rationale(AssignmentReason.DRIFT, message)
    if not state.selects_node(pool.spec, device.node):
        message = f"The pool's nodeSelector does not select the node {device.node}."
        return Rationale(AssignmentReason.NOT_MATCHING, message)
    return None


def _why_to_leave(state: PoolFacts, device: PoolDevice, pool: Pool | None, request: _Request) -> Rationale | None:
    if pool is None:
        return Rationale(AssignmentReason.POOL_GONE)
    if pool.deleting:
        return Rationale(AssignmentReason.POOL_DELETED)
    if (why := next(_exclusions(device), None)) is not None:
        return why
    if request.problem is not None:
        return request.problem
    if request.pool is None:
        keeps = _approves(pool, device, state.labels_of(device)) and state.owner(pool.name) == pool
    else:
        keeps = request.pool.subject == pool.subject
    if not keeps:
        return Rationale(AssignmentReason.NOT_ASKED_FOR)
    return _unselected(state, device, pool, is_held=True)


def _takers(state: PoolFacts, device: PoolDevice) -> Iterator[Pool]:
    """The pools that take a device without a request, the oldest first."""
    if any(device_obstacles(device)):
        return
    labels = state.labels_of(device)
    if not _allows_approval(state.settings_in_force(), device, labels):
        return
    keys = ("", *(f"{key}={value}" for key, value in labels.items()))
    pools = [pool for key in keys for pool in state.pool.where("approval", key)]
    for pool in sorted(pools, key=lambda row: (order(row.position), row.subject)):
        if _approves(pool, device, labels) and not any(_obstacles(state, device, pool)):
            yield pool


def _allows_approval(settings: ModuleSettings, device: PoolDevice, labels: dict[str, str]) -> bool:
    """Whether pools may approve a new device automatically; an empty selector selects nothing."""
    if settings.approval_mode != SELECTOR:
        return settings.approval_mode != MANUAL
    requirements = approval_requirements(settings.approval_selector)
    return bool(requirements) and selects(requirements, device.name, labels)


def _approves(pool: Pool, device: PoolDevice, labels: dict[str, str]) -> bool:
    """Whether the pool approves the device automatically; it keeps what it took, whatever the module's settings say."""
    approves = pool.spec.approves
    return approves is not None and selects(approves, device.name, labels)


def _assigned(pool: str, phase: AssignmentPhase, automatic: bool, why: Rationale) -> DeviceAssignmentChanged:
    return DeviceAssignmentChanged(
        pool=pool, phase=phase.value, automatic=automatic, reason=why.reason, message=why.message
    )


def _unassigned(why: Rationale) -> DeviceAssignmentChanged:
    return DeviceAssignmentChanged(reason=why.reason, message=why.message)

"""Which pool a device belongs to next: by an annotation, else by a pool that approves it by itself. Pure.

A pool that holds a device keeps it until the device is to leave, and then until its agent has released it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import orjson

from gpuledger.api.phases import AgentReport, AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.pool_spec import MANUAL, SELECTOR
from gpuledger.api.reasons import AssignmentReason
from gpuledger.deciders.pools.conditions import closed
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.domain.pools.pools import Assignment, Pool
from gpuledger.domain.pools.rows import PoolDevice, PoolSetup
from gpuledger.domain.pools.spec import DeviceFacts, mismatch, read_spec, selects
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DeviceAssignmentChanged
from gpuledger.events.node import CARDS_PER_NODE_MAX


class _Why(NamedTuple):
    """Why a device is not, or not any more, in a pool."""

    reason: AssignmentReason
    message: str = ""


class _Asked(NamedTuple):
    """The pool that people ask for, or what is wrong with how they ask; neither where they do not ask."""

    pool: Pool | None = None
    wrong: _Why | None = None


def next_step(state: PoolFacts, name: str) -> DeviceAssignmentChanged | None:
    """What is to be decided about a device now; None where all of it was decided before."""
    device, known = state.device.get(name), state.assignment.get(name)
    if device is None:
        return None
    if known is None or known.pool is None:
        return _of_free(state, device, known)
    return _of_held(state, device, known, known.pool)


def _of_held(state: PoolFacts, device: PoolDevice, known: Assignment, pool: str) -> DeviceAssignmentChanged | None:
    setup = state.setup.get(device.name)
    word = setup.word if setup is not None and setup.pool == pool else None
    if known.phase == AssignmentPhase.UNASSIGNING:
        return _released(state, device) if word == AgentReport.RELEASED else None
    asked, row = _asked_for(state, device), state.pool.get(pool)
    why = _why_to_leave(state, device, row, asked)
    automatic = asked.pool is None
    if why is not None:
        return _assignment(pool, AssignmentPhase.UNASSIGNING, known.automatic, why)
    if known.phase == AssignmentPhase.PENDING and word == AgentReport.APPLIED and device.prepared == DeviceState.READY:
        return _assignment(pool, AssignmentPhase.ASSIGNED, automatic, _Why(AssignmentReason.CONFIRMED))
    lost = _lost(device, word, setup) if known.phase == AssignmentPhase.ASSIGNED else None
    if lost is not None:
        return _assignment(pool, AssignmentPhase.PENDING, automatic, lost)
    if known.automatic != automatic:
        reason = AssignmentReason.APPROVED if automatic else AssignmentReason.ASKED_FOR
        return _assignment(pool, AssignmentPhase(known.phase or AssignmentPhase.PENDING), automatic, _Why(reason))
    return None


def _lost(device: PoolDevice, word: str | None, setup: PoolSetup | None) -> _Why | None:
    """Why an assigned device is not set up any more; None where it is."""
    if device.prepared != DeviceState.READY:
        return _Why(AssignmentReason.LOST, f"The device is {device.prepared}.")
    if setup is not None and word in (AgentReport.REFUSED, AgentReport.RELEASED):
        return _Why(AssignmentReason.TAKEN_BACK, setup.message or setup.reason)
    return None


def _released(state: PoolFacts, device: PoolDevice) -> DeviceAssignmentChanged:
    """Nobody's, for the reason that keeps it so; where another pool is to take it, that is the next step."""
    then = _of_free(state, device, None)
    if then is None:
        return _nobody(_Why(AssignmentReason.NOT_ASKED_FOR))
    return then if then.pool is None else _nobody(_Why(AssignmentReason.RELEASED))


def _of_free(state: PoolFacts, device: PoolDevice, known: Assignment | None) -> DeviceAssignmentChanged | None:
    asked = _asked_for(state, device)
    if asked.pool is None and asked.wrong is None:
        taker = next(_takers(state, device), None)
        if taker is not None:
            return _assignment(taker.subject, AssignmentPhase.PENDING, True, _Why(AssignmentReason.APPROVED))
        return (
            None
            if known is None or known.reason == AssignmentReason.NOT_ASKED_FOR
            else _nobody(_Why(AssignmentReason.NOT_ASKED_FOR))
        )
    why = asked.wrong or (asked.pool and _why_not(state, device, asked.pool))
    if asked.pool is not None and why is None:
        return _assignment(asked.pool.subject, AssignmentPhase.PENDING, False, _Why(AssignmentReason.ASKED_FOR))
    if why is None or (known is not None and (known.reason, known.message) == why):
        return None
    return _nobody(why)


def _asked_for(state: PoolFacts, device: PoolDevice) -> _Asked:
    """What the annotations say, against the pools that there are."""
    mark = state.mark.get(device.name)
    if mark is None or (mark.asked is None and mark.asked_cluster is None):
        return _Asked()
    if mark.asked is not None and mark.asked_cluster is not None:
        return _mismatched("Both assignment annotations are given; keep one of them.")
    name = mark.asked if mark.asked is not None else mark.asked_cluster or ""
    kind = "GPUPool" if mark.asked is not None else "ClusterGPUPool"
    pool = state.owner(name)
    if pool is None:
        return _mismatched(f"There is no {kind} {name!r}; name one that there is.")
    if bool(PoolRef.parse(pool.subject).namespace) != (mark.asked is not None):
        return _mismatched(f"{name!r} is no {kind}; use the annotation of the other kind of pool.")
    return _Asked(pool)


def _mismatched(message: str) -> _Asked:
    return _Asked(wrong=_Why(AssignmentReason.MISMATCH, message))


def _why_not(state: PoolFacts, device: PoolDevice, pool: Pool) -> _Why | None:
    """Why the pool does not take the device that it is asked to; None where it does."""
    why = _unavailable(device)
    if why is not None:
        return why
    if (wrong := _unselected(state, device, pool)) is not None:
        return _Why(AssignmentReason.MISMATCH, wrong.message)
    if not (node := state.node.get(device.node)) or not node.ready:
        return _Why(AssignmentReason.NODE_NOT_READY)
    limit = read_spec(pool.said).said.devices_per_node_max
    if limit is not None and state.held_beside(device, pool.subject) >= limit:
        return _Why(AssignmentReason.NODE_FULL, f"The pool takes no more than {limit} devices of a node.")
    if state.is_crowded(device.node) and len(state.held_on(device.node)) >= CARDS_PER_NODE_MAX:
        return _Why(
            AssignmentReason.NODE_FULL, f"Pools have {CARDS_PER_NODE_MAX} devices of the node, and take no more of one."
        )
    problem = closed(state, pool)
    return None if problem is None else _Why(AssignmentReason.POOL_CLOSED, problem.message)


def _unavailable(device: PoolDevice) -> _Why | None:
    if (why := _excluded(device)) is not None:
        return why
    if device.missing:
        return _Why(AssignmentReason.MISSING)
    if device.prepared != DeviceState.READY:
        return _Why(AssignmentReason.LOST, f"The device is {device.prepared}.")
    return None


def _excluded(device: PoolDevice) -> _Why | None:
    if device.ignored:
        return _Why(AssignmentReason.IGNORED)
    return None if device.managed else _Why(AssignmentReason.NOT_MANAGED)


def _unselected(state: PoolFacts, device: PoolDevice, pool: Pool, *, is_held: bool = False) -> _Why | None:
    """Why the pool's selectors do not mean the device: for its hardware, or for its node."""
    spec = read_spec(pool.said)
    if (message := mismatch(spec, _facts(device), was_meant=is_held)) is not None:
        return _Why(AssignmentReason.DRIFT, message)
    node = state.node.get(device.node)
    labels = orjson.loads(node.labels) if spec.nodes and node is not None else {}
    if not selects(spec.nodes, device.node, labels):
        return _Why(AssignmentReason.NOT_MATCHING, f"The node {device.node} is not among the pool's nodeSelector.")
    return None


def _facts(device: PoolDevice) -> DeviceFacts:
    profiles = frozenset(device.mig_profiles.split(",")) if device.mig_profiles else frozenset[str]()
    return DeviceFacts(*device[7:12], profiles)


def _why_to_leave(state: PoolFacts, device: PoolDevice, pool: Pool | None, asked: _Asked) -> _Why | None:
    if pool is None:
        return _Why(AssignmentReason.POOL_GONE)
    if pool.deleting:
        return _Why(AssignmentReason.POOL_DELETED)
    if (why := _excluded(device)) is not None:
        return why
    if asked.wrong is not None:
        return asked.wrong
    if asked.pool is None:
        keeps = _approves(pool, device, _labels(state, device)) and state.owner(pool.name) == pool
    else:
        keeps = asked.pool.subject == pool.subject
    return _unselected(state, device, pool, is_held=True) if keeps else _Why(AssignmentReason.NOT_ASKED_FOR)


def _takers(state: PoolFacts, device: PoolDevice) -> Iterator[Pool]:
    """The pools that take a device that nobody asks for, the oldest first."""
    if _unavailable(device) is not None:
        return
    labels = _labels(state, device)
    if not _lets_approve(state.settings_in_force(), labels):
        return
    keys = ("", *(f"{key}={value}" for key, value in labels.items()))
    pools = [pool for key in keys for pool in state.pool.where("approval", key)]
    for pool in sorted(pools, key=lambda row: (row.position, row.subject)):
        if _approves(pool, device, labels) and _why_not(state, device, pool) is None:
            yield pool


def _lets_approve(settings: ModuleSettings, labels: dict[str, str]) -> bool:
    """Whether pools may approve a new device by themselves; a selector that selects by nothing selects nothing."""
    if settings.approval_mode != SELECTOR:
        return settings.approval_mode != MANUAL
    wanted = orjson.loads(settings.approval_selector)
    return bool(wanted) and wanted.items() <= labels.items()


def _approves(pool: Pool, device: PoolDevice, labels: dict[str, str]) -> bool:
    """Whether the pool approves the device by itself; what it took it keeps, whatever the module's settings say."""
    approves = read_spec(pool.said).approves
    return approves is not None and selects(approves, device.name, labels)


def _labels(state: PoolFacts, device: PoolDevice) -> dict[str, str]:
    """The GPUDevice's labels: people's, and ours over them."""
    mark = state.mark.get(device.name)
    people = {} if mark is None else orjson.loads(mark.labels)
    return {**people, **orjson.loads(device.labels)}


def _assignment(pool: str, phase: AssignmentPhase, automatic: bool, why: _Why) -> DeviceAssignmentChanged:
    return DeviceAssignmentChanged(
        pool=pool, phase=phase.value, automatic=automatic, reason=why.reason, message=why.message
    )


def _nobody(why: _Why) -> DeviceAssignmentChanged:
    return DeviceAssignmentChanged(reason=why.reason, message=why.message)

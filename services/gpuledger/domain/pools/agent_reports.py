"""What agents say of devices and pools, as rows.

The latest of it by event time is in force. An agent speaks of its own node's devices only, and is heard only about the
pool that a device belongs to; what it said before a step of the assignment does not count for the next one.
"""

from datetime import UTC, datetime, timedelta
from sys import intern

from gpuledger.api.phases import AgentReport, AssignmentPhase
from gpuledger.api.reasons import AssignmentReason
from gpuledger.domain.fact import Fact, Handlers, is_late
from gpuledger.domain.pools.rows import PoolSetup
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import DevicePoolApplied, DevicePoolRefused, DevicePoolReleased
from gpuledger.events.publishing import is_agent_of

_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC) - _MICROSECOND
"""The last moment that another one follows; a time that an agent tells may be any."""


def unheard(device: str, pool: str | None, told_at: datetime | None, asked_at: datetime | None = None) -> PoolSetup:
    """The row of a device of whose present assignment its agent has said nothing."""
    return PoolSetup(intern(device), pool, None, 0, 0, "", "", told_at, asked_at)


def asked_anew(known: PoolSetup | None, time: datetime) -> datetime:
    """When the agent is asked anew, where that is decided at this time: later than it was asked before.

    Decisions may share a time, and the agent tells by it whether it has answered.
    """
    if known is None or known.asked_at is None:
        return time
    return max(time, min(known.asked_at, _LAST) + _MICROSECOND)


def _applied(state: PoolFacts, fact: Fact, data: DevicePoolApplied) -> None:
    setup = _heard(state, fact, data.pool)
    if setup is None:
        return
    partitions = data.partitions or 0
    most = max(setup.partitions_most, partitions)
    _tell(
        state,
        setup._replace(word=AgentReport.APPLIED, partitions=partitions, partitions_most=most, reason="", message=""),
    )


def _refused(state: PoolFacts, fact: Fact, data: DevicePoolRefused) -> None:
    setup = _heard(state, fact, data.pool)
    if setup is not None:
        _tell(state, setup._replace(word=AgentReport.REFUSED, partitions=0, reason=data.reason, message=data.message))


def _released(state: PoolFacts, fact: Fact, data: DevicePoolReleased) -> None:
    setup = _heard(state, fact, data.pool)
    if setup is not None:
        _tell(state, setup._replace(word=AgentReport.RELEASED, partitions=0, reason="", message=""))


def _heard(state: PoolFacts, fact: Fact, pool: str) -> PoolSetup | None:
    """The device's row at the time of the fact, where its own agent speaks of the pool that it belongs to."""
    name, time = fact.event.subject, fact.event.time
    device, assignment, known = state.device.get(name), state.assignment.get(name), state.setup.get(name)
    if device is None or not is_agent_of(fact.event.source, device.node):
        return None
    if assignment is None or assignment.pool != pool or is_late(known and known.told_at, time):
        return None
    return (known or unheard(name, pool, time))._replace(told_at=time)


def _tell(state: PoolFacts, setup: PoolSetup) -> None:
    with state.counted(setup.device):
        state.setup.put(setup)
    state.touch_device(setup.device)
    _note_drift(state, setup)


def _note_drift(state: PoolFacts, setup: PoolSetup) -> None:
    """An assigned device drifts when its agent has it no more, or not whole."""
    assignment = state.assignment.get(setup.device)
    if assignment is None or assignment.phase != AssignmentPhase.ASSIGNED or setup.pool is None:
        return
    if setup.word != AgentReport.APPLIED:
        text = setup.message or f"The agent says {setup.word} of the assigned device {setup.device}."
        state.drift(setup.device, setup.pool, setup.reason or AssignmentReason.DRIFT, text)
    elif setup.partitions < setup.partitions_most:
        text = f"Of {setup.partitions_most} partitions of {setup.device} {setup.partitions} are left."
        state.drift(setup.device, setup.pool, AssignmentReason.DRIFT, text)


WORD_HANDLERS: Handlers = {
    DevicePoolApplied: _applied,
    DevicePoolRefused: _refused,
    DevicePoolReleased: _released,
}

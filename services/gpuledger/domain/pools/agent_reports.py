"""Folds what agents report of devices and pools into rows.

The latest report by event time is in force. A report counts only for the pool that the device belongs to; a report from
before a step of the assignment does not count after it. Whether the device is on the agent's node is decided by
`inventory`, but for reports from before that rule.
"""

from datetime import UTC, datetime, timedelta
from sys import intern

from gpuledger.api.phases import AgentReport, AssignmentPhase
from gpuledger.api.reasons import AssignmentReason
from gpuledger.domain.fact import Fact, Handlers, is_late
from gpuledger.domain.pools.rows import SetupReport
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.events.device import MIG_INSTANCES_MAX, DevicePoolApplied, DevicePoolRefused, DevicePoolReleased
from gpuledger.events.publishing import is_agent_of

_MICROSECOND = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC) - _MICROSECOND
"""The last moment that another one follows; an agent may report any time."""


def without_report(
    device: str, pool: str | None, reported_at: datetime | None, requested_at: datetime | None = None
) -> SetupReport:
    """The row of a device whose agent has reported nothing of its present assignment."""
    return SetupReport(intern(device), pool, None, 0, 0, "", "", reported_at, requested_at)


def next_request_time(setup: SetupReport | None, time: datetime) -> datetime:
    """The time of the next request to the agent, if it is decided at this time: later than the request before.

    Decisions may share a time, and the agent tells by it whether it has answered.
    """
    if setup is None or setup.requested_at is None:
        return time
    return max(time, min(setup.requested_at, _LAST) + _MICROSECOND)


def partitions_reported(report: DevicePoolApplied) -> int:
    """How many partitions the device has, as its agent reports; more than a card can have count as that many."""
    return min(report.partitions or 0, MIG_INSTANCES_MAX)


def _applied(state: PoolFacts, fact: Fact, data: DevicePoolApplied) -> None:
    setup = _reported(state, fact, data.pool)
    if setup is None:
        return
    partitions = partitions_reported(data)
    most = max(setup.partitions_most, partitions)
    _put(
        state,
        setup._replace(report=AgentReport.APPLIED, partitions=partitions, partitions_most=most, reason="", message=""),
    )


def _refused(state: PoolFacts, fact: Fact, data: DevicePoolRefused) -> None:
    setup = _reported(state, fact, data.pool)
    if setup is not None:
        _put(state, setup._replace(report=AgentReport.REFUSED, partitions=0, reason=data.reason, message=data.message))


def _released(state: PoolFacts, fact: Fact, data: DevicePoolReleased) -> None:
    setup = _reported(state, fact, data.pool)
    if setup is not None:
        _put(state, setup._replace(report=AgentReport.RELEASED, partitions=0, reason="", message=""))


def _reported(state: PoolFacts, fact: Fact, pool: str) -> SetupReport | None:
    """The device's row at the time of the report; None if the report does not count."""
    name, time = fact.event.subject, fact.event.time
    device, assignment, setup = state.device.get(name), state.assignment.get(name), state.setup.get(name)
    if device is None or not is_agent_of(fact.event.source, device.node):  # Reports from before they were judged.
        return None
    if assignment is None or assignment.pool != pool or is_late(setup and setup.reported_at, time):
        return None
    return (setup or without_report(name, pool, time))._replace(reported_at=time)


def _put(state: PoolFacts, setup: SetupReport) -> None:
    with state.counted(setup.device):
        state.setup.put(setup)
    state.touch_device(setup.device)
    _note_drift(state, setup)


def _note_drift(state: PoolFacts, setup: SetupReport) -> None:
    """An assigned device drifts when its agent no longer has it, or no longer has all of it."""
    assignment = state.assignment.get(setup.device)
    if assignment is None or assignment.phase != AssignmentPhase.ASSIGNED or setup.pool is None:
        return
    if setup.report != AgentReport.APPLIED:
        text = setup.message or f"The agent reports {setup.report} for the assigned device {setup.device}."
        state.drift(setup.device, setup.pool, setup.reason or AssignmentReason.DRIFT, text)
    elif setup.partitions < setup.partitions_most:
        text = f"{setup.device} has {setup.partitions} of its {setup.partitions_most} partitions left."
        state.drift(setup.device, setup.pool, AssignmentReason.DRIFT, text)


REPORT_HANDLERS: Handlers = {
    DevicePoolApplied: _applied,
    DevicePoolRefused: _refused,
    DevicePoolReleased: _released,
}

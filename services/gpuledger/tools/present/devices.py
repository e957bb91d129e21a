"""Reads the decisions about a GPUDevice back out of the status that they were written to. Pure.

It is the inverse of `gpuledger.domain.inventory.status`. A status that gpuledger did not write gives no decision.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.api.conditions import TRUE, DeviceConditionType
from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.domain.bootstrap.state import PreparedDevice
from gpuledger.domain.pools.pools import Assignment
from gpuledger.edge.kube.client import Object
from gpuledger.edge.kube.objects import items, mapping, time_of
from gpuledger.tools.present.objects import UNDATED

NOT_READY: Final = frozenset({DeviceState.DISCOVERED, DeviceState.VALIDATING, DeviceState.FAULTED})
"""States that say how far a device is prepared; in every other one it is Ready, whatever its pool makes of it."""


class DeviceDecisions(NamedTuple):
    """How far a GPUDevice is prepared, and its assignment to a pool; None where there is none."""

    prepared: PreparedDevice | None
    assignment: Assignment | None


class _Condition(NamedTuple):
    """A condition of the status."""

    status: str
    reason: str
    message: str
    since: datetime


def decisions_of(obj: Object) -> DeviceDecisions:
    """The decisions that the status of a GPUDevice shows."""
    name, status = str(mapping(obj, "metadata").get("name", "")), mapping(obj, "status")
    conditions = _conditions(status)
    return DeviceDecisions(_prepared(name, status, conditions), _assignment(name, status, conditions))


def _prepared(name: str, status: Mapping[str, Any], conditions: Mapping[str, _Condition]) -> PreparedDevice | None:
    shown = status.get("state")
    if not isinstance(shown, str) or not shown:
        return None
    faulted = conditions.get(DeviceConditionType.FAULTED)
    if shown == DeviceState.FAULTED and faulted is not None:
        return PreparedDevice(name, shown, faulted.reason, faulted.message, faulted.since)
    return PreparedDevice(name, shown if shown in NOT_READY else DeviceState.READY.value, "", "", UNDATED)


def _assignment(name: str, status: Mapping[str, Any], conditions: Mapping[str, _Condition]) -> Assignment | None:
    configured, reference = conditions.get(DeviceConditionType.CONFIGURED), mapping(status, "poolRef")
    if configured is None or not reference.get("name"):
        return None
    unassigning = conditions.get(DeviceConditionType.UNASSIGNING)
    is_leaving = unassigning is not None and unassigning.status == TRUE
    phase = AssignmentPhase.ASSIGNED if configured.status == TRUE else AssignmentPhase.PENDING
    return Assignment(
        name,
        PoolRef(str(reference["name"]), str(reference.get("namespace") or "")).id,
        (AssignmentPhase.UNASSIGNING if is_leaving else phase).value,
        status.get("autoAttach") is True,
        configured.reason,
        configured.message,
        configured.since,
        is_leaving and status.get("state") == DeviceState.ASSIGNED,
    )


def _conditions(status: Mapping[str, Any]) -> dict[str, _Condition]:
    return {
        str(one.get("type")): _Condition(
            str(one.get("status") or ""),
            str(one.get("reason") or ""),
            str(one.get("message") or ""),
            time_of(one.get("lastTransitionTime")) or UNDATED,
        )
        for one in map(mapping, items(status, "conditions"))
    }

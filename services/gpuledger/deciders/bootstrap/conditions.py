"""The conditions that the preparation keeps of a node: what they say follows from the checks. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from gpuledger.api.conditions import NodeConditionType
from gpuledger.api.phases import DeviceState, ValidatorVerdict
from gpuledger.api.reasons import PreparationReason
from gpuledger.deciders.bootstrap.checks import Check, Checks, Standing
from gpuledger.deciders.bootstrap.device_states import is_held
from gpuledger.deciders.bootstrap.node_facts import NodeView
from gpuledger.events.node import Condition

_MISSING = (NodeConditionType.DRIVER_MISSING, NodeConditionType.TOOLKIT_MISSING, NodeConditionType.MONITORING_MISSING)


def conditions_of(view: NodeView, checks: Checks, states: Sequence[str]) -> tuple[Condition, ...]:
    """The node's conditions, ordered by type; `states` are those of its devices."""
    infrastructure: tuple[Condition, ...]
    if view.row.managed:
        infrastructure = (_driver(checks), _toolkit(checks), _gfd(checks.gfd), _monitoring(checks.monitoring))
    else:
        types = (
            NodeConditionType.DRIVER_MISSING,
            NodeConditionType.TOOLKIT_MISSING,
            NodeConditionType.GFD_READY,
            NodeConditionType.MONITORING_MISSING,
        )
        infrastructure = tuple(_condition(kind, None, PreparationReason.MANAGED_DISABLED) for kind in types)
    degraded = _infra_degraded(infrastructure)
    found = (
        *infrastructure,
        degraded,
        _degraded_workloads(view, degraded),
        _ready_for_pooling(view, infrastructure, states),
    )
    return tuple(sorted(found, key=lambda condition: condition.type))


def _driver(checks: Checks) -> Condition:
    status = None if checks.verdict is None else checks.verdict is ValidatorVerdict.DRIVER_MISSING
    told = (
        Check(Standing.FINE, PreparationReason.VALIDATOR_READY)
        if checks.verdict is ValidatorVerdict.TOOLKIT_MISSING
        else None
    )
    return _checked(NodeConditionType.DRIVER_MISSING, status, told or checks.validator)


def _toolkit(checks: Checks) -> Condition:
    """Where the driver is missing, nobody can tell of the toolkit."""
    if checks.verdict is ValidatorVerdict.DRIVER_MISSING:
        return _condition(NodeConditionType.TOOLKIT_MISSING, None, PreparationReason.WAITING_FOR_DRIVER)
    status = None if checks.verdict is None else checks.verdict is ValidatorVerdict.TOOLKIT_MISSING
    return _checked(NodeConditionType.TOOLKIT_MISSING, status, checks.validator)


def _gfd(check: Check) -> Condition:
    return _checked(NodeConditionType.GFD_READY, check.standing is Standing.FINE, check)


def _monitoring(check: Check) -> Condition:
    return _checked(NodeConditionType.MONITORING_MISSING, check.standing is not Standing.FINE, check)


def _infra_degraded(infrastructure: Iterable[Condition]) -> Condition:
    for one in infrastructure:
        if one.type in _MISSING and one.status == "True":
            return _condition(NodeConditionType.INFRA_DEGRADED, True, one.type, one.message)
    return _condition(NodeConditionType.INFRA_DEGRADED, False, PreparationReason.NOT_DEGRADED)


def _degraded_workloads(view: NodeView, degraded: Condition) -> Condition:
    if degraded.status != "True":
        return _condition(NodeConditionType.DEGRADED_WORKLOADS, False, PreparationReason.NOT_DEGRADED)
    has_assigned = any(map(is_held, view.devices))
    reason = PreparationReason.DEVICES_ASSIGNED if has_assigned else PreparationReason.NO_DEVICES_ASSIGNED
    return _condition(NodeConditionType.DEGRADED_WORKLOADS, has_assigned, reason)


def _ready_for_pooling(view: NodeView, infrastructure: Iterable[Condition], states: Sequence[str]) -> Condition:
    fine = {NodeConditionType.GFD_READY: "True", **dict.fromkeys(_MISSING, "False")}
    rules = (
        (bool(view.devices), PreparationReason.NO_DEVICES),
        (view.row.managed, PreparationReason.MANAGED_DISABLED),
        (view.row.complete, PreparationReason.INVENTORY_INCOMPLETE),
        (
            all(one.status == fine[NodeConditionType(one.type)] for one in infrastructure),
            PreparationReason.INFRASTRUCTURE_NOT_READY,
        ),
        (all(state == DeviceState.READY for state in states), PreparationReason.DEVICES_NOT_READY),
    )
    for holds, reason in rules:
        if not holds:
            return _condition(NodeConditionType.READY_FOR_POOLING, False, reason)
    return _condition(NodeConditionType.READY_FOR_POOLING, True, PreparationReason.READY_FOR_POOLING)


def _checked(kind: NodeConditionType, holds: bool | None, check: Check) -> Condition:
    return _condition(kind, holds, check.reason, check.message)


_STATUS: dict[bool | None, Literal["True", "False", "Unknown"]] = {None: "Unknown", True: "True", False: "False"}


def _condition(kind: NodeConditionType, holds: bool | None, reason: str, message: str = "") -> Condition:
    return Condition(type=kind.value, status=_STATUS[holds], reason=str(reason), message=message)

"""Derives the conditions of a node's preparation from its checks. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal

from gpuledger.api.conditions import NodeConditionType
from gpuledger.api.phases import ValidatorVerdict
from gpuledger.api.reasons import PreparationReason
from gpuledger.deciders.bootstrap.checks import CheckResult, Checks, NodeCheck, fine
from gpuledger.deciders.bootstrap.device_states import is_held, is_usable
from gpuledger.deciders.bootstrap.node_context import NodeContext
from gpuledger.events.node import Condition

_MISSING = (NodeConditionType.DRIVER_MISSING, NodeConditionType.TOOLKIT_MISSING, NodeConditionType.MONITORING_MISSING)


def conditions_of(context: NodeContext, checks: Checks, states: Sequence[str]) -> tuple[Condition, ...]:
    """The node's conditions, ordered by type; `states` are those of its devices, in their order."""
    infrastructure: tuple[Condition, ...]
    if context.row.managed:
        gfd, monitoring = checks.gfd, checks.monitoring
        infrastructure = (
            _driver(checks),
            _toolkit(checks),
            _checked(NodeConditionType.GFD_READY, gfd.result is CheckResult.FINE, gfd),
            _checked(NodeConditionType.MONITORING_MISSING, monitoring.result is not CheckResult.FINE, monitoring),
        )
    else:
        types = (
            NodeConditionType.DRIVER_MISSING,
            NodeConditionType.TOOLKIT_MISSING,
            NodeConditionType.GFD_READY,
            NodeConditionType.MONITORING_MISSING,
        )
        infrastructure = tuple(_condition(kind, None, PreparationReason.MANAGED_DISABLED) for kind in types)
    degraded = _infra_degraded(context, checks, infrastructure)
    found = (
        *infrastructure,
        degraded,
        _degraded_workloads(context, degraded),
        _ready_for_pooling(context, infrastructure, states),
    )
    return tuple(sorted(found, key=lambda condition: condition.type))


def _driver(checks: Checks) -> Condition:
    status = None if checks.verdict is None else checks.verdict is ValidatorVerdict.DRIVER_MISSING
    is_fine = checks.verdict in (ValidatorVerdict.TOOLKIT_MISSING, ValidatorVerdict.VALIDATION_FAILED)
    check = fine(PreparationReason.VALIDATOR_READY) if is_fine else checks.validator
    return _checked(NodeConditionType.DRIVER_MISSING, status, check)


def _toolkit(checks: Checks) -> Condition:
    """Without a driver the state of the toolkit is unknown; a validator that fails elsewhere says nothing of it."""
    if checks.verdict is ValidatorVerdict.DRIVER_MISSING:
        return _condition(NodeConditionType.TOOLKIT_MISSING, None, PreparationReason.WAITING_FOR_DRIVER)
    is_silent = checks.verdict in (None, ValidatorVerdict.VALIDATION_FAILED)
    status = None if is_silent else checks.verdict is ValidatorVerdict.TOOLKIT_MISSING
    return _checked(NodeConditionType.TOOLKIT_MISSING, status, checks.validator)


def _infra_degraded(context: NodeContext, checks: Checks, infrastructure: Iterable[Condition]) -> Condition:
    """Whether something is missing, or the validator fails at a step of its own."""
    if context.row.managed and checks.verdict is ValidatorVerdict.VALIDATION_FAILED:
        reason, message = PreparationReason.VALIDATION_FAILED, checks.validator.message
        return _condition(NodeConditionType.INFRA_DEGRADED, True, reason, message)
    for one in infrastructure:
        if one.type in _MISSING and one.status == "True":
            return _condition(NodeConditionType.INFRA_DEGRADED, True, one.type, one.message)
    return _condition(NodeConditionType.INFRA_DEGRADED, False, PreparationReason.NOT_DEGRADED)


def _degraded_workloads(context: NodeContext, degraded: Condition) -> Condition:
    if degraded.status != "True":
        return _condition(NodeConditionType.DEGRADED_WORKLOADS, False, PreparationReason.NOT_DEGRADED)
    has_assigned = any(map(is_held, context.devices))
    reason = PreparationReason.DEVICES_ASSIGNED if has_assigned else PreparationReason.NO_DEVICES_ASSIGNED
    return _condition(NodeConditionType.DEGRADED_WORKLOADS, has_assigned, reason)


def _ready_for_pooling(context: NodeContext, infrastructure: Iterable[Condition], states: Sequence[str]) -> Condition:
    """Whether pools may take devices of the node: one that is not usable keeps itself out, and no other."""
    expected = {NodeConditionType.GFD_READY: "True", **dict.fromkeys(_MISSING, "False")}
    rules = (
        (bool(context.devices), PreparationReason.NO_DEVICES),
        (context.row.managed, PreparationReason.MANAGED_DISABLED),
        (context.row.complete, PreparationReason.INVENTORY_INCOMPLETE),
        (
            all(one.status == expected[NodeConditionType(one.type)] for one in infrastructure),
            PreparationReason.INFRASTRUCTURE_NOT_READY,
        ),
        (any(map(is_usable, context.devices, states)), PreparationReason.DEVICES_NOT_READY),
    )
    for holds, reason in rules:
        if not holds:
            return _condition(NodeConditionType.READY_FOR_POOLING, False, reason)
    return _condition(NodeConditionType.READY_FOR_POOLING, True, PreparationReason.READY_FOR_POOLING)


def _checked(kind: NodeConditionType, holds: bool | None, check: NodeCheck) -> Condition:
    return _condition(kind, holds, check.reason, check.message)


_STATUS: dict[bool | None, Literal["True", "False", "Unknown"]] = {None: "Unknown", True: "True", False: "False"}


def _condition(kind: NodeConditionType, holds: bool | None, reason: str, message: str = "") -> Condition:
    return Condition(type=kind.value, status=_STATUS[holds], reason=str(reason), message=message)

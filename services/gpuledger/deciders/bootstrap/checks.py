"""Checks the infrastructure of a node: driver and toolkit, GPU feature discovery, monitoring. Pure."""

from enum import Enum
from typing import NamedTuple

from gpuledger.api.phases import DRIVER_STEP, TOOLKIT_STEP, Component, ValidatorVerdict
from gpuledger.api.reasons import PreparationReason
from gpuledger.deciders.bootstrap.node_context import NodeContext, is_overdue, latest
from gpuledger.domain.bootstrap.observations import verdict_when_failed, verdict_when_stuck


class CheckResult(Enum):
    """Whether a part works, may still start to, or needs a repair."""

    FINE = "fine"
    PENDING = "pending"
    FAILING = "failing"


class NodeCheck(NamedTuple):
    """The result of checking one part of a node's infrastructure, and the reason."""

    result: CheckResult
    reason: PreparationReason
    message: str = ""


class Checks(NamedTuple):
    """All checks of a node in the order of its preparation; `verdict` is None while the validator's is not known."""

    verdict: ValidatorVerdict | None
    validator: NodeCheck
    gfd: NodeCheck
    monitoring: NodeCheck


def fine(reason: PreparationReason) -> NodeCheck:
    """A part that works."""
    return NodeCheck(CheckResult.FINE, reason)


def _pending(reason: PreparationReason, message: str = "") -> NodeCheck:
    return NodeCheck(CheckResult.PENDING, reason, message)


def _failing(reason: PreparationReason, message: str) -> NodeCheck:
    return NodeCheck(CheckResult.FAILING, reason, message)


def checks_of(context: NodeContext) -> Checks:
    """Check the node's infrastructure."""
    verdict, validator = _with_agent(context, *_validator(context))
    return Checks(verdict, validator, _gfd(context, verdict), _monitoring(context))


_VALIDATOR_CHECKS = {
    None: _pending(PreparationReason.VALIDATOR_PENDING, "The validator has not said anything yet."),
    ValidatorVerdict.FINE: fine(PreparationReason.VALIDATOR_READY),
    ValidatorVerdict.DRIVER_MISSING: _failing(
        PreparationReason.DRIVER_VALIDATION_FAILED,
        f"The validator fails at {DRIVER_STEP}; install or repair the driver on the node.",
    ),
    ValidatorVerdict.TOOLKIT_MISSING: _failing(
        PreparationReason.TOOLKIT_VALIDATION_FAILED,
        f"The validator fails at {TOOLKIT_STEP}; install or repair the container toolkit on the node.",
    ),
    ValidatorVerdict.VALIDATION_FAILED: _failing(
        PreparationReason.VALIDATION_FAILED,
        f"The validator fails at another step than {DRIVER_STEP} and {TOOLKIT_STEP}; look at the log of its pod.",
    ),
}


def _validator(context: NodeContext) -> tuple[ValidatorVerdict | None, NodeCheck]:
    if not context.settings.validator_enabled:
        return ValidatorVerdict.FINE, fine(PreparationReason.COMPONENT_DISABLED)
    row = context.components.get(Component.VALIDATOR)
    verdict, step = _last_verdict(context), None if row is None else row.step
    if row is not None and (row.ready or row.failing):
        verdict = ValidatorVerdict.FINE if row.ready else verdict_when_failed(step)
    elif is_overdue(context.row.validator_overdue_since, context.validator_unready_since()):
        stuck = verdict_when_stuck(step)
        if verdict is not stuck:
            return stuck, _timed_out(context, step)
    return verdict, _VALIDATOR_CHECKS[verdict]


def _with_agent(
    context: NodeContext, verdict: ValidatorVerdict | None, check: NodeCheck
) -> tuple[ValidatorVerdict | None, NodeCheck]:
    """A driver that the agent misses is missing, whatever the validator reports; the agent decides nothing else."""
    if not context.row.driver_missing or verdict is ValidatorVerdict.DRIVER_MISSING:
        return verdict, check
    text = "No driver answers the node's agent; install or repair the driver on the node."
    return ValidatorVerdict.DRIVER_MISSING, _failing(PreparationReason.DRIVER_NOT_ANSWERING, text)


def _last_verdict(context: NodeContext) -> ValidatorVerdict | None:
    """The validator's last verdict, unless the preparation began anew since then."""
    verdict, at = context.row.verdict, context.row.verdict_at
    if verdict is None or at is None:
        return None
    row = context.components.get(Component.VALIDATOR)
    held_when_begun = row is not None and row.since > context.begun_at
    return ValidatorVerdict(verdict) if at >= context.begun_at or held_when_begun else None


def _timed_out(context: NodeContext, step: str | None) -> NodeCheck:
    where = "has no pod on the node, or one that does not start" if step is None else f"does not get past {step}"
    text = f"The validator {where}, for {context.settings.validation_timeout_s} seconds and longer; look at its pod."
    return _failing(PreparationReason.VALIDATOR_TIMED_OUT, text)


def _gfd(context: NodeContext, verdict: ValidatorVerdict | None) -> NodeCheck:
    is_enabled = context.settings.gfd_enabled
    if verdict is ValidatorVerdict.VALIDATION_FAILED:
        return _pending(PreparationReason.VALIDATION_FAILED)
    if verdict is not ValidatorVerdict.FINE:
        return _pending(PreparationReason.WAITING_FOR_DRIVER)
    if is_enabled and context.is_failing(Component.GFD):
        return _failing(PreparationReason.GFD_FAILING, "GPU feature discovery fails; look at its pod.")
    if is_enabled and not context.is_ready(Component.GFD):
        return _starting(
            "GPU feature discovery",
            is_overdue(context.row.gfd_overdue_since, context.gfd_unready_since()),
            context,
            PreparationReason.GFD_PENDING,
            PreparationReason.GFD_TIMED_OUT,
        )
    if not context.row.complete:
        return _pending(PreparationReason.INVENTORY_INCOMPLETE)
    return fine(PreparationReason.GFD_SYNCED if is_enabled else PreparationReason.COMPONENT_DISABLED)


_FAILING = {Component.DCGM: PreparationReason.DCGM_FAILING, Component.DCGM_EXPORTER: PreparationReason.EXPORTER_FAILING}
_PENDING = {Component.DCGM: PreparationReason.DCGM_PENDING, Component.DCGM_EXPORTER: PreparationReason.EXPORTER_PENDING}

_TIMED_OUT = {
    Component.DCGM: PreparationReason.DCGM_TIMED_OUT,
    Component.DCGM_EXPORTER: PreparationReason.EXPORTER_TIMED_OUT,
}


def _starting(
    name: str, is_late: bool, context: NodeContext, pending: PreparationReason, timed_out: PreparationReason
) -> NodeCheck:
    """A part that is not ready: it may still start, unless it has taken too long."""
    if not is_late:
        return _pending(pending)
    text = f"{name} has no pod on the node that got ready within {context.settings.validation_timeout_s} seconds"
    return _failing(timed_out, f"{text}; look at its pod.")


def _monitoring(context: NodeContext) -> NodeCheck:
    runs_dcgm = [Component.DCGM] if context.settings.dcgm_enabled else []
    for component in filter(context.is_failing, dict.fromkeys((*runs_dcgm, *context.monitors))):
        return _failing(_FAILING[component], f"The pod of {component} fails; look at it.")
    for component in context.monitors:
        if not context.is_ready(component):
            is_late = is_overdue(context.row.dcgm_overdue_since, context.monitors_unready_since())
            return _starting(component, is_late, context, _PENDING[component], _TIMED_OUT[component])
    return _heartbeat(context) if context.expects_heartbeats else fine(PreparationReason.COMPONENT_DISABLED)


def _heartbeat(context: NodeContext) -> NodeCheck:
    if context.is_agent_lost:
        text = "The node-agent, which looks at the heartbeat, is not ready; look at its pod."
        return _pending(PreparationReason.NODE_AGENT_NOT_READY, text)
    if not context.unbroken_heartbeats:
        never = context.row.stale_at is None
        reason = PreparationReason.HEARTBEAT_MISSING if never else PreparationReason.HEARTBEAT_STALE
        return _pending(reason, "The node's agent sees no heartbeat of the exporter.")
    lost_at = context.monitoring_lost_at
    counted = sum(lost_at is None or heartbeat > lost_at for heartbeat in context.unbroken_heartbeats)
    is_enough = counted >= context.settings.heartbeats
    if is_enough or is_overdue(context.row.exporter_overdue_since, context.silence_since()):
        return fine(PreparationReason.HEARTBEAT_STABLE)
    return _pending(PreparationReason.HEARTBEAT_UNSTABLE, "The heartbeat has not been there for long enough.")


def was_fine(context: NodeContext) -> bool:
    """Whether every part worked at some time since the preparation began; what does not work now was lost since."""
    needed = [
        *([Component.VALIDATOR] if context.settings.validator_enabled else []),
        *([Component.GFD] if context.settings.gfd_enabled else []),
        *context.monitors,
    ]
    return all(map(context.was_ready, needed)) and _was_complete(context) and _had_heartbeats(context)


def _was_complete(context: NodeContext) -> bool:
    changed_at = context.row.complete_at
    return context.row.complete or (changed_at is not None and changed_at > context.begun_at)


def _had_heartbeats(context: NodeContext) -> bool:
    """Whether there were enough heartbeats after the last loss before the preparation began."""
    if not context.expects_heartbeats:
        return True
    losses = (context.row.stale_at, context.monitoring_lost_at)
    lost_at = latest(time for time in losses if time is not None and time <= context.begun_at)
    return (
        sum(lost_at is None or heartbeat > lost_at for heartbeat in context.heartbeats) >= context.settings.heartbeats
    )

"""What the components show of a node: whether driver and toolkit are there, and GFD and monitoring work. Pure."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from gpuledger.api.phases import DRIVER_STEP, Component, ValidatorVerdict
from gpuledger.api.reasons import PreparationReason
from gpuledger.deciders.bootstrap.node_facts import NodeView, is_over, latest
from gpuledger.domain.bootstrap.observations import failed_at_step, stuck_at_step


class Standing(Enum):
    """Whether something is as it should be, may still get there, or will not by itself."""

    FINE = "fine"
    PENDING = "pending"
    FAILING = "failing"


class Check(NamedTuple):
    """How one part of the infrastructure stands, and why."""

    standing: Standing
    reason: PreparationReason
    message: str = ""


class Checks(NamedTuple):
    """All that is checked of a node, in the order of its preparation; `verdict` None: not known yet."""

    verdict: ValidatorVerdict | None
    validator: Check
    gfd: Check
    monitoring: Check


def checks_of(view: NodeView) -> Checks:
    """How the node's infrastructure stands."""
    verdict, validator = _with_agent(view, *_validator(view))
    return Checks(verdict, validator, _gfd(view, verdict), _monitoring(view))


def _validator(view: NodeView) -> tuple[ValidatorVerdict | None, Check]:
    if not view.settings.validator_enabled:
        return ValidatorVerdict.FINE, Check(Standing.FINE, PreparationReason.COMPONENT_DISABLED)
    row = view.components.get(Component.VALIDATOR)
    if row is not None and (row.ready or row.failing):
        return _told(ValidatorVerdict.FINE if row.ready else failed_at_step(row.step))
    last, step = _last_verdict(view), None if row is None else row.step
    if is_over(view.row.validator_waited, view.validator_since()) and last is not stuck_at_step(step):
        return _timed_out(view, step)
    return _told(last)


def _with_agent(
    view: NodeView, verdict: ValidatorVerdict | None, check: Check
) -> tuple[ValidatorVerdict | None, Check]:
    """What the agent says of the driver counts where the validator does not say the same; it has no other say."""
    if not view.row.driver_missing or verdict is ValidatorVerdict.DRIVER_MISSING:
        return verdict, check
    text = "No driver answers the node's agent; install or repair the driver on the node."
    return ValidatorVerdict.DRIVER_MISSING, Check(Standing.FAILING, PreparationReason.DRIVER_NOT_ANSWERING, text)


def _last_verdict(view: NodeView) -> ValidatorVerdict | None:
    """What the validator last said, unless the preparation began anew since then."""
    verdict, at = view.row.verdict, view.row.verdict_at
    if verdict is None or at is None:
        return None
    row = view.components.get(Component.VALIDATOR)
    held_when_begun = row is not None and row.since > view.begun_at
    return ValidatorVerdict(verdict) if at >= view.begun_at or held_when_begun else None


def _told(verdict: ValidatorVerdict | None) -> tuple[ValidatorVerdict | None, Check]:
    return verdict, _TOLD[verdict]


_TOLD = {
    None: Check(Standing.PENDING, PreparationReason.VALIDATOR_PENDING, "The validator has not said anything yet."),
    ValidatorVerdict.FINE: Check(Standing.FINE, PreparationReason.VALIDATOR_READY),
    ValidatorVerdict.DRIVER_MISSING: Check(
        Standing.FAILING,
        PreparationReason.DRIVER_VALIDATION_FAILED,
        f"The validator fails at {DRIVER_STEP}; install or repair the driver on the node.",
    ),
    ValidatorVerdict.TOOLKIT_MISSING: Check(
        Standing.FAILING,
        PreparationReason.TOOLKIT_VALIDATION_FAILED,
        f"The validator fails after {DRIVER_STEP}; install or repair the container toolkit on the node.",
    ),
}


def _timed_out(view: NodeView, step: str | None) -> tuple[ValidatorVerdict | None, Check]:
    where = "has no pod on the node, or one that does not start" if step is None else f"does not get past {step}"
    text = f"The validator {where}, for {view.settings.validation_timeout_s} seconds and longer; look at its pod."
    return stuck_at_step(step), Check(Standing.FAILING, PreparationReason.VALIDATOR_TIMED_OUT, text)


def _gfd(view: NodeView, verdict: ValidatorVerdict | None) -> Check:
    if verdict is not ValidatorVerdict.FINE:
        return Check(Standing.PENDING, PreparationReason.WAITING_FOR_DRIVER)
    if view.settings.gfd_enabled:
        if view.is_failing(Component.GFD):
            return Check(
                Standing.FAILING, PreparationReason.GFD_FAILING, "GPU feature discovery fails; look at its pod."
            )
        if not view.is_ready(Component.GFD):
            return Check(Standing.PENDING, PreparationReason.GFD_PENDING)
    if not view.row.complete:
        return Check(Standing.PENDING, PreparationReason.INVENTORY_INCOMPLETE)
    return Check(
        Standing.FINE,
        PreparationReason.GFD_SYNCED if view.settings.gfd_enabled else PreparationReason.COMPONENT_DISABLED,
    )


_FAILING = {Component.DCGM: PreparationReason.DCGM_FAILING, Component.DCGM_EXPORTER: PreparationReason.EXPORTER_FAILING}
_PENDING = {Component.DCGM: PreparationReason.DCGM_PENDING, Component.DCGM_EXPORTER: PreparationReason.EXPORTER_PENDING}


def _monitoring(view: NodeView) -> Check:
    for component in filter(view.is_failing, view.monitors):
        return Check(Standing.FAILING, _FAILING[component], f"The pod of {component} fails; look at it.")
    for component in view.monitors:
        if not view.is_ready(component):
            return Check(Standing.PENDING, _PENDING[component])
    return _heartbeat(view) if view.tells_heartbeats else Check(Standing.FINE, PreparationReason.COMPONENT_DISABLED)


def _heartbeat(view: NodeView) -> Check:
    if view.is_agent_lost:
        text = "The node-agent, which looks at the heartbeat, is not ready; look at its pod."
        return Check(Standing.PENDING, PreparationReason.NODE_AGENT_NOT_READY, text)
    if not view.beats:
        text = "The node's agent sees no heartbeat of the exporter."
        reason = PreparationReason.HEARTBEAT_MISSING if view.row.stale_at is None else PreparationReason.HEARTBEAT_STALE
        return Check(Standing.PENDING, reason, text)
    lost_at = view.monitoring_lost_at
    counted = sum(lost_at is None or beat > lost_at for beat in view.beats)
    if counted >= view.settings.heartbeats or is_over(view.row.exporter_waited, view.silence_since()):
        return Check(Standing.FINE, PreparationReason.HEARTBEAT_STABLE)
    return Check(
        Standing.PENDING, PreparationReason.HEARTBEAT_UNSTABLE, "The heartbeat has not been there for long enough."
    )


def was_fine(view: NodeView) -> bool:
    """Whether every part was as it should be at some time since the preparation began.

    What is not so now was lost then, and does not just start.
    """
    needed: dict[Component, bool] = {
        Component.VALIDATOR: view.settings.validator_enabled,
        Component.GFD: view.settings.gfd_enabled,
        **dict.fromkeys(view.monitors, True),
    }
    parts: tuple[Callable[[NodeView], bool], ...] = (_was_complete, _was_beating)
    return all(view.was_ready(name) for name, wanted in needed.items() if wanted) and all(one(view) for one in parts)


def _was_complete(view: NodeView) -> bool:
    changed_at = view.row.complete_at
    return view.row.complete or (changed_at is not None and changed_at > view.begun_at)


def _was_beating(view: NodeView) -> bool:
    """Whether there were heartbeats enough after what was lost before the preparation began."""
    if not view.tells_heartbeats:
        return True
    losses = (view.row.stale_at, view.monitoring_lost_at)
    lost_at = latest(time for time in losses if time is not None and time <= view.begun_at)
    return sum(lost_at is None or look > lost_at for look in view.looks) >= view.settings.heartbeats

"""Decides the phase of each node with GPUs, the conditions of its preparation, and the states of its devices. Pure.

The decider derives the desired state of a node from the facts in force, compares it with the last decisions, and
decides only the difference, passing through the phases and states in between. It decides nothing while the module is
disabled or its prerequisites are not met.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuledger.api.phases import DeviceState, PreparationPhase
from gpuledger.deciders.bootstrap.checks import CheckResult, Checks, checks_of, was_fine
from gpuledger.deciders.bootstrap.conditions import conditions_of
from gpuledger.deciders.bootstrap.device_states import VALIDATING, TargetState, prepared, states_to, target_of
from gpuledger.deciders.bootstrap.node_context import NodeContext, context_of
from gpuledger.deciders.bootstrap.timeouts import track_timeouts
from gpuledger.domain.bootstrap.facts import BootstrapFacts
from gpuledger.domain.bootstrap.folds import record_timeout
from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceStateChanged
from gpuledger.events.node import Condition, NodeBootstrapChanged, NodeBootstrapWaited, NodeBootstrapWithdrawn
from gpuledger.projection.definition import Causation, Decision


class _Plan(NamedTuple):
    """A node with its checks, and the current and the desired state of each of its devices."""

    context: NodeContext
    checks: Checks
    states: dict[str, TargetState]
    desired: dict[str, TargetState]


def on_fact(state: BootstrapFacts, fact: Fact) -> Iterator[Decision]:
    """The decisions that follow from a fact that was just folded. The caller folds each before it takes the next."""
    nodes = state.take_touched()
    if is_in_force(state):
        for node in nodes:
            yield from _on_node(state, fact, node)


def on_timeout(state: BootstrapFacts, fact: Fact, data: NodeBootstrapWaited) -> Iterator[Decision]:
    """The decisions that follow from a recorded timeout, at its place in the log."""
    record_timeout(state, fact, data)
    if is_in_force(state):
        yield from _on_node(state, fact, fact.event.subject)


def is_in_force(state: BootstrapFacts) -> bool:
    """Whether the service decides anything: the module is enabled and its prerequisites are met."""
    settings = state.settings_in_force()
    return settings.enabled and settings.met


def _on_node(state: BootstrapFacts, fact: Fact, node: str) -> Iterator[Decision]:
    row, current = state.node.get(node), state.phase.get(node)
    causation = Causation(fact, None if row is None else row.decided_at)
    if row is None or not row.in_inventory:
        if current is not None:
            yield causation.decision(node, NodeBootstrapWithdrawn())
        return
    context = context_of(state, row)
    track_timeouts(state, context)
    checks = checks_of(context)
    phase = phase_of(context, checks)
    plan = _planned(state, context, checks, phase)
    has_new = any(target.state == DeviceState.DISCOVERED for target in plan.states.values())
    for step in phases_to(phase, None if current is None else PreparationPhase(current.phase), has_new_device=has_new):
        plan = plan._replace(states={name: prepared(state.state.get(name)) for name in plan.states})
        yield from _enter(state, causation, plan, step, is_last=step is phase)


def _planned(state: BootstrapFacts, context: NodeContext, checks: Checks, phase: PreparationPhase) -> _Plan:
    states = {device.name: prepared(state.state.get(device.name)) for device in context.devices}
    desired = {device.name: target_of(context, phase, device, states[device.name]) for device in context.devices}
    return _Plan(context, checks, states, desired)


def _enter(
    state: BootstrapFacts, causation: Causation, plan: _Plan, phase: PreparationPhase, *, is_last: bool
) -> Iterator[Decision]:
    """Move the node into a phase, and its devices into their states there."""
    desired = plan.desired if is_last else {name: _on_the_way(plan, name) for name in plan.desired}
    conditions = conditions_of(plan.context, plan.checks, [target.state for target in desired.values()])
    node = plan.context.row.node
    if _differs(state, node, phase, conditions):
        yield causation.decision(node, NodeBootstrapChanged(phase=phase.value, conditions=conditions))
    for name, target in desired.items():
        for step in states_to(plan.states[name], target):
            data = DeviceStateChanged.model_validate(step._asdict())
            yield causation.decision(name, data)


def _on_the_way(plan: _Plan, name: str) -> TargetState:
    """The state of a device while its node is only passing through Validating."""
    current, desired = plan.states[name], plan.desired[name]
    begins = current.state in (DeviceState.DISCOVERED, DeviceState.FAULTED) and desired.state in (
        DeviceState.VALIDATING,
        DeviceState.READY,
    )
    return VALIDATING if begins else current


def _differs(state: BootstrapFacts, node: str, phase: PreparationPhase, conditions: Iterable[Condition]) -> bool:
    current = state.phase.get(node)
    if current is None or current.phase != phase:
        return True
    rows = {row.type: (row.status, row.reason, row.message) for row in state.preparation.where("node", node)}
    return rows != {one.type: (one.status, one.reason, one.message) for one in conditions}


def phase_of(context: NodeContext, checks: Checks) -> PreparationPhase:
    """The phase of the first part that does not work; a part that fails, or worked before, fails the node."""
    if not context.row.managed:
        return PreparationPhase.DISABLED
    parts = (
        (checks.validator, PreparationPhase.VALIDATING),
        (checks.gfd, PreparationPhase.GFD),
        (checks.monitoring, PreparationPhase.MONITORING),
    )
    for check, phase in parts:
        if check.result is not CheckResult.FINE:
            is_failed = check.result is CheckResult.FAILING or was_fine(context)
            return PreparationPhase.VALIDATING_FAILED if is_failed else phase
    return PreparationPhase.READY


def phases_to(
    desired: PreparationPhase, current: PreparationPhase | None, *, has_new_device: bool
) -> list[PreparationPhase]:
    """The phases to pass through, the desired one last.

    A preparation begins with Validating: the first one, one after a failure, and one for a new device.
    """
    if current is PreparationPhase.READY:
        begins = desired is not PreparationPhase.VALIDATING_FAILED and (
            has_new_device or desired is not PreparationPhase.READY
        )
    else:
        begins = desired is not current and current in (
            None,
            PreparationPhase.DISABLED,
            PreparationPhase.VALIDATING_FAILED,
        )
    has_pod = desired in (PreparationPhase.VALIDATING, PreparationPhase.DISABLED)
    return [PreparationPhase.VALIDATING, desired] if begins and not has_pod else [desired]

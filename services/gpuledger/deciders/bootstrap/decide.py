"""What the `bootstrap` service decides: the phase of each node with GPUs, its conditions, and its devices' states.

Pure. What a node should have follows from the facts in force; it is compared with what was decided before, and only the
difference is decided, by the way that leads there. Nothing is decided while the module is disabled or its
prerequisites are not met.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuledger.api.phases import DeviceState, PreparationPhase
from gpuledger.deciders.bootstrap.checks import Checks, checks_of
from gpuledger.deciders.bootstrap.conditions import conditions_of
from gpuledger.deciders.bootstrap.device_states import VALIDATING, Target, prepared, states_between, target_of
from gpuledger.deciders.bootstrap.node_facts import NodeView, view_of
from gpuledger.deciders.bootstrap.phases import phase_of, way_to
from gpuledger.deciders.bootstrap.timeouts import note_waits
from gpuledger.domain.bootstrap.facts import BootstrapFacts
from gpuledger.domain.bootstrap.folds import waited
from gpuledger.domain.fact import Fact
from gpuledger.events.device import DeviceStateChanged
from gpuledger.events.node import Condition, NodeBootstrapChanged, NodeBootstrapWaited, NodeBootstrapWithdrawn
from gpuledger.projection.definition import Causation, Decision


class _Plan(NamedTuple):
    """A node as it is, and as it should be: how each of its devices stands, and where it should come to."""

    view: NodeView
    checks: Checks
    states: dict[str, Target]
    wanted: dict[str, Target]


def on_fact(state: BootstrapFacts, fact: Fact) -> Iterator[Decision]:
    """What follows from a fact that was just folded. Each decision is folded before the next one is asked for."""
    nodes = state.take_touched()
    if is_in_force(state):
        for node in nodes:
            yield from _on_node(state, fact, node)


def on_waited(state: BootstrapFacts, fact: Fact, data: NodeBootstrapWaited) -> Iterator[Decision]:
    """What follows from a wait that was recorded as over, as soon as the log has it."""
    waited(state, fact, data)
    if is_in_force(state):
        yield from _on_node(state, fact, fact.event.subject)


def is_in_force(state: BootstrapFacts) -> bool:
    """Whether anything is to be decided at all."""
    settings = state.settings_in_force()
    return settings.enabled and settings.met


def _on_node(state: BootstrapFacts, fact: Fact, node: str) -> Iterator[Decision]:
    row, known = state.node.get(node), state.phase.get(node)
    causation = Causation(fact, None if row is None else row.decided_at)
    if row is None or not row.is_known:
        if known is not None:
            yield causation.decision(node, NodeBootstrapWithdrawn())
        return
    view = view_of(state, row)
    note_waits(state, view)
    checks = checks_of(view)
    phase = phase_of(view, checks)
    plan = _planned(state, view, checks, phase)
    has_new = any(target.state == DeviceState.DISCOVERED for target in plan.states.values())
    for step in way_to(phase, None if known is None else PreparationPhase(known.phase), has_new_device=has_new):
        plan = plan._replace(states={name: prepared(state.state.get(name)) for name in plan.states})
        yield from _enter(state, causation, plan, step, is_last=step is phase)


def _planned(state: BootstrapFacts, view: NodeView, checks: Checks, phase: PreparationPhase) -> _Plan:
    states = {device.name: prepared(state.state.get(device.name)) for device in view.devices}
    wanted = {device.name: target_of(view, phase, device, states[device.name]) for device in view.devices}
    return _Plan(view, checks, states, wanted)


def _enter(
    state: BootstrapFacts, causation: Causation, plan: _Plan, phase: PreparationPhase, *, is_last: bool
) -> Iterator[Decision]:
    """Let the node come into a phase, and its devices into their states there."""
    wanted = plan.wanted if is_last else {name: _on_the_way(plan, name) for name in plan.wanted}
    conditions = conditions_of(plan.view, plan.checks, [target.state for target in wanted.values()])
    node = plan.view.row.node
    if _differs(state, node, phase, conditions):
        yield causation.decision(node, NodeBootstrapChanged(phase=phase.value, conditions=conditions))
    for name, target in wanted.items():
        for step in states_between(plan.states[name], target):
            data = DeviceStateChanged.model_validate(step._asdict())
            yield causation.decision(name, data)


def _on_the_way(plan: _Plan, name: str) -> Target:
    """While a node goes through Validating, so do its devices that will be validated, and are not."""
    known, wanted = plan.states[name], plan.wanted[name]
    begins = known.state in (DeviceState.DISCOVERED, DeviceState.FAULTED) and wanted.state in (
        DeviceState.VALIDATING,
        DeviceState.READY,
    )
    return VALIDATING if begins else known


def _differs(state: BootstrapFacts, node: str, phase: PreparationPhase, conditions: Iterable[Condition]) -> bool:
    known = state.phase.get(node)
    if known is None or known.phase != phase:
        return True
    rows = {row.type: (row.status, row.reason, row.message) for row in state.preparation.where("node", node)}
    return rows != {one.type: (one.status, one.reason, one.message) for one in conditions}

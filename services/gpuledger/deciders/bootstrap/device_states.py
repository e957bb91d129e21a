"""Decides which state a GPUDevice should have, and through which states it gets there. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gpuledger.api.phases import DeviceState, PreparationPhase
from gpuledger.api.reasons import PreparationReason
from gpuledger.deciders.bootstrap.node_context import NodeContext, latest
from gpuledger.domain.bootstrap.facts import BootstrapDevice, BootstrapHealth
from gpuledger.domain.bootstrap.state import PreparedDevice
from gpuledger.domain.inventory.device_names import place_of
from gpuledger.events.payload import truncated

HELD = frozenset({"Assigned", "Unassigning"})
"""Phases of an assignment in which a pool has the device, and workloads may use it."""


class TargetState(NamedTuple):
    """A state of a device and the reason for it."""

    state: str
    reason: str
    message: str = ""


VALIDATING = TargetState(DeviceState.VALIDATING.value, PreparationReason.NODE_VALIDATING.value)
READY = TargetState(DeviceState.READY.value, PreparationReason.VALIDATED.value)
_DISABLED = TargetState(DeviceState.DISCOVERED.value, PreparationReason.MANAGED_DISABLED.value)
_DEGRADED = TargetState(
    DeviceState.FAULTED.value,
    PreparationReason.INFRASTRUCTURE_DEGRADED.value,
    "The node's conditions say what is missing.",
)
_NOT_OBSERVED = TargetState(
    DeviceState.FAULTED.value, PreparationReason.NOT_OBSERVED.value, "The node's agent does not see the card."
)
_RECOVERING = TargetState(
    DeviceState.FAULTED.value, PreparationReason.RECOVERING.value, "The card is fit again, and is watched for a while."
)
_NEW = TargetState(DeviceState.DISCOVERED.value, "")


def is_held(device: BootstrapDevice) -> bool:
    """Whether a pool has the device."""
    return device.assignment in HELD


def is_usable(device: BootstrapDevice, state: str) -> bool:
    """Whether a pool may take, or has taken, the device in this state."""
    return state == DeviceState.READY and not device.missing and not device.ignored


def prepared(current: PreparedDevice | None) -> TargetState:
    """The current state of a device; without a row it is Discovered."""
    return _NEW if current is None else TargetState(current.state, current.reason, current.message)


def target_of(
    context: NodeContext, phase: PreparationPhase, device: BootstrapDevice, current: TargetState
) -> TargetState:
    """The state that a device should have when its node is in a phase."""
    if phase is PreparationPhase.DISABLED and not is_held(device):
        return _DISABLED
    fault = _fault(context, device)
    if fault is not None:
        return fault
    if is_held(device) and (
        phase is PreparationPhase.DISABLED or current.state in (DeviceState.READY, DeviceState.FAULTED)
    ):
        return current  # It keeps its state until the pool releases it.
    if phase is PreparationPhase.VALIDATING_FAILED:
        return _DEGRADED
    return READY if phase is PreparationPhase.READY else VALIDATING


def states_to(current: TargetState, desired: TargetState) -> list[TargetState]:
    """The states to pass through, the desired one last: a device becomes Ready or Faulted only after Validating."""
    if current == desired:
        return []
    begins = current.state in (DeviceState.DISCOVERED, DeviceState.FAULTED) and desired.state in (
        DeviceState.READY,
        DeviceState.FAULTED,
    )
    return [VALIDATING, desired] if begins and current.state != desired.state else [desired]


def _fault(context: NodeContext, device: BootstrapDevice) -> TargetState | None:
    """The fault of the card itself, if any; after a recovery it stays for a number of heartbeats."""
    if device.missing and not device.provisional:
        return _NOT_OBSERVED
    health = _health(context.health, device)
    if health is not None and not health.healthy:
        text = ": ".join(part for part in (health.kind, health.message) if part)
        return TargetState(DeviceState.FAULTED.value, PreparationReason.HARDWARE_FAULT.value, truncated(text))
    recovered_at = latest([_recovered_at(health), None if device.provisional else device.found_at])
    if recovered_at is None or not context.expects_heartbeats:
        return None
    unbroken_heartbeats = sum(heartbeat > recovered_at for heartbeat in context.heartbeats)
    return _RECOVERING if unbroken_heartbeats < context.settings.recovery_heartbeats else None


def _recovered_at(health: BootstrapHealth | None) -> datetime | None:
    return health.since if health is not None and health.contrary_at is not None else None


def _health(rows: Iterable[BootstrapHealth], device: BootstrapDevice) -> BootstrapHealth | None:
    """The agent's last report on the card, by its id or by its place.

    Of two at one time that by its id: the other is about a card in its place that the agent did not recognise then.
    """
    ids = {device.card}
    if device.pci_address is not None:
        ids.add(place_of(device.node, device.pci_address))
    own = [row for row in rows if row.card in ids]
    return max(own, key=lambda row: (row.reported_at, row.card == device.card), default=None)

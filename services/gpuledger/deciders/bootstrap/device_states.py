"""The state that a GPUDevice should have, and by which states it gets there. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from gpuledger.api.phases import DeviceState, PreparationPhase
from gpuledger.api.reasons import PreparationReason
from gpuledger.deciders.bootstrap.node_facts import NodeView, latest
from gpuledger.domain.bootstrap.facts import BootstrapDevice, BootstrapHealth
from gpuledger.domain.bootstrap.state import PreparedDevice
from gpuledger.domain.inventory.device_names import place_of

HELD = frozenset({"Assigned", "Unassigning"})
"""Phases of an assignment in which a pool has the device, and workloads may use it."""


class Target(NamedTuple):
    """A state, and why."""

    state: str
    reason: str
    message: str = ""


VALIDATING = Target(DeviceState.VALIDATING.value, PreparationReason.NODE_VALIDATING.value)
READY = Target(DeviceState.READY.value, PreparationReason.VALIDATED.value)
_DISABLED = Target(DeviceState.DISCOVERED.value, PreparationReason.MANAGED_DISABLED.value)
_DEGRADED = Target(
    DeviceState.FAULTED.value,
    PreparationReason.INFRASTRUCTURE_DEGRADED.value,
    "The node's conditions say what is missing.",
)
_NOT_OBSERVED = Target(
    DeviceState.FAULTED.value, PreparationReason.NOT_OBSERVED.value, "The node's agent does not see the card."
)
_RECOVERING = Target(
    DeviceState.FAULTED.value, PreparationReason.RECOVERING.value, "The card is fit again, and is watched for a while."
)
_NEW = Target(DeviceState.DISCOVERED.value, "")


def is_held(device: BootstrapDevice) -> bool:
    """Whether a pool has the device."""
    return device.assignment in HELD


def prepared(known: PreparedDevice | None) -> Target:
    """The state that a device has; without a row it is Discovered."""
    return _NEW if known is None else Target(known.state, known.reason, known.message)


def target_of(view: NodeView, phase: PreparationPhase, device: BootstrapDevice, known: Target) -> Target:
    """The state that a device should have when its node is in a phase."""
    if phase is PreparationPhase.DISABLED and not is_held(device):
        return _DISABLED
    fault = _fault(view, device)
    if fault is not None:
        return fault
    if is_held(device) and (
        phase is PreparationPhase.DISABLED or known.state in (DeviceState.READY, DeviceState.FAULTED)
    ):
        return known  # What a pool has stays as it is until it is given back, or is Pending again after a fault.
    if phase is PreparationPhase.VALIDATING_FAILED:
        return _DEGRADED
    return READY if phase is PreparationPhase.READY else VALIDATING


def states_between(known: Target, wanted: Target) -> list[Target]:
    """The states to go through, the wanted one last: none becomes Ready or Faulted without being validated."""
    if known == wanted:
        return []
    begins = known.state in (DeviceState.DISCOVERED, DeviceState.FAULTED) and wanted.state in (
        DeviceState.READY,
        DeviceState.FAULTED,
    )
    return [VALIDATING, wanted] if begins and known.state != wanted.state else [wanted]


def _fault(view: NodeView, device: BootstrapDevice) -> Target | None:
    """What is wrong with the card itself; after it, the card is watched for so many heartbeats."""
    if device.missing and not device.provisional:
        return _NOT_OBSERVED
    health = _health(view.health, device)
    if health is not None and not health.healthy:
        text = ": ".join(part for part in (health.kind, health.message) if part)
        return Target(DeviceState.FAULTED.value, PreparationReason.HARDWARE_FAULT.value, text)
    recovered_at = latest([_recovered_at(health), None if device.provisional else device.found_at])
    if recovered_at is None or not view.tells_heartbeats:
        return None
    beats = sum(look > recovered_at for look in view.looks)
    return _RECOVERING if beats < view.settings.recovery_heartbeats else None


def _recovered_at(health: BootstrapHealth | None) -> datetime | None:
    return health.since if health is not None and health.other_at is not None else None


def _health(rows: Iterable[BootstrapHealth], device: BootstrapDevice) -> BootstrapHealth | None:
    """What the agent last told of the card, by its id or by its place."""
    ids = {device.card}
    if device.pci_address is not None:
        ids.add(place_of(device.node, device.pci_address))
    own = [row for row in rows if row.card in ids]
    return max(own, key=lambda row: (row.told_at, row.card), default=None)

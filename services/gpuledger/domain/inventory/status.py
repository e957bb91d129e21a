"""Renders the statuses and labels of GPUDevices and GPUNodeStates from rows of inventory, bootstrap and assignments.

A condition's lastTransitionTime comes from its row, so that equal rows always give equal statuses. Every condition has
a message, if only the sentence for its reason. Its observedGeneration is added by whoever knows the object: a GPUDevice
or a GPUNodeState has no desired state of its own, so no row says which generation was observed.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from gpuledger.api.condition_messages import message_of
from gpuledger.api.conditions import PREREQUISITE_NOT_MET, ConditionStatus, DeviceConditionType, rfc3339
from gpuledger.api.labels import LABEL_PRECISION_PREFIX, LABEL_PRODUCT, LABEL_TRUE, LABEL_VENDOR, VENDOR_NVIDIA
from gpuledger.api.phases import AssignmentPhase, DeviceState
from gpuledger.api.pool_ref import PoolRef
from gpuledger.api.reasons import AssignmentReason, InventoryReason
from gpuledger.domain.bootstrap.state import PreparedDevice
from gpuledger.domain.inventory.state import GpuDevice, GpuModule, GpuNode, GpuNodeCondition
from gpuledger.domain.pools.pools import Assignment

LABEL_VALUE_MAX = 63
VENDOR_NAMES = {VENDOR_NVIDIA: "nvidia", "1002": "amd", "8086": "intel"}
_BRANDS = frozenset({"nvidia", "tesla", "geforce", "quadro"})

Document = dict[str, Any]

NO_INSTANCES: Final[Mapping[str, int]] = {}


def device_status(
    row: GpuDevice,
    prepared: PreparedDevice | None = None,
    assignment: Assignment | None = None,
    instances: Mapping[str, int] = NO_INSTANCES,
) -> Document:
    """The status of a GPUDevice; `prepared` is how far its preparation is, `assignment` which pool it belongs to.

    `instances` are how many MIG instances of each profile its card has now.
    """
    assigned = assignment if assignment is not None and assignment.phase is not None else None
    conditions = [*device_conditions(row), *_faulted(prepared), *_assignment_conditions(assignment)]
    status = {
        "nodeName": row.node,
        **({"inventoryID": row.inventory_id} if row.inventory_id else {}),
        "managed": row.managed,
        "state": device_state(row, prepared, assigned),
        "hardware": hardware(row, instances),
        "conditions": conditions,
    }
    if assigned is not None and assigned.pool is not None:
        status |= {"poolRef": PoolRef.parse(assigned.pool).reference, "autoAttach": assigned.automatic}
    return status


def device_state(row: GpuDevice, prepared: PreparedDevice | None, assignment: Assignment | None) -> str:
    """The state in a GPUDevice's status."""
    return held_state(row.state if prepared is None else prepared.state, assignment)


def held_state(prepared: str, held: Assignment | None) -> str:
    """The shown state of a device from its preparation and its assignment, if any."""
    return shown_state(prepared, None, False) if held is None else shown_state(prepared, held.phase, held.was_assigned)


def shown_state(prepared: str, phase: str | None, was_assigned: bool) -> str:
    """The shown state: from the prepared state, the assignment's phase, and whether the device was Assigned before.

    Only its agent's report makes a device Assigned; one that leaves its pool keeps the state it showed before.
    """
    if prepared != DeviceState.READY:
        return prepared
    if phase is None:
        return DeviceState.READY.value
    is_assigned = phase == AssignmentPhase.ASSIGNED or was_assigned
    return DeviceState.ASSIGNED.value if is_assigned else DeviceState.PENDING_ASSIGNMENT.value


def device_labels(row: GpuDevice) -> dict[str, str]:
    """The labels that gpuledger sets on a GPUDevice."""
    labels = {}
    if row.product is not None and (product := product_label(row.product)):
        labels[LABEL_PRODUCT] = product
    if row.pci_vendor is not None:
        labels[LABEL_VENDOR] = VENDOR_NAMES.get(row.pci_vendor, row.pci_vendor)
    for precision in _listed(row.precision) or ():
        if (name := _label_text(f"{precision}")) == precision:
            labels[f"{LABEL_PRECISION_PREFIX}{name}"] = LABEL_TRUE
    return labels


def product_label(product: str) -> str:
    """A product's short name: `NVIDIA A100-PCIE-40GB` is `a100`, `NVIDIA GeForce RTX 4090` is `rtx-4090`."""
    words = [word for word in re.split(r"[^a-z0-9.]+", product.lower()) if word and word not in _BRANDS]
    model = next((count for count, word in enumerate(words, 1) if any(map(str.isdigit, word))), len(words))
    return _label_text("-".join(words[:model]))


def hardware(row: GpuDevice, instances: Mapping[str, int] = NO_INSTANCES) -> Document:
    """`status.hardware`: the known facts about the card; `mig.types` is left out while it has no MIG instances."""
    pci = {"vendor": row.pci_vendor, "device": row.pci_device, "class": row.pci_class, "address": row.pci_address}
    profiles, precisions = _listed(row.mig_profiles), _listed(row.precision)
    compute = {"major": row.compute_major, "minor": row.compute_minor}
    types = [{"name": profile, "count": count} for profile, count in sorted(instances.items())]
    mig = {
        "capable": row.mig_capable,
        "strategy": row.mig_strategy,
        "profilesSupported": profiles,
        "types": types or None,
    }
    return _without_none(
        {
            "uuid": row.uuid,
            "product": row.product,
            "pci": _without_none(pci) or None,
            "memoryMiB": row.memory_mib,
            "computeCapability": _without_none(compute) if row.compute_major is not None else None,
            "precision": {"supported": precisions} if precisions else None,
            "mig": _without_none(mig) or None,
        }
    )


def device_conditions(row: GpuDevice) -> list[Document]:
    """The conditions of a GPUDevice that come from the inventory."""
    managed_reason = InventoryReason.ENABLED if row.managed else InventoryReason.NODE_NOT_MANAGED
    ignored_reason = InventoryReason.IGNORED_BY_LABEL if row.ignored else InventoryReason.NOT_IGNORED
    missing_reason = InventoryReason.NOT_OBSERVED if row.missing else InventoryReason.OBSERVED
    return [
        _flag(DeviceConditionType.IGNORED, row.ignored, ignored_reason, row.ignored_at),
        _flag(DeviceConditionType.MANAGED_DISABLED, not row.managed, managed_reason, row.managed_at),
        _flag(DeviceConditionType.MISSING, row.missing, missing_reason, row.missing_at),
    ]


def _faulted(prepared: PreparedDevice | None) -> list[Document]:
    """The condition `Faulted` of a device that is not usable."""
    if prepared is None or prepared.state != DeviceState.FAULTED:
        return []
    return [
        condition(
            DeviceConditionType.FAULTED, ConditionStatus.TRUE, prepared.reason, prepared.changed_at, prepared.message
        )
    ]


def _assignment_conditions(assignment: Assignment | None) -> list[Document]:
    """Whether a pool's configuration is in force on the device, and whether it is being removed.

    A device without a pool has none of these, unless no pool may take it: its node's cards are for sharing.
    """
    is_left = assignment is not None and assignment.reason == AssignmentReason.LEFT_TO_SHARING
    if assignment is None or (assignment.phase is None and not is_left):
        return []
    status = ConditionStatus.TRUE if assignment.phase == AssignmentPhase.ASSIGNED else ConditionStatus.FALSE
    why = (assignment.reason, assignment.changed_at, assignment.message)
    configured = condition(DeviceConditionType.CONFIGURED, status, *why)
    is_leaving = assignment.phase == AssignmentPhase.UNASSIGNING
    return [
        configured,
        *([condition(DeviceConditionType.UNASSIGNING, ConditionStatus.TRUE, *why)] if is_leaving else ()),
    ]


def node_status(row: GpuNode, conditions: Iterable[GpuNodeCondition]) -> Document:
    """The status of a GPUNodeState."""
    kept = sorted(conditions, key=lambda condition: condition.type)
    return {
        "hw": {"present": row.present},
        "conditions": [condition(one.type, one.status, one.reason, one.changed_at, one.message) for one in kept],
    }


def module_condition(row: GpuModule) -> Document:
    """The module's condition `PrerequisiteNotMet`."""
    status = ConditionStatus.FALSE if row.met else ConditionStatus.TRUE
    return condition(PREREQUISITE_NOT_MET, status, row.reason, row.changed_at, row.message)


def _flag(kind: DeviceConditionType, holds: bool, reason: InventoryReason, changed_at: datetime) -> Document:
    return condition(kind, ConditionStatus.TRUE if holds else ConditionStatus.FALSE, reason, changed_at, "")


def condition(kind: str, status: str, reason: str, changed_at: datetime, message: str) -> Document:
    """A condition as Kubernetes objects have it, without the generation that it was observed at."""
    return {
        "type": str(kind),
        "status": str(status),
        "reason": str(reason),
        "message": message_of(reason, message),
        "lastTransitionTime": rfc3339(changed_at),
    }


def _without_none(facts: Document) -> Document:
    return {name: value for name, value in facts.items() if value is not None}


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [part for part in text.split(",") if part]


def _label_text(text: str) -> str:
    return re.sub(r"[^a-z0-9.-]", "-", text.lower())[:LABEL_VALUE_MAX].strip("-.")

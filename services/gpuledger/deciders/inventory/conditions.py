"""The conditions that the inventory keeps of a node and of the module. Pure; what they say follows from the facts."""

import orjson

from gpuledger.api.conditions import ConditionStatus, NodeConditionType
from gpuledger.api.kinds import NFD_VERSION_MIN
from gpuledger.api.reasons import InventoryReason
from gpuledger.deciders.inventory.managed import is_managed
from gpuledger.domain.inventory.facts import InventoryNode, NfdCount
from gpuledger.domain.inventory.labels import expected_devices, gpus_among, pci_devices, tells_of_gpus
from gpuledger.domain.inventory.merge import View
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import Condition

_WANTED = ".".join(map(str, NFD_VERSION_MIN))


def prerequisite(count: NfdCount) -> ModulePrerequisiteChanged | None:
    """Whether Node Feature Discovery is there and new enough on any node; None where there are no nodes to tell."""
    if count.new_enough:
        return ModulePrerequisiteChanged(met=True, reason=InventoryReason.PREREQUISITES_MET)
    if count.too_old:
        message = f"Node Feature Discovery is older than {_WANTED}; upgrade it to {_WANTED} or newer."
        return ModulePrerequisiteChanged(met=False, reason=InventoryReason.NFD_TOO_OLD, message=message)
    if count.nodes:
        message = f"Node Feature Discovery shows no node's features; enable it, version {_WANTED} or newer."
        return ModulePrerequisiteChanged(met=False, reason=InventoryReason.NFD_MISSING, message=message)
    return None


def node_conditions(row: InventoryNode, settings: ModuleSettings, view: View) -> tuple[Condition, ...]:
    """The node's conditions, ordered by type."""
    return (_inventory_complete(row, view), _managed_disabled(row, settings))


def _managed_disabled(row: InventoryNode, settings: ModuleSettings) -> Condition:
    managed, reason = is_managed(row, settings)
    status = ConditionStatus.FALSE if managed else ConditionStatus.TRUE
    return Condition(type=NodeConditionType.MANAGED_DISABLED, status=status.value, reason=reason)


def _inventory_complete(row: InventoryNode, view: View) -> Condition:
    labels = orjson.loads(row.labels)
    if not view.in_sight:
        if tells_of_gpus(labels) and not row.has_features:
            return _incomplete(
                InventoryReason.NODE_FEATURE_MISSING, "Labels tell of GPUs, but the node has no NodeFeature."
            )
        return _incomplete(InventoryReason.NO_DEVICES_DISCOVERED, "Nothing shows a GPU on this node now.")
    if view.unseen_by_agent:
        text = f"The node's agent does not see {view.unseen_by_agent} of the GPUs that Node Feature Discovery counts."
        return _incomplete(InventoryReason.ATTRIBUTES_MISSING, text)
    if row.agent_at is None and (lacking := _lacking(row, labels)):
        text = f"Of {lacking} PCI devices vendor, model or class is missing."
        return _incomplete(InventoryReason.ATTRIBUTES_MISSING, text)
    return Condition(
        type=NodeConditionType.INVENTORY_COMPLETE,
        status=ConditionStatus.TRUE.value,
        reason=InventoryReason.ALL_DEVICES_DESCRIBED,
    )


def _incomplete(reason: InventoryReason, message: str) -> Condition:
    return Condition(
        type=NodeConditionType.INVENTORY_COMPLETE, status=ConditionStatus.FALSE.value, reason=reason, message=message
    )


def _lacking(row: InventoryNode, labels: dict[str, str]) -> int:
    """How many PCI devices are counted or listed without saying what they are."""
    listed = pci_devices(labels)
    counted = expected_devices(labels)
    unlisted = 0 if counted is None else max(counted - len(listed), 0)
    return max(unlisted + gpus_among(listed).incomplete, row.incomplete)

"""Derives the conditions of a node's inventory and of the module from the facts. Pure."""

from typing import NamedTuple

import orjson

from gpuledger.api.conditions import ConditionStatus, NodeConditionType
from gpuledger.api.kinds import NFD_VERSION_MIN
from gpuledger.api.labels import LABEL_FALSE, LABEL_TRUE
from gpuledger.api.reasons import InventoryReason
from gpuledger.domain.inventory.facts import InventoryNode, NfdCount
from gpuledger.domain.inventory.labels import expected_devices, gpus_among, mention_gpus, pci_devices
from gpuledger.domain.inventory.merge import NodeDevices
from gpuledger.domain.inventory.state import ModuleSettings
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import Condition

_NFD_VERSION = ".".join(map(str, NFD_VERSION_MIN))


class Management(NamedTuple):
    """Whether a node is managed, and why."""

    managed: bool
    reason: InventoryReason


def is_managed(row: InventoryNode, settings: ModuleSettings) -> Management:
    """Whether the node is managed: by its label if that is `true` or `false`, else by default. The key is a setting."""
    label = orjson.loads(row.labels).get(settings.managed_label_key)
    if label == LABEL_FALSE:
        return Management(False, InventoryReason.DISABLED_BY_LABEL)
    if label == LABEL_TRUE or settings.enabled_by_default:
        return Management(True, InventoryReason.ENABLED)
    return Management(False, InventoryReason.NOT_ENABLED_BY_DEFAULT)


def prerequisite(count: NfdCount) -> ModulePrerequisiteChanged | None:
    """Whether anything tells which nodes have GPUs; None where there are no nodes.

    That is Node Feature Discovery, new enough on any node, or where no node has it at all, an agent on any node.
    """
    if count.new_enough:
        return ModulePrerequisiteChanged(met=True, reason=InventoryReason.PREREQUISITES_MET)
    if count.too_old:
        message = f"Node Feature Discovery is older than {_NFD_VERSION}; upgrade it to {_NFD_VERSION} or newer."
        return ModulePrerequisiteChanged(met=False, reason=InventoryReason.NFD_TOO_OLD, message=message)
    if count.surveyed:
        return ModulePrerequisiteChanged(met=True, reason=InventoryReason.SURVEYED_BY_AGENTS)
    if count.nodes:
        message = (
            "Neither Node Feature Discovery nor an agent describes any node; let agents run on all nodes (the chart's "
            f"agent.nodes=all), or enable Node Feature Discovery, version {_NFD_VERSION} or newer."
        )
        return ModulePrerequisiteChanged(met=False, reason=InventoryReason.NFD_MISSING, message=message)
    return None


def node_conditions(row: InventoryNode, settings: ModuleSettings, found: NodeDevices) -> tuple[Condition, ...]:
    """The node's conditions, ordered by type."""
    return (_inventory_complete(row, found), _managed_disabled(row, settings))


def _managed_disabled(row: InventoryNode, settings: ModuleSettings) -> Condition:
    managed, reason = is_managed(row, settings)
    status = ConditionStatus.FALSE if managed else ConditionStatus.TRUE
    return Condition(type=NodeConditionType.MANAGED_DISABLED, status=status.value, reason=reason)


def _inventory_complete(row: InventoryNode, found: NodeDevices) -> Condition:
    labels = orjson.loads(row.labels)
    if not found.visible:
        if mention_gpus(labels) and not row.has_features:
            return _incomplete(
                InventoryReason.NODE_FEATURE_MISSING, "Labels tell of GPUs, but the node has no NodeFeature."
            )
        return _incomplete(InventoryReason.NO_DEVICES_DISCOVERED, "Nothing shows a GPU on this node now.")
    if found.unseen_by_agent:
        text = f"The node's agent does not see {found.unseen_by_agent} of the GPUs that Node Feature Discovery counts."
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
    """How many PCI devices are counted or listed without vendor, model or class."""
    listed = pci_devices(labels)
    counted = expected_devices(labels)
    unlisted = 0 if counted is None else max(counted - len(listed), 0)
    return max(unlisted + gpus_among(listed).incomplete, row.incomplete)

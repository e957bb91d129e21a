"""Whether a node is managed: a label on it says so, or the module's settings where it has none. Pure."""

from typing import NamedTuple

import orjson

from gpuledger.api.labels import LABEL_FALSE, LABEL_TRUE
from gpuledger.api.reasons import InventoryReason
from gpuledger.domain.inventory.facts import InventoryNode
from gpuledger.domain.inventory.state import ModuleSettings


class Management(NamedTuple):
    """Whether a node is managed, and why."""

    managed: bool
    reason: InventoryReason


def is_managed(row: InventoryNode, settings: ModuleSettings) -> Management:
    """What the node's label says, whose key is a setting; anything but `true` and `false` says nothing."""
    label = orjson.loads(row.labels).get(settings.managed_label_key)
    if label == LABEL_FALSE:
        return Management(False, InventoryReason.DISABLED_BY_LABEL)
    if label == LABEL_TRUE or settings.enabled_by_default:
        return Management(True, InventoryReason.ENABLED)
    return Management(False, InventoryReason.NOT_ENABLED_BY_DEFAULT)

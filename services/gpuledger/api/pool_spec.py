"""Values that fields and annotations of a pool can have. Pure."""

from typing import Final

PROVIDER_NVIDIA: Final = "Nvidia"
BACKEND_DEVICE_PLUGIN: Final = "DevicePlugin"
BACKEND_DRA: Final = "DRA"

UNIT_CARD: Final = "Card"
UNIT_MIG: Final = "MIG"
UNITS: Final = (UNIT_CARD, UNIT_MIG)

BIN_PACK: Final = "BinPack"
SPREAD: Final = "Spread"
STRATEGIES: Final = (BIN_PACK, SPREAD)

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")

SELECTOR_OPERATORS: Final = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
"""Operators of label selectors, and whether an expression with the operator has values."""

MANUAL: Final = "Manual"
SELECTOR: Final = "Selector"
"""Modes of automatic approval in the module's settings."""

MAINTENANCE_ENABLED: Final = "enabled"
MAINTENANCE_CONFIRMED: Final = "confirmed"
"""Values of the maintenance annotation."""

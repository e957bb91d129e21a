"""Values that fields and annotations of a pool can have. Pure."""

from typing import Final

PROVIDER_NVIDIA: Final = "Nvidia"
BACKEND_DEVICE_PLUGIN: Final = "DevicePlugin"
UNIT_MIG: Final = "MIG"

MANUAL: Final = "Manual"
SELECTOR: Final = "Selector"
"""Policies of automatic approval that a pool's spec can name."""

MAINTENANCE_ENABLED: Final = "enabled"
MAINTENANCE_CONFIRMED: Final = "confirmed"
"""Values of the maintenance annotation."""

"""Devices: GPUs, known by serial number or UUID wherever they sit."""

from gpuledger.events.payload import Name, Payload, Text
from gpuledger.events.registry import registry


@registry.event("device", "inserted", publisher="importers")
class DeviceInserted(Payload):
    """The device was put into a slot; what is known of its identity comes along."""

    slot: Name
    serial: Name | None = None
    uuid: Name | None = None
    model: Name | None = None


@registry.event("device", "removed", publisher="importers")
class DeviceRemoved(Payload):
    """The device was taken out of a slot; `retired` says that it left service for good."""

    slot: Name
    retired: bool = False


@registry.event("device", "failed", publisher="importers")
class DeviceFailed(Payload):
    """The device failed; `kind` is the field's short name for how (DBE, OTB, XID 79)."""

    kind: Name
    slot: Name | None = None
    message: Text | None = None

"""Settings of admission: limits, and the address at which API servers reach the webhooks. Units stand last in names."""

from dataclasses import dataclass, field
from typing import Final

from gpuledger.api.sharing import SharingNames
from gpuledger.edge.webhooks.settings import ServingSettings, WebhookAddress
from gpuledger.projection.snapshots import SnapshotSettings

SERVICE: Final = "gpu-control-plane-admission"
"""The Service that leads API servers to the webhooks; the chart creates it."""


@dataclass(frozen=True, slots=True)
class AdmissionSettings(ServingSettings):
    """The load that admission bears.

    `address` None stands for the address that the webhooks listen on, for API servers on the same machine.

    Of uses of the break-glass group, so many wait for the ledger at most, a replica records so many in a minute, and
    recognizes a repeat among so many; when it stops, it tries for `drain_timeout_s` to record those that wait.
    `sharing` are the names of what is about shared devices.
    """

    address: WebhookAddress | None = field(default_factory=lambda: WebhookAddress(SERVICE))
    messages_per_batch: int = 1024
    uses_waiting_max: int = 4096
    uses_per_minute_max: int = 600
    uses_remembered_max: int = 4096
    drain_timeout_s: float = 0.5
    stopped_retry_s: float = 60.0
    snapshots: SnapshotSettings = field(default_factory=SnapshotSettings)
    sharing: SharingNames = field(default_factory=SharingNames)

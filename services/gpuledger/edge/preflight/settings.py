"""Settings of the webhook of preflight checks: its files, limits, and the address at which API servers reach it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpuledger.edge.webhooks.settings import ServingSettings, WebhookAddress

SERVICE: Final = "gpuledger-preflight"
"""The Service that leads API servers to the webhook; the chart creates it."""


@dataclass(frozen=True, slots=True)
class PreflightSettings(ServingSettings):
    """The load that the webhook bears, and the file with its configuration, which is read again every `file_poll_s`.

    `address` None stands for the address that it listens on, for API servers on the same machine. What it looks up for
    a review, it waits for no longer than `lookup_timeout_s`, and keeps for `found_s`, or `missing_s` where there is
    none: `lookups_kept_max` objects at most, and asks for `lookups_at_once_max` at a time. The webhook configuration
    goes with the ClusterRole `owner`, if any.
    """

    address: WebhookAddress | None = field(default_factory=lambda: WebhookAddress(SERVICE))
    file: Path = Path("/etc/gpuledger/preflight/preflight.yaml")
    file_poll_s: float = 5.0
    lookup_timeout_s: float = 1.5
    lookups_at_once_max: int = 32
    lookups_kept_max: int = 16_384
    found_s: float = 5.0
    missing_s: float = 1.0
    owner: str | None = None

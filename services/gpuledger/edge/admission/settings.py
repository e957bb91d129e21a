"""Bounds of admission, and where it is found. Units stand last in names."""

from dataclasses import dataclass, field
from typing import Final

from gpuledger.api.kinds import NAMESPACE
from gpuledger.runtime.backoff import Backoff

SERVICE: Final = "gpu-control-plane-admission"
"""The Service that leads API servers to the webhooks; the chart makes it."""

SERVICE_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class Reached:
    """How an API server reaches the webhooks: through a Service, or at a URL where there is no cluster network.

    `url` has no path, and its host stands in the certificate.
    """

    service: str = SERVICE
    port: int = SERVICE_PORT
    url: str | None = None


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Where the webhooks listen, and how much they bear.

    An API server waits for `webhook_timeout_s`; an answer is given up before, after `review_timeout_s`. A review holds
    two objects of which each may have as much as etcd keeps, 1.5 MiB. `reached` None stands for the very address that
    the webhooks listen on, for API servers of the same machine.

    `connections_max` is more than three API servers need that each change 200 objects at once. A connection that has
    asked nothing whole for `idle_timeout_s` is closed; an API server gives up its own idle ones after 90 s, so that it
    does not ask on one that is being closed.
    """

    listen: str = "0.0.0.0:9443"
    namespace: str = NAMESPACE
    reached: Reached | None = field(default_factory=Reached)
    review_bytes_max: int = 8 * 1024 * 1024
    reviews_at_once_max: int = 64
    connections_max: int = 768
    handshake_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    webhook_timeout_s: int = 5
    review_timeout_s: float = 4.0
    shutdown_timeout_s: float = 5.0
    messages_per_batch: int = 1024
    certificates_check_s: float = 60.0
    stopped_retry_s: float = 60.0
    backoff: Backoff = field(default_factory=Backoff)

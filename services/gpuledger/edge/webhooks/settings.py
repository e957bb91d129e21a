"""Settings that the webhooks of all services have: where they are, and the load that they bear."""

from dataclasses import dataclass, field
from typing import Final

from gpuledger.api.kinds import NAMESPACE
from gpuledger.runtime.backoff import Backoff

SERVICE_PORT: Final = 443


@dataclass(frozen=True, slots=True)
class WebhookAddress:
    """How an API server reaches the webhooks: through a Service, or at a URL where there is no cluster network.

    `url` has no path, and the certificate names its host.
    """

    service: str = ""
    port: int = SERVICE_PORT
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The address that webhooks listen on, and the load that they bear.

    An API server waits for `webhook_timeout_s`; the webhooks give up before, after `review_timeout_s`. A review holds
    two objects, each of which may be as large as etcd stores, 1.5 MiB.

    `connections_max` is more than three API servers need that each change 200 objects at once. The server closes a
    connection without a complete request for `idle_timeout_s`; an API server gives up its own idle connections after
    90 s, so it does not send a request on one that is being closed.
    """

    listen: str = "0.0.0.0:9443"
    namespace: str = NAMESPACE
    review_bytes_max: int = 8 * 1024 * 1024
    reviews_at_once_max: int = 64
    connections_max: int = 768
    handshake_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    webhook_timeout_s: int = 5
    review_timeout_s: float = 4.0
    shutdown_timeout_s: float = 5.0
    certificates_check_s: float = 60.0
    backoff: Backoff = field(default_factory=Backoff)

"""The bounds of the gateway. Units stand last in names."""

from dataclasses import dataclass, field
from typing import Final

from gpuledger.healthreports.rates import RateLimits
from gpuledger.runtime.backoff import Backoff

REVIEW_LIFE_S: Final = 60.0
"""How long the answer about a token counts: who loses the right to report loses it within this time."""

REFUSAL_LIFE_S: Final = 10.0
"""How long a refusal of a token counts, so that a monitor that keeps trying costs the API server little."""


@dataclass(frozen=True, slots=True)
class GatewayBounds:
    """What one replica takes, and how much of it waits.

    A request has `request_bytes_max` at most, and `request_timeout_s` to arrive once its reporter is clear; up to
    `requests_at_once_max` are under way. A reporter has a bucket of
    `reports_burst_max` reports, which `reports_per_s_max` fill again; `reporters_max` buckets are kept. Up to
    `events_waiting_max` events with `bytes_waiting_max` wait for the ledger, and a request for `answer_timeout_s`;
    `events_per_batch_max` are published together. Repeats are coalesced for `nodes_max` nodes, and the
    ids of the last `ids_max` events are kept.

    A client has `handshake_timeout_s` for its TLS handshake and `streams_max` requests on a connection. One without
    requests is closed after `idle_s`, and every one after `connection_life_s`, once its requests have their answers: so
    the authority of clients is asked again.

    `reviews_max` answers about tokens are kept, `reviews_at_once_max` asked for at a time, each for
    `review_timeout_s`. A node's cards are read again after `cards_life_s`. Of what other replicas recorded,
    `recall_s` are read at the start, and `messages_per_batch` at a time.
    """

    request_bytes_max: int = 4 * 1024 * 1024
    requests_at_once_max: int = 256
    request_timeout_s: float = 10.0
    handshake_timeout_s: float = 10.0
    streams_max: int = 64
    idle_s: float = 600.0
    connection_life_s: float = 3_600.0
    reports_per_s_max: float = 500.0
    reports_burst_max: int = 5_000
    reporters_max: int = 8_192
    events_waiting_max: int = 8_192
    bytes_waiting_max: int = 64 * 1024 * 1024
    events_per_batch_max: int = 512
    answer_timeout_s: float = 10.0
    drain_timeout_s: float = 5.0
    nodes_max: int = 8_192
    ids_max: int = 32_768
    reviews_max: int = 8_192
    reviews_at_once_max: int = 32
    review_timeout_s: float = 5.0
    cards_life_s: float = 30.0
    cards_timeout_s: float = 2.0
    recall_s: float = 120.0
    messages_per_batch: int = 1_024
    tick_s: float = 1.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_s=0.1, max_s=5.0))

    @property
    def rates(self) -> RateLimits:
        """What each reporter may send."""
        return RateLimits(self.reports_per_s_max, self.reports_burst_max, self.reporters_max)

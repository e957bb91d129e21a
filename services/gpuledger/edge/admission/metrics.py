"""What admission says about itself."""

from prometheus_client import Counter, Gauge, Histogram

from gpuledger.runtime.telemetry import SECONDS

REVIEWS = Counter("gpuledger_admission_reviews_total", "Reviews, by what was asked about.", ["resource", "outcome"])
REFUSALS = Counter("gpuledger_admission_refusals_total", "Refusals, by reason.", ["resource", "reason"])
LATENCY = Histogram(
    "gpuledger_admission_seconds", "From a review's last byte to the answer.", ["resource"], buckets=SECONDS
)
UNDER_WAY = Gauge("gpuledger_admission_under_way", "Reviews that are being read or answered.")
CONNECTIONS_REFUSED = Counter(
    "gpuledger_admission_connections_refused_total", "Connections that were hung up on, because there were too many."
)
READY = Gauge("gpuledger_admission_ready", "1 while reviews are answered, 0 while they are turned away.")
EXPIRES = Gauge(
    "gpuledger_admission_certificate_expires_seconds", "When the certificate shown ceases to hold, since 1970."
)

"""Metrics of admission."""

from prometheus_client import Counter, Gauge, Histogram

from gpuledger.runtime.telemetry import SECONDS

REVIEWS = Counter("gpuledger_admission_reviews_total", "Reviews, by resource and outcome.", ["resource", "outcome"])
REFUSALS = Counter("gpuledger_admission_refusals_total", "Refusals, by reason.", ["resource", "reason"])
LATENCY = Histogram(
    "gpuledger_admission_seconds", "From a review's last byte to the answer.", ["resource"], buckets=SECONDS
)
UNDER_WAY = Gauge("gpuledger_admission_under_way", "Reviews that are being read or answered.")
CONNECTIONS_REFUSED = Counter(
    "gpuledger_admission_connections_refused_total", "Connections that were closed because there were too many."
)
READY = Gauge("gpuledger_admission_ready", "1 while admission answers reviews, 0 while it turns them away.")
EXPIRES = Gauge(
    "gpuledger_admission_certificate_expires_seconds", "When the certificate expires, in seconds since 1970."
)

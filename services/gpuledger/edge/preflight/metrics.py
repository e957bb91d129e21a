"""Metrics of the injection of preflight checks. The first two have the names of NVSentinel's design."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from gpuledger.runtime.telemetry import SECONDS

INJECTIONS = Counter("preflight_injection_total", "Pods that were reviewed, by what became of them.", ["result"])
LATENCY = Histogram("preflight_webhook_latency_seconds", "From a review's last byte to the answer.", buckets=SECONDS)
LEFT_OUT = Counter(
    "gpuledger_preflight_left_out_total", "Checks that a pod with GPUs did not get, by reason.", ["check", "reason"]
)
LOOKUPS = Counter(
    "gpuledger_preflight_lookups_total", "Objects looked up for reviews, by outcome.", ["kind", "outcome"]
)
UNDER_WAY = Gauge("gpuledger_preflight_under_way", "Reviews that are being read or answered.")
CONNECTIONS_REFUSED = Counter(
    "gpuledger_preflight_connections_refused_total", "Connections that were closed because there were too many."
)
CONFIGURATION_UNUSABLE = Gauge(
    "gpuledger_preflight_configuration_unusable",
    "1 while the configuration's file cannot be used, and the last one that could stays in force.",
)
EXPIRES = Gauge(
    "gpuledger_preflight_certificate_expires_seconds", "When the certificate expires, in seconds since 1970."
)

RESULTS: Final = (
    "injected",
    "exempt",
    "no-gpus",
    "unresolved",
    "no-checks",
    "no-connection",
    "not-covered",
    "not-ready",
    "refused",
)

# An increase is seen from zero on, so the series have to be there before the first review.
for _result in RESULTS:
    INJECTIONS.labels(_result)

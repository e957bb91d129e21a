"""Metrics of admission."""

from prometheus_client import Counter, Gauge, Histogram

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES
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
BREAK_GLASS = Counter(
    "gpuledger_admission_break_glass_total", "Uses of the break-glass group.", ["resource", "operation"]
)
BREAK_GLASS_UNRECORDED = Counter(
    "gpuledger_admission_break_glass_unrecorded_total",
    "Uses of the break-glass group that the ledger will never have, by reason.",
    ["reason"],
)
BREAK_GLASS_WAITING = Gauge(
    "gpuledger_admission_break_glass_waiting", "Uses of the break-glass group that wait to be recorded."
)
READY = Gauge("gpuledger_admission_ready", "1 while admission answers reviews, 0 while it turns them away.")
EXPIRES = Gauge(
    "gpuledger_admission_certificate_expires_seconds", "When the certificate expires, in seconds since 1970."
)

# An increase is seen from zero on, so the series have to be there before the first use.
for _resource in (GPU_DEVICES.plural, GPU_NODE_STATES.plural):
    for _operation in ("CREATE", "UPDATE", "DELETE"):
        BREAK_GLASS.labels(_resource, _operation)
for _reason in ("waiting-too-many", "rate", "refused", "unnamed", "shutdown", "busy", "unknown-caller"):
    BREAK_GLASS_UNRECORDED.labels(_reason)

"""Metrics of the extender."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from gpuledger.runtime.telemetry import SECONDS

ACTIVE = Gauge("gpuledger_extender_active", "1 while this process answers kube-scheduler, 0 on standby.")
LISTENING = Gauge("gpuledger_extender_listening", "1 while this process listens for kube-scheduler, leading or not.")
LATENCY = Histogram(
    "gpuledger_extender_latency_seconds", "From a request's last byte to the answer.", ["verb"], buckets=SECONDS
)
ANSWERS = Counter("gpuledger_extender_answers_total", "Requests of kube-scheduler, by outcome.", ["verb", "outcome"])
NODES_REFUSED = Counter(
    "gpuledger_extender_nodes_refused_total",
    "Nodes that could not take a pod; unresolvable: not even if other pods left.",
    ["resolvable"],
)
RESERVATIONS = Gauge("gpuledger_extender_reservations", "Reservations of devices whose outcome is open.")
UNDONE = Counter("gpuledger_extender_undone_total", "Reservations that were released unused, by reason.", ["reason"])
SETTLED = Counter("gpuledger_extender_settled_total", "Open reservations that were looked up, by outcome.", ["outcome"])
UNDER_WAY = Gauge("gpuledger_extender_under_way", "Requests that are being read or answered.")
CONNECTIONS_REFUSED = Counter(
    "gpuledger_extender_connections_refused_total", "Connections that were closed because there were too many."
)

VERBS: Final = ("filter", "prioritize", "bind", "preempt")
OUTCOMES: Final = ("answered", "refused", "not-leading", "busy", "unreadable")

# An increase is seen from zero on, so the series have to be there before the first request.
for _verb in VERBS:
    LATENCY.labels(_verb)
    for _outcome in OUTCOMES:
        ANSWERS.labels(_verb, _outcome)
for _resolvable in ("true", "false"):
    NODES_REFUSED.labels(_resolvable)

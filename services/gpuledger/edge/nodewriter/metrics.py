"""Metrics of the node writer."""

from prometheus_client import Counter, Gauge, Histogram

from gpuledger.edge.nodewriter.drain_intents import DrainOutcome
from gpuledger.edge.nodewriter.intents import Outcome
from gpuledger.events.maintenance import NodeDrainSuperseded, NodeIsolationFailed, NodeIsolationSuperseded
from gpuledger.runtime.telemetry import SECONDS

ACTIVE = Gauge("gpuledger_nodewriter_active", "1 while this process may write to Nodes, 0 on standby.")
WAITING = Gauge("gpuledger_nodewriter_waiting", "Nodes about which an intent has no outcome yet.")
LATENCY = Histogram(
    "gpuledger_nodewriter_latency_seconds",
    "From recording an intent about a node to the API server's answer that has it.",
    buckets=(*SECONDS, 30.0, 120.0),
)
OUTCOMES = Counter("gpuledger_nodewriter_outcomes_total", "Intents about nodes that were settled.", ["outcome"])
for _outcome in ("Applied", "Failed", "Newer", "NodeGone", "Expired", "Imported"):
    OUTCOMES.labels(_outcome)  # An increase from nothing would be none.
RETRIES = Counter("gpuledger_nodewriter_retries_total", "Attempts on a node that failed, by error.", ["error"])

DRAINING = Gauge("gpuledger_nodewriter_draining", "Nodes with a drain that is not over.")
EVICTIONS = Counter(
    "gpuledger_nodewriter_evictions_total",
    "Evictions that were requested, by answer; and pods that were deleted instead.",
    ["answer"],
)
for _answer in ("Evicted", "Blocked", "Refused", "Deleted"):
    EVICTIONS.labels(_answer)
DRAINS = Counter("gpuledger_nodewriter_drains_total", "Drains that are over, by outcome.", ["outcome"])
for _outcome in ("Finished", "Newer", "NodeGone", "Expired", "Imported"):
    DRAINS.labels(_outcome)


def count_drain(outcome: DrainOutcome) -> None:
    """Count a drain that is over: finished, or why nothing is evicted for it any more."""
    DRAINS.labels(outcome.reason if isinstance(outcome, NodeDrainSuperseded) else "Finished").inc()


def count(outcome: Outcome) -> None:
    """Count an outcome: applied, failed, or why it was superseded."""
    if isinstance(outcome, NodeIsolationSuperseded):
        OUTCOMES.labels(outcome.reason).inc()
    else:
        OUTCOMES.labels("Failed" if isinstance(outcome, NodeIsolationFailed) else "Applied").inc()

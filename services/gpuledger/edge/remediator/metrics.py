"""Metrics of the remediator."""

from prometheus_client import Counter, Gauge

from gpuledger.events.remediation import RemediationFinished, RemediationSuperseded

ACTIVE = Gauge("gpuledger_remediator_active", "1 while this process may create objects, 0 on standby.")
OPEN = Gauge("gpuledger_remediator_open", "Remediations for which something is left to do.")
CREATED = Counter("gpuledger_remediator_created_total", "Objects that were created.")
OUTCOMES = Counter("gpuledger_remediator_outcomes_total", "Remediations that are over, by outcome.", ["outcome"])
for _outcome in (
    "Succeeded",
    "Failed",
    "TimedOut",
    "Refused",
    "Cancelled",
    "NodeGone",
    "NotSetAside",
    "Expired",
    "Imported",
):
    OUTCOMES.labels(_outcome)  # An increase from nothing would be none.
RETRIES = Counter("gpuledger_remediator_retries_total", "Attempts on an object that failed, by error.", ["error"])


def count(outcome: RemediationFinished | RemediationSuperseded) -> None:
    """Count an outcome."""
    OUTCOMES.labels(outcome.result if isinstance(outcome, RemediationFinished) else outcome.reason).inc()

"""Metrics of the coordinator of gangs."""

from prometheus_client import Counter, Gauge

from gpuledger.events.payload import Payload

ACTIVE = Gauge("gpuledger_preflight_coordinator_active", "1 while this process may write ConfigMaps, 0 on standby.")
GANGS = Gauge("gpuledger_preflight_gangs", "Gangs whose pods go through preflight checks, by state.", ["state"])
for _state in ("forming", "complete"):
    GANGS.labels(_state)
WRITES = Counter("gpuledger_preflight_configmap_writes_total", "ConfigMaps of gangs written, by verb.", ["verb"])
for _verb in ("create", "patch", "delete"):
    WRITES.labels(_verb)  # An increase from nothing would be none.
OUTCOMES = Counter("gpuledger_preflight_gang_outcomes_total", "Outcomes recorded about gangs, by type.", ["outcome"])
for _outcome in ("configured", "timed-out", "not-configured", "dissolved"):
    OUTCOMES.labels(_outcome)
RETRIES = Counter("gpuledger_preflight_gang_retries_total", "Attempts on a gang that failed, by error.", ["error"])
EVENTS = Counter("gpuledger_preflight_events_total", "Kubernetes Events about failed checks, by outcome.", ["outcome"])
for _event in ("recorded", "known", "dropped", "stale", "failed"):
    EVENTS.labels(_event)


def count(outcome: Payload) -> None:
    """Count an outcome."""
    OUTCOMES.labels(outcome.EVENT).inc()

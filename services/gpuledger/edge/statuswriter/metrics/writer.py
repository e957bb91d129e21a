"""Metrics of the status writer itself: queue, latency, writes, drift and errors."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import REGISTRY, Collector

from gpuledger.edge.kube.errors import KubeError
from gpuledger.edge.statuswriter.objects import Key, Kind
from gpuledger.edge.statuswriter.reconcile.decide import Action
from gpuledger.runtime.telemetry import SECONDS

QUEUE_DEPTH = Gauge("gpuledger_statuswriter_queue", "Objects that are queued or being written.")
ACTIVE = Gauge("gpuledger_statuswriter_active", "1 while this process may write, 0 on standby.")
LATENCY = Histogram(
    "gpuledger_statuswriter_latency_seconds",
    "From recording a decision to the API server's answer that has it.",
    buckets=(*SECONDS, 30.0, 120.0),
)
WRITES = Counter("gpuledger_statuswriter_writes_total", "Write requests.", ["kind", "action", "outcome"])
DRIFT_CORRECTED = Counter(
    "gpuledger_statuswriter_drift_corrected_total", "Changes by others that gpuledger reverted.", ["kind"]
)
CONFLICTS = Counter("gpuledger_statuswriter_conflicts_total", "Changes by others that gpuledger left.", ["kind"])
EVENTS = Counter("gpuledger_statuswriter_events_total", "Kubernetes Events, by outcome.", ["outcome"])
HANDLER_ERRORS = Counter("gpu_inventory_handler_errors_total", "Errors, by handler.", ["handler"])
BOOTSTRAP_ERRORS = Counter("gpu_bootstrap_handler_errors_total", "Errors, by handler.", ["handler"])


def errors_of(kind: Kind) -> Counter:
    """The counter of errors about objects of a kind."""
    return BOOTSTRAP_ERRORS if kind is Kind.COMPONENT else HANDLER_ERRORS


@contextmanager
def registered(collectors: Iterable[Collector]) -> Iterator[None]:
    """Register the collectors with the process's registry during the block."""
    with ExitStack() as stack:
        for collector in collectors:
            REGISTRY.register(collector)
            stack.callback(REGISTRY.unregister, collector)
        yield


@contextmanager
def counted_write(key: Key, action: Action) -> Iterator[None]:
    """Count a write request and its outcome."""
    outcome = "done"
    try:
        yield
    except KubeError as error:
        outcome = type(error).__name__
        raise
    finally:
        WRITES.labels(key.kind, action, outcome).inc()

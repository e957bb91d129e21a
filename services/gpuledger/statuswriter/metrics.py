"""What the status writer says about itself, and the inventory's own metrics under the names that dashboards know.

The inventory's metrics are computed from the fold when they are asked for, and kept nowhere: while the module is
disabled there are none.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import REGISTRY, Collector

from gpuledger.domain.inventory_names import Status
from gpuledger.domain.inventory_status import module_condition
from gpuledger.kube.errors import KubeError
from gpuledger.statuswriter.decide import Action, Key
from gpuledger.statuswriter.wanted import Wanted
from gpuledger.telemetry import SECONDS

QUEUE = Gauge("gpuledger_statuswriter_queue", "Objects that wait to be looked at, or are being written.")
ACTIVE = Gauge("gpuledger_statuswriter_active", "1 while this process may write, 0 on standby.")
LATENCY = Histogram(
    "gpuledger_statuswriter_latency_seconds",
    "From recording a decision to the API server's answer that has it.",
    buckets=(*SECONDS, 30.0, 120.0),
)
WRITES = Counter("gpuledger_statuswriter_writes_total", "Write requests.", ["kind", "action", "outcome"])
UNDONE = Counter("gpuledger_statuswriter_undone_total", "Changes by others that were undone.", ["kind"])
CONFLICTS = Counter("gpuledger_statuswriter_conflicts_total", "Changes by others left as they are.", ["kind"])
EVENTS = Counter("gpuledger_statuswriter_events_total", "Kubernetes Events, by outcome.", ["outcome"])
HANDLER_ERRORS = Counter("gpu_inventory_handler_errors_total", "Errors, by what was being handled.", ["handler"])

State = Callable[[], Wanted | None]


class InventoryMetrics(Collector):
    """`gpu_inventory_*` of every node, as the fold has it."""

    def __init__(self, state: State) -> None:
        self._state = state

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The names, which the registry wants to know."""
        return _families()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """All of them; none while the module is disabled."""
        state = self._state()
        families = _families()
        if state is not None and state.enabled:
            devices, states, conditions = families
            for row in list(state.node.rows.values()):
                _add_devices(state, row.node, devices, states, is_present=row.present)
            _add_conditions(state, conditions)
        return families


def _families() -> tuple[GaugeMetricFamily, GaugeMetricFamily, GaugeMetricFamily]:
    return (
        GaugeMetricFamily("gpu_inventory_devices_total", "GPUs in sight, by node.", labels=["node"]),
        GaugeMetricFamily("gpu_inventory_devices_state", "GPUs in sight, by state.", labels=["node", "state"]),
        GaugeMetricFamily("gpu_inventory_condition", "1 while it holds; the module's has no node.", labels=_CONDITION),
    )


_CONDITION = ["node", "condition"]


def _add_devices(
    state: Wanted, node: str, devices: GaugeMetricFamily, states: GaugeMetricFamily, *, is_present: bool
) -> None:
    rows = [row for row in state.device.where("node", node) if is_present and not row.missing]
    devices.add_metric([node], len(rows))
    for name, count in sorted(Tally(row.state for row in rows).items()):
        states.add_metric([node, name], count)


def _add_conditions(state: Wanted, conditions: GaugeMetricFamily) -> None:
    for row in list(state.condition.rows.values()):
        conditions.add_metric([row.node, row.type], row.status == Status.TRUE)
    for module in list(state.module.rows.values()):
        condition = module_condition(module)
        conditions.add_metric(["", condition["type"]], condition["status"] == Status.TRUE)


@contextmanager
def registered(collectors: Iterable[Collector]) -> Iterator[None]:
    """Have the process's registry ask them too."""
    with ExitStack() as stack:
        for collector in collectors:
            REGISTRY.register(collector)
            stack.callback(REGISTRY.unregister, collector)
        yield


@contextmanager
def counted_write(key: Key, action: Action) -> Iterator[None]:
    """Count a write request, and how it went."""
    outcome = "done"
    try:
        yield
    except KubeError as error:
        outcome = type(error).__name__
        raise
    finally:
        WRITES.labels(key.kind, action, outcome).inc()

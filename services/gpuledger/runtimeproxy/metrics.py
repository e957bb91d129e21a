"""The proxy's Prometheus metrics, computed at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpuledger.runtime.node_process import RegisteredCollector
from gpuledger.runtimefacts.stored import StoredFacts
from gpuledger.runtimeproxy.creation import ContainerCreation
from gpuledger.runtimeproxy.traffic import Traffic

PREFIX = "gpuledger_runtime_proxy"


class ProxyMetrics(RegisteredCollector):
    """`gpuledger_runtime_proxy_*`."""

    def __init__(self, traffic: Traffic, creation: ContainerCreation, facts: StoredFacts) -> None:
        self._traffic = traffic
        self._creation = creation
        self._facts = facts

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        calls = CounterMetricFamily(f"{PREFIX}_calls", "Calls of the kubelet.", labels=("method",))
        for method, count in sorted(self._traffic.calls.items()):
            calls.add_metric((method,), count)
        yield calls
        under_way = GaugeMetricFamily(f"{PREFIX}_calls_under_way", "Calls that have not ended.", labels=("method",))
        for method, count in sorted(self._traffic.under_way.items()):
            under_way.add_metric((method,), count)
        yield under_way
        yield CounterMetricFamily(
            f"{PREFIX}_containers_injected", "Containers created with their pod's devices.", self._creation.injected
        )
        yield CounterMetricFamily(
            f"{PREFIX}_containers_refused", "Containers not created for want of their devices.", self._traffic.refused
        )
        yield CounterMetricFamily(f"{PREFIX}_facts_stored", "Facts left for the agent.", self._facts.stored)
        yield CounterMetricFamily(f"{PREFIX}_facts_dropped", "Facts lost for want of room.", self._facts.dropped)

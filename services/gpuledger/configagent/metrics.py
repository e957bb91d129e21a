"""The agent's Prometheus metrics, computed at each scrape."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpuledger.api.machine_config import AgentState
from gpuledger.configagent.agent import ConfigAgent
from gpuledger.runtime.node_process import RegisteredCollector

PREFIX = "gpuledger_config_agent"


class ConfigAgentMetrics(RegisteredCollector):
    """`gpuledger_config_agent_*`."""

    def __init__(self, agent: ConfigAgent) -> None:
        self._agent = agent

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        counts, report = self._agent.counts, self._agent.report
        yield CounterMetricFamily(f"{PREFIX}_applies", "Configurations applied as a whole.", counts.applies)
        yield CounterMetricFamily(f"{PREFIX}_failures", "Attempts that failed.", counts.failures)
        yield CounterMetricFamily(f"{PREFIX}_reboots", "Reboots asked for.", counts.reboots)
        last = 0.0 if counts.last_apply is None else counts.last_apply.timestamp()
        yield GaugeMetricFamily(
            f"{PREFIX}_last_apply_timestamp_seconds", "When a configuration was applied last; 0: never.", last
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_reboot_pending",
            "1 while a reboot is due.",
            float(report is not None and report.reboot_pending),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_drifted_files", "Files that somebody has changed since they were applied.", counts.drifted_files
        )
        state = GaugeMetricFamily(f"{PREFIX}_state", "1 for the state that was reported last.", labels=("state",))
        for one in AgentState:
            state.add_metric((one.value,), float(report is not None and report.state is one))
        yield state

"""Which metrics there are, with their labels: from the registries of our processes, and from recorded exporters.

Prometheus adds the labels of the target that it scrapes; which ones, and who gives way, stands in the chart's monitors.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from prometheus_client import REGISTRY
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

import gpuledger.compose.machine_config_metrics
import gpuledger.compose.up
import gpuledger.edge.authcallout.metrics
import gpuledger.edge.gateway.metrics  # noqa: F401 - so is this one
from gpuledger.agent.board import Board
from gpuledger.agent.gateway.service import ReportCounts
from gpuledger.agent.hardware.api import Survey
from gpuledger.agent.metrics import AgentMetrics
from gpuledger.agent.plugin.service import PluginCounts
from gpuledger.api.conditions import MODULE_CONDITIONS, NodeConditionType
from gpuledger.api.machine_config import AgentState, ConfigPoolConditionType
from gpuledger.api.phases import DeviceState, PreparationPhase
from gpuledger.configagent.agent import ConfigAgent
from gpuledger.configagent.host import Host
from gpuledger.configagent.metrics import ConfigAgentMetrics
from gpuledger.edge.statuswriter.desired.state import DesiredState
from gpuledger.edge.statuswriter.metrics import slices
from gpuledger.edge.statuswriter.metrics.claimed_cards import ClaimedCards
from gpuledger.edge.statuswriter.metrics.gpu import GpuMetrics
from gpuledger.runtime.telemetry import LOG_CHANGES
from support.agent_metrics import EmptyOutbox
from support.chart import WITH_SECRET, Object, render
from support.config_agent import FakeApi, FakeSystemd, Reports, SteppingClock
from support.paths import ROOT
from support.promql_labels import Series

PLAIN_MONITOR: Final[Object] = {"spec": {"endpoints": [{"port": "metrics"}]}}
"""A ServiceMonitor that relabels nothing, as the GPU Operator's."""

RECORDED: Final = ROOT.parent / "shared" / "recordings" / "dcgm-exporter"

POD_TARGET: Final = frozenset({"job", "instance", "endpoint", "namespace", "pod", "container"})
"""What the Prometheus operator gives every target of a PodMonitor."""

SERVICE_TARGET: Final = POD_TARGET | {"service"}

VALUES: Final = {
    "condition": {*NodeConditionType, *MODULE_CONDITIONS, *ConfigPoolConditionType},
    "phase": set(PreparationPhase),
    "state": {*DeviceState, *AgentState},
    "change": set(LOG_CHANGES),
}
"""Labels of ours whose values are enumerations."""

_SUFFIXES: Final = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
_SAMPLE: Final = re.compile(r"^(DCGM_\w+)\{([^}]*)\}", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="')

OTHERS: Final = frozenset(
    {
        "kube_customresource_verticalpodautoscaler_status_recommendation_containerrecommendations_target",
        "kube_pod_container_resource_requests", "kube_job_failed", "kube_cronjob_status_last_successful_time",
        "kube_cronjob_status_last_schedule_time",
    }
)  # fmt: skip
"""Metrics of kube-state-metrics that alerts use; nobody here has them."""

MONITORED: Final = {
    **WITH_SECRET,
    "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}},
    "agent": {"enabled": True, "nats": {"url": "tls://nats.example:4222"}},
    "machineConfig": {"enabled": True},
}
"""Values of the chart with everything that is scraped."""

Served = dict[str, frozenset[str]]
"""The labels of each metric, before it is scraped."""


def of_server() -> Served:
    """What `gpuledger up` serves; the status writer registers a part of it while it leads."""
    registered = [*REGISTRY._collector_to_names, *vars(slices).values()]
    computed = [*GpuMetrics(lambda: None).describe(), *ClaimedCards(DesiredState).describe(), *slices._families()]
    return dict(_samples([*(one for one in registered if isinstance(one, MetricWrapperBase)), *computed]))


def of_agent() -> Served:
    """What an agent serves that has surveyed its cards."""
    board = Board()
    board.put(survey=Survey(()))
    return dict(_samples(AgentMetrics(board, EmptyOutbox(), PluginCounts(), ReportCounts()).collect()))


def of_config_agent() -> Served:
    """What an agent of machine configuration serves."""
    host = Host(Path("/"), Path("/nowhere"), FakeSystemd(), lambda: None, lambda: "boot")
    agent = ConfigAgent("w1", host, FakeApi(), Reports(), SteppingClock())
    return dict(_samples(ConfigAgentMetrics(agent).collect()))


def of_exporters(folder: Path) -> Served:
    """What dcgm-exporters of all recorded releases serve; each gives all of its metrics the same labels."""
    found = [one for path in sorted(folder.glob("*.prom")) for one in _SAMPLE.findall(path.read_text())]
    labels = frozenset(label for _, text in found for label in _LABEL.findall(text))
    return {name: labels for name, _ in found}


@cache
def in_prometheus(recorded: Path | None = None) -> Series:
    """What Prometheus has that scrapes as the chart says, and also where another monitor than ours scrapes exporters.

    Without recordings, nobody can tell what exporters serve.
    """
    chart, exporters = render(MONITORED), of_exporters(recorded) if recorded else {}
    ours = scraped(exporters, chart.one("PodMonitor", "nvidia-dcgm-exporter"))
    plain = scraped(exporters, PLAIN_MONITOR)
    return {
        **dict.fromkeys(OTHERS),
        **scraped(of_server(), chart.one("ServiceMonitor")),
        **scraped(of_agent(), chart.one("PodMonitor", "gpu-node-agent")),
        **scraped(of_config_agent(), chart.one("PodMonitor", "machine-config-agent")),
        **{name: labels | plain[name] for name, labels in ours.items()},
    }


def scraped(served: Served, monitor: Object) -> Served:
    """The series in Prometheus: where the metric and its target have one label, a monitor that does not honor the
    metric's renames it."""
    spec = monitor["spec"]
    target = SERVICE_TARGET if "endpoints" in spec else POD_TARGET
    (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    target |= {one["targetLabel"] for one in endpoint.get("relabelings", ())}
    honors = endpoint.get("honorLabels", False)
    return {
        name: _relabelled(labels if honors else _exported(labels, target), endpoint) | target
        for name, labels in served.items()
    }


def _exported(labels: frozenset[str], target: frozenset[str]) -> frozenset[str]:
    return frozenset(f"exported_{name}" if name in target else name for name in labels)


def _relabelled(labels: frozenset[str], endpoint: Object) -> frozenset[str]:
    found = set(labels)
    for rule in endpoint.get("metricRelabelings", ()):
        if rule.get("action") == "labeldrop":
            found -= {name for name in found if re.fullmatch(rule["regex"], name)}
        elif not found.isdisjoint(rule["sourceLabels"]):
            found.add(rule["targetLabel"])
    return frozenset(found)


def _samples(metrics: Iterable[Any]) -> Iterator[tuple[str, frozenset[str]]]:
    """Names and labels of the samples of families, and of what registers itself."""
    for one in metrics:
        kind, name = (one.type, one.name) if isinstance(one, Metric) else (one._type, one._name)
        for suffix in _SUFFIXES.get(kind, ("",)):
            yield f"{name}{suffix}", frozenset(one._labelnames) | ({"le"} if suffix == "_bucket" else frozenset())

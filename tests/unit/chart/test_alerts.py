"""The chart's alerts: each has a page, says how bad it is, and asks for metrics that somebody serves."""

import re
from types import ModuleType

from prometheus_client import Counter, Gauge

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Unregistered
from gpuledger.compose import certificate_metrics, log_metrics, source_metrics
from gpuledger.edge.admission import metrics as admission_metrics
from gpuledger.edge.statuswriter.metrics import writer as writer_metrics
from gpuledger.edge.statuswriter.metrics.gpu import GpuMetrics
from gpuledger.edge.watchers import metrics as watcher_metrics
from gpuledger.runtime import telemetry
from support.agent_metrics import metrics_of_agents
from support.chart import CHART, WITH_SECRET, needs_helm, render

RULES = {**WITH_SECRET, "prometheusRule": {"enabled": True, "labels": {"release": "prom"}}}

pytestmark = needs_helm

ALERTS = {
    "GPUDriverMissing", "GPUNodeFeatureMissing", "GPUUnassignedDevice", "GPUNodeWithoutPool", "GPUPoolCapacityLow",
    "GPUDeviceDegraded", "GPUPoolVPARecommendation", "LatencySpikes", "GPUAgentLedgerAway", "GPUAgentEventsDropped",
    "GPUAgentNotDurable", "GPUAgentErrorsUnreported", "GPULedgerProjectionStopped", "GPULedgerProjectionLag",
    "GPULedgerGapsOpen", "GPULedgerEventsRejected", "GPULedgerSourceOverLimits", "GPULedgerDecisionsWaiting",
    "GPULedgerServersAway",
    "GPULedgerNoLeader", "GPULedgerLeaderFlapping", "GPULedgerLogChanged", "GPULedgerNatsStorageLow",
    "GPULedgerNatsStorageFull", "GPULedgerLogUnsealed", "GPULedgerCertificateExpires",
    "GPULedgerCertificateExpiresSoon", "GPULedgerLogProofFailed", "GPULedgerObjectsRefused",
    "GPULedgerStatusesNotWritten",
}  # fmt: skip
OTHERS_METRICS = {
    "kube_customresource_verticalpodautoscaler_status_recommendation_containerrecommendations_target",
    "kube_pod_container_resource_requests", "DCGM_FI_DEV_GPU_UTIL", "kube_job_failed",
    "kube_cronjob_status_last_successful_time", "kube_cronjob_status_last_schedule_time",
}  # fmt: skip


def metrics_of(*modules: ModuleType) -> set[str]:
    """The gauges and counters that modules define, by the names of their samples."""
    found = [one for module in modules for one in vars(module).values() if isinstance(one, (Gauge, Counter))]
    return {
        f"{family.name}{'_total' if family.type == 'counter' else ''}" for one in found for family in one.describe()
    }


def test_every_alert_has_a_page_and_requests_for_metrics_that_there_are() -> None:
    rule = render(RULES).one("PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "prom"
    rules = [one for group in rule["spec"]["groups"] for one in group["rules"]]
    assert {one["alert"] for one in rules} == ALERTS
    board = Board()
    board.put(unregistered={"0000:17:00.0": Unregistered("Refused", "no")})
    ours = {family.name for family in GpuMetrics(lambda: None).describe()} | metrics_of_agents(board)
    ours |= metrics_of(telemetry, source_metrics, log_metrics, certificate_metrics)
    ours |= metrics_of(admission_metrics, watcher_metrics, writer_metrics)
    for one in rules:
        page = CHART.parents[1] / one["annotations"]["runbook"]
        assert page.stem == one["alert"]
        assert page.read_text().startswith(f"# {one['alert']}\n")
        assert {"summary", "description"} <= one["annotations"].keys()
        assert one["labels"]["severity"] in {"critical", "warning", "info"}
        queried = set(re.findall(r"\b(?:gpu|gpuledger|kube|DCGM|gpupool)_\w+", one["expr"]))
        assert queried - {"gpu_deckhouse_io_"} <= ours | OTHERS_METRICS, one["alert"]
        assert queried & (ours | OTHERS_METRICS), one["alert"]

"""The chart's monitors for the Prometheus operator find what they are to scrape, and their series name its node."""

import pytest

from gpuledger.edge.kube.crds import component_daemon_sets
from support.chart import IMAGE, NAMESPACE, Object, needs_helm, render
from support.served_metrics import MONITORED, RECORDED, of_exporters, scraped

EXPORTER = "nvidia-dcgm-exporter"

pytestmark = needs_helm


def test_a_service_monitor_finds_the_service() -> None:
    made = render(MONITORED)
    monitor, service = made.one("ServiceMonitor"), made.one("Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["endpoints"][0]["honorLabels"], "pools of one name differ by our own label `namespace`"


@pytest.mark.parametrize(
    ("components", "namespace"), [({}, NAMESPACE), ({"manage": False, "namespace": "gpu-operator"}, "gpu-operator")]
)
def test_a_pod_monitor_finds_the_exporters_and_names_their_nodes(components: Object, namespace: str) -> None:
    made = render({**MONITORED, "components": components})
    spec = made.one("PodMonitor", EXPORTER)["spec"]
    (shipped,) = (one for one in component_daemon_sets() if one["metadata"]["name"] == EXPORTER)
    template = shipped["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert spec["namespaceSelector"]["matchNames"] == [namespace]
    (endpoint,) = spec["podMetricsEndpoints"]
    (container,) = template["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert endpoint["relabelings"] == [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}]
    assert made.one("PodMonitor", EXPORTER)["metadata"]["labels"]["release"] == "prom"


def test_a_pod_monitor_finds_the_auth_callout_whose_metrics_alerts_are_about() -> None:
    made = render({**IMAGE, "serviceMonitor": MONITORED["serviceMonitor"]})
    monitor, pod = (
        made.one("PodMonitor", "gpu-agent-auth"),
        made.one("Deployment", "gpu-agent-auth")["spec"]["template"],
    )
    assert monitor["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (endpoint,), (container,) = monitor["spec"]["podMetricsEndpoints"], pod["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert "gpu-agent-auth" not in render(IMAGE).names("PodMonitor")


def test_the_exporters_own_chart_is_scraped_in_the_same_way_and_no_pod_twice() -> None:
    made = render(MONITORED)
    ours, theirs = (made.one("PodMonitor", name)["spec"] for name in (EXPORTER, "dcgm-exporter"))
    assert theirs["selector"]["matchLabels"] == {"app.kubernetes.io/name": "dcgm-exporter"}
    assert theirs["selector"]["matchExpressions"] == [{"key": "app", "operator": "NotIn", "values": [EXPORTER]}]
    assert {**theirs, "selector": None} == {**ours, "selector": None}


@pytest.mark.shared
@pytest.mark.skipif(not RECORDED.is_dir(), reason=f"no recordings in {RECORDED}")
def test_both_spellings_of_the_exporters_label_become_one() -> None:
    served = of_exporters(RECORDED)
    assert all({"Hostname", "hostname"} <= labels for labels in served.values())
    for labels in scraped(served, render(MONITORED).one("PodMonitor", EXPORTER)).values():
        assert {"node", "Hostname", "exported_pod", "exported_namespace", "exported_container"} <= labels
        assert "hostname" not in labels


@pytest.mark.parametrize("exporter", [EXPORTER, "dcgm-exporter"])
@pytest.mark.parametrize("spelling", ["Hostname", "hostname"])
def test_an_exporter_that_has_one_spelling_alone_has_the_same_label(exporter: str, spelling: str) -> None:
    found = scraped(
        {"DCGM_FI_DEV_FB_USED": frozenset({"UUID", spelling})}, render(MONITORED).one("PodMonitor", exporter)
    )
    (labels,) = found.values()
    assert {"UUID", "node", "Hostname"} <= labels
    assert "hostname" not in labels

"""The extender and its kube-scheduler as helm renders them: what they may do, and what the scheduler is told to ask."""

from typing import Any

import pytest
import yaml

from gpuledger.api.sharing import SCHEDULER
from gpuledger.runtime import extender_settings as names
from gpuledger.runtime.sharing_settings import read_sharing_names
from support.chart import NAME, NAMESPACE, WITH_SECRET, Manifests, Object, needs_helm, render, template

pytestmark = needs_helm

EXTENDER, OURS = f"{NAME}-extender", f"{NAME}-scheduler"
BOTH: dict[str, Any] = {"extender": {"enabled": True}, "scheduler": {"enabled": True}}
SECURED: dict[str, Any] = {
    "extender": {"enabled": True, "tls": {"secret": "shown", "clientCa": True}},
    "scheduler": {"enabled": True, "tls": {"secret": "mine"}},
}


def values(**sharing: Any) -> dict[str, Any]:
    return {**WITH_SECRET, "sharing": sharing}


def environ_of(made: Manifests, deployment: str) -> dict[str, str]:
    (container,) = made.one("Deployment", deployment)["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def configuration_of(made: Manifests) -> Object:
    found: Object = yaml.safe_load(made.one("ConfigMap", OURS)["data"]["scheduler.yaml"])
    return found


def test_both_are_off_by_default() -> None:
    made = render(WITH_SECRET)
    assert not {EXTENDER, OURS} & made.names("Deployment")
    assert environ_of(made, NAME)["GPULEDGER_SHARING_ACCOUNT"].endswith(f":{NAME}")


def test_the_extender_may_read_annotate_and_bind_pods_and_nothing_else() -> None:
    made = render(values(**BOTH))
    assert made.one("ClusterRole", EXTENDER)["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    ]
    (role,) = [one for one in made.objects if (one["kind"], one["metadata"]["name"]) == ("Role", EXTENDER)]
    assert role["metadata"]["namespace"] == "kube-system"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["gpuledger-ledger"], "verbs": ["get"]}
    ]


def test_the_account_that_may_write_allocations_is_the_extenders() -> None:
    made = render(values(**BOTH))
    for deployment in (NAME, EXTENDER):
        account = environ_of(made, deployment)["GPULEDGER_SHARING_ACCOUNT"]
        assert account == f"system:serviceaccount:{NAMESPACE}:{EXTENDER}"


def test_only_its_scheduler_and_named_clients_reach_the_extender() -> None:
    client = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    sharing = {"extender": {"enabled": True, "clients": [client]}, "scheduler": {"enabled": True}}
    policy = render(values(**sharing)).one("NetworkPolicy", EXTENDER)["spec"]
    probes, asking = policy["ingress"]
    assert (probes, asking["ports"]) == ({"ports": [{"port": "http"}]}, [{"port": "extender"}])
    scheduler, other = asking["from"]
    assert scheduler["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "scheduler"
    assert other == client


def test_a_cluster_without_network_policies_gets_none() -> None:
    made = render(values(extender={"enabled": True, "networkPolicy": False}))
    assert EXTENDER not in made.names("NetworkPolicy")
    assert EXTENDER in made.names("Service")


def test_the_scheduler_asks_the_extender_about_all_resources_of_ours() -> None:
    sharing = {"domain": "gpu.example.com", "schedulerName": "shares", **BOTH}
    sharing["scheduler"] = {"enabled": True, "deviceTypes": ["fpga"], "weight": 5}
    made = render(values(**sharing))
    configuration = configuration_of(made)
    assert (configuration["apiVersion"], configuration["kind"]) == (
        "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration",
    )  # fmt: skip
    assert configuration["profiles"] == [{"schedulerName": "shares"}]
    election = {"leaderElect": True, "resourceName": OURS, "resourceNamespace": NAMESPACE}
    assert configuration["leaderElection"] == election
    (extender,) = configuration["extenders"]
    resources = extender.pop("managedResources")
    assert extender == {
        "urlPrefix": f"http://{EXTENDER}.{NAMESPACE}.svc:9447", "filterVerb": "filter", "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt", "bindVerb": "bind", "weight": 5, "nodeCacheCapable": True, "ignorable": False,
        "httpTimeout": "15s", "enableHTTPS": False,
    }  # fmt: skip
    assert all(one["ignoredByScheduler"] for one in resources)
    shares = ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared", "rdma", "fpga")
    assert [one["name"] for one in resources] == ["nvidia.com/gpu", *(f"gpu.example.com/{one}" for one in shares)]


def test_both_prove_who_they_are_where_certificates_are_given() -> None:
    made = render(values(**SECURED))
    (extender,) = configuration_of(made)["extenders"]
    assert extender["urlPrefix"].startswith("https://")
    assert extender["enableHTTPS"]
    assert extender["tlsConfig"] == {
        "caFile": "/etc/kubernetes/extender-authority/ca.crt",
        "certFile": "/etc/kubernetes/extender-client/tls.crt",
        "keyFile": "/etc/kubernetes/extender-client/tls.key",
    }
    options = names.read_extender_options(environ_of(made, EXTENDER))
    assert options.tls is not None
    assert options.tls.client_ca is not None
    spec = made.one("Deployment", OURS)["spec"]["template"]["spec"]
    assert {one["secret"]["secretName"] for one in spec["volumes"] if "secret" in one} == {"shown", "mine"}


def test_its_settings_are_those_that_the_process_reads() -> None:
    given = {"enabled": True, "strategy": "FragmentationGradientDescent", "oneInFlight": True}
    environ = environ_of(render(values(extender=given)), EXTENDER)
    options = names.read_extender_options(environ)
    assert (options.strategy, options.one_in_flight) == ("FragmentationGradientDescent", True)
    assert options.listen == "0.0.0.0:9447"
    assert read_sharing_names(environ).scheduler == SCHEDULER


@pytest.mark.parametrize(
    ("sharing", "hint"),
    [
        ({"scheduler": {"enabled": True}}, "needs sharing.extender.enabled"),
        ({**BOTH, "schedulerName": ""}, "needs sharing.schedulerName"),
        ({"extender": {"enabled": True, "tls": {"clientCa": True}}}, "needs sharing.extender.tls.secret"),
        ({**SECURED, "scheduler": {"enabled": True}}, "sharing.scheduler.tls.secret is missing"),
        ({"extender": {"strategy": "Best"}}, "strategy"),
    ],
)
def test_contradictions_are_refused(sharing: dict[str, Any], hint: str) -> None:
    result = template(values(**sharing))
    assert result.code != 0
    assert hint in result.err


def test_a_process_may_not_have_its_name() -> None:
    result = template({**values(**BOTH), "processes": {"extender": {"only": ["devices"]}}})
    assert "processes.extender has the name" in result.err

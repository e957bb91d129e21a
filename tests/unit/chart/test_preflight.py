"""What the Helm chart makes of preflight checks: the configuration that the webhook reads, its Service and rights."""

from typing import Any

import pytest
import yaml

from gpuledger.api.kinds import CA_SECRET, PREFLIGHT_TLS_SECRET
from gpuledger.edge.preflight.configuration import PreflightConfiguration, read_configuration
from gpuledger.edge.preflight.settings import SERVICE
from gpuledger.edge.preflight.webhook_configuration import NAME as WEBHOOK
from gpuledger.edge.webhooks.settings import SERVICE_PORT
from gpuledger.runtime.node_label_settings import INSTANCE_TYPE_LABEL
from gpuledger.runtime.preflight_files import PREFLIGHT_FILE, PREFLIGHT_LISTEN, PREFLIGHT_OWNER
from gpuledger.runtime.settings import NAMESPACE as NAMESPACE_VARIABLE
from support.chart import IMAGE, NAME, NAMESPACE, WITH_SECRET, Manifests, needs_helm, render, template

ON: dict[str, Any] = {**WITH_SECRET, "preflight": {"enabled": True}}
FOLDER = "/etc/gpuledger/preflight"

pytestmark = needs_helm


def with_preflight(values: dict[str, Any] = WITH_SECRET, **given: Any) -> Manifests:
    return render({**values, "preflight": {"enabled": True, **given}})


def configured(made: Manifests) -> PreflightConfiguration:
    """The configuration as the webhook of the main pods reads it."""
    text = made.one("ConfigMap", f"{NAME}-preflight")["data"]["preflight.yaml"]
    return read_configuration(text.encode(), "preflight.yaml")


def pod(made: Manifests) -> dict[str, Any]:
    found: dict[str, Any] = made.one("Deployment", NAME)["spec"]["template"]["spec"]
    return found


def test_it_is_off_by_default() -> None:
    made = render(WITH_SECRET)
    assert SERVICE not in made.names("Service")
    assert not {f"{NAME}-preflight"} & (made.names("ConfigMap") | made.names("Role") | made.names("ClusterRole"))
    assert f"{NAME}-unhook-preflight" not in made.names("Job")
    names = {one["name"] for one in pod(made)["containers"][0]["env"]}
    assert not {PREFLIGHT_FILE, PREFLIGHT_LISTEN} & names


def test_the_defaults_are_a_configuration_that_the_webhook_takes() -> None:
    found = configured(render(ON))
    assert [(check.name, check.image) for check in found.checks] == [
        ("dcgm-diag", "registry.example/gpuledger:0.1.0"),
        ("nccl-loopback", "registry.example/gpuledger:0.1.0"),
    ]
    assert found.namespaces == ("training",)
    assert found.connector.socket_directory == "/var/run/gpuledger"
    assert (found.connector.target, found.connector.authority_file) == ("", "")


def test_values_reach_the_configuration() -> None:
    checks = [
        {"name": "bandwidth", "image": "mine:1", "requiresNetwork": True},
        {"name": "memory", "image": "theirs:2"},
    ]
    found = configured(
        with_preflight(
            checks=checks,
            gangDiscovery={"method": ["volcano", "labels"], "labels": {"gangIdLabel": "g"}},
            gpuDetection={"resourceNames": ["nvidia.com/mig-*"], "deviceClasses": ["gpu.nvidia.com"]},
            webhook={"failurePolicy": "Ignore"},
            connector={"mode": "tcp", "target": "gateway.example:9444", "authority": {"secret": "signer"}},
        )
    )
    assert [(check.name, check.image, check.needs_network) for check in found.checks] == [
        ("bandwidth", "mine:1", True),
        ("memory", "theirs:2", False),
    ]
    assert found.discovery.gang_id_label == "g"
    assert (found.connector.mode, found.connector.target) == ("tcp", "gateway.example:9444")
    assert found.connector.authority_file.endswith("/ca.crt")
    assert found.webhook.failure_policy == "Ignore"


def test_pods_read_the_configuration_and_answer_behind_the_service() -> None:
    made = render(ON)
    (container,) = pod(made)["containers"]
    environ = {one["name"]: one for one in container["env"]}
    assert environ[PREFLIGHT_FILE]["value"] == f"{FOLDER}/preflight.yaml"
    assert {"name": "preflight", "mountPath": FOLDER, "readOnly": True} in container["volumeMounts"]
    assert {"name": "preflight", "configMap": {"name": f"{NAME}-preflight"}} in pod(made)["volumes"]
    (port,) = made.one("Service", SERVICE)["spec"]["ports"]
    number = int(environ[PREFLIGHT_LISTEN]["value"].rpartition(":")[2])
    assert port["port"] == SERVICE_PORT
    assert {"name": port["targetPort"], "containerPort": number} in container["ports"]
    assert made.one("Service", SERVICE)["spec"]["selector"] == made.one("Service", NAME)["spec"]["selector"]


@pytest.mark.parametrize("admission", [True, False])
def test_pods_know_their_namespace_once(admission: bool) -> None:
    made = render({**ON, "admission": {"enabled": admission}, "restrictedAccess": {"enabled": admission}})
    names = [one["name"] for one in pod(made)["containers"][0]["env"]]
    assert names.count(NAMESPACE_VARIABLE) == 1


def test_with_the_charts_gateway_checks_may_report_over_tcp() -> None:
    made = with_preflight({**IMAGE, "healthGateway": {"enabled": True}})
    found = configured(made)
    assert found.connector.target == f"{NAME}-gateway.{NAMESPACE}.svc:9444"
    authority = {"secretName": f"{NAME}-gateway", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert {"name": "preflight-authority", "secret": authority} in pod(made)["volumes"]
    folder = found.connector.authority_file.rpartition("/")[0]
    assert {one["mountPath"] for one in pod(made)["containers"][0]["volumeMounts"]} >= {folder, FOLDER}


@pytest.mark.parametrize(("shares", "expected"), [(True, f"nvidia-dcgm.{NAMESPACE}.svc:5555"), (False, "mine:5555")])
def test_checks_ask_the_host_engine_that_the_chart_shares(shares: bool, expected: str) -> None:
    made = with_preflight(dcgm={"hostengineAddr": "mine:5555", "hostengine": {"enabled": shares}})
    assert configured(made).dcgm.hostengine_addr == expected


def test_rights_are_no_more_than_what_the_webhook_needs() -> None:
    made = render(ON)
    secrets = made.one("Role", f"{NAME}-preflight")["rules"]
    assert secrets[1]["resourceNames"] == [CA_SECRET, PREFLIGHT_TLS_SECRET]
    rules = made.one("ClusterRole", f"{NAME}-preflight")["rules"]
    assert {(*one["resources"], *one["verbs"], *one.get("resourceNames", ())) for one in rules} == {
        ("namespaces", "get"),
        ("mutatingwebhookconfigurations", "create"),
        ("mutatingwebhookconfigurations", "patch", WEBHOOK),
        ("clusterroles", "get", f"{NAME}-preflight"),
    }
    with_classes = with_preflight(gpuDetection={"deviceClasses": ["gpu.nvidia.com"]})
    found = with_classes.one("ClusterRole", f"{NAME}-preflight")["rules"]
    assert any(one["resources"] == ["resourceclaims", "resourceclaimtemplates"] for one in found)


def test_the_webhook_is_taken_away_before_the_release() -> None:
    job = render(ON).one("Job", f"{NAME}-unhook-preflight")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-1] == "preflight"


def test_what_it_makes_goes_with_its_role_so_that_turning_it_off_needs_no_job() -> None:
    made = render(ON)
    (container,) = pod(made)["containers"]
    environ = {one["name"]: one.get("value") for one in container["env"]}
    assert environ[PREFLIGHT_OWNER] in made.names("ClusterRole") - render(WITH_SECRET).names("ClusterRole")


def test_agents_and_the_gateway_answer_the_label_that_the_values_name() -> None:
    made = with_preflight({**IMAGE, "healthGateway": {"enabled": True}}, ncclTopology={"instanceTypeLabel": "machine"})
    for kind, name in (("DaemonSet", "gpu-node-agent"), ("Deployment", f"{NAME}-gateway")):
        (container,) = made.one(kind, name)["spec"]["template"]["spec"]["containers"]
        assert {"name": INSTANCE_TYPE_LABEL, "value": "machine"} in container["env"]


@pytest.mark.parametrize(
    "given",
    [
        {"checks": [{"image": "i"}]},
        {"checks": [{"name": "A_b", "image": "i"}]},
        {"checks": [{"name": "a", "image": "i", "command": ["sh", ""]}]},
        {"checks": [{"name": "a", "image": "i", "args": ["word"] * 65}]},
        {"checks": [{"name": "a", "image": "i", "env": [{"name": "1ST"}]}]},
        {"dcgm": {"diagLevel": 3}},
        {"gangDiscovery": {"method": "slurm"}},
        {"webhook": {"failurePolicy": "Maybe"}},
        {"ncclTopology": {"instanceTypeLabel": "no label"}},
        {"unknown": 1},
    ],
)
def test_what_the_webhook_would_refuse_helm_refuses_first(given: dict[str, Any]) -> None:
    assert template({**WITH_SECRET, "preflight": {"enabled": True, **given}}).code != 0


def test_every_field_of_the_values_is_one_of_the_configuration() -> None:
    text = configured(render(ON)).model_dump_json(by_alias=True)
    assert set(yaml.safe_load(text)) == {
        *(name for name in yaml.safe_load(render(ON).one("ConfigMap", f"{NAME}-preflight")["data"]["preflight.yaml"]))
    }

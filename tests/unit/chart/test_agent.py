"""The chart's DaemonSet of agents: what a pod may do and sees, that the agent takes its settings, what is refused."""

from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from gpuledger.agent import settings as names
from gpuledger.agent.hardware.calls import CLOSE_MAX_S
from gpuledger.agent.plugin.resource import WITHDRAW_GRACE_S
from gpuledger.agent.settings import AgentSettings, HealthSettings, read_agent_settings
from gpuledger.agent.supervisor import STOP_TIMEOUT_S
from gpuledger.api.labels import COMPONENT_BY_APP
from gpuledger.edge.kube.crds import component_daemon_sets
from gpuledger.runtime.settings import (
    DATABASE_URL,
    METRICS_LISTEN,
    NATS_CA,
    NATS_CERTIFICATE,
    NATS_CREDENTIALS,
    NATS_KEY,
    NATS_TOKEN_FILE,
    NATS_URL,
)
from gpuledger.runtime.telemetry_http import parse_address
from support.chart import (
    CHART,
    DATABASE,
    IMAGE,
    KUBE_VERSION,
    NAME,
    NAMESPACE,
    WITH_SECRET,
    WITH_URLS,
    Manifests,
    Object,
    helm,
    needs_helm,
    render,
    template,
)

AGENT = "gpu-node-agent"
LEDGER = "tls://nats.example:4222"
DEVICE_PLUGINS, POD_RESOURCES = "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"
HEALTH_MONITORS = "/var/run/gpuledger"
FOLDERS_OF_THE_NODE = {
    **dict.fromkeys((DEVICE_PLUGINS, names.DEFAULT_STATE_DIR, HEALTH_MONITORS), False),
    **dict.fromkeys((POD_RESOURCES, names.DEFAULT_POD_LOGS), True),
}
"""Whether each is read-only."""

pytestmark = needs_helm


def values(nats: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {**WITH_URLS, "agent": {"enabled": True, "nats": nats or {"url": LEDGER}, **more}}


CASES = {
    "plain": values(),
    "cdi": values(allocate="cdi"),
    "shared-url": values({"urlSecret": "agents", "urlSecretKey": "URL"}),
    "credentials": values({"url": LEDGER, "credentialsSecret": "agents"}),
    "files-of-nodes": values(
        {"url": LEDGER, "credentialsPath": "/etc/agent.creds", "tlsVolume": {"hostPath": {"path": "/etc/agent"}}}
    ),
    "tokens": values(
        {"url": LEDGER, "tlsVolume": {"secret": {"secretName": "ca"}}, "clientCertificate": False},
        authCallout={"enabled": True, "credentialsSecret": "login", "keysSecret": "keys"},
    ),
    "without-mig": values(securityContext={"capabilities": {"add": []}}),
    "privileged": values(
        securityContext={"privileged": True, "allowPrivilegeEscalation": None, "capabilities": {"add": []}}
    ),
    "many": {
        **values(extraEnv=[{"name": "GPULEDGER_SPOOL_MIB", "value": "512"}], xidClasses="79=warning"),
        "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "ml", "app": "mine"},
        "imagePullSecrets": [{"name": "pull"}],
    },
}


@pytest.fixture(params=CASES, ids=str, scope="module")
def made(request: pytest.FixtureRequest) -> Manifests:
    return render(CASES[request.param])


@cache
def plain() -> Manifests:
    return render(values())


def pod_of(made: Manifests) -> Object:
    spec: Object = made.one("DaemonSet", AGENT)["spec"]["template"]["spec"]
    return spec


def container_of(made: Manifests) -> Object:
    (container,) = pod_of(made)["containers"]
    found: Object = container
    return found


def env_of(made: Manifests) -> dict[str, Object]:
    env = container_of(made)["env"]
    found = {one["name"]: one for one in env}
    assert len(found) == len(env), "a variable is given twice"
    return found


def environ(made: Manifests) -> dict[str, str]:
    """What the process gets, where nothing comes from a Secret; files that it is told of are there."""
    fields = {"NODE_NAME": "gpu-01", "HOST_IP": "10.0.0.7"}
    found = {name: fields.get(name) or str(one.get("value", LEDGER)) for name, one in env_of(made).items()}
    return {name: value.replace("$(HOST_IP)", fields["HOST_IP"]) for name, value in found.items()}


def settings_of(made: Manifests, files: Path) -> AgentSettings:
    """What the agent makes of it."""
    found = environ(made)
    for name in (NATS_CREDENTIALS, NATS_CA, NATS_CERTIFICATE, NATS_KEY, NATS_TOKEN_FILE):
        if name in found:
            file = files / PurePosixPath(found[name]).relative_to("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            found[name] = str(file)
    return read_agent_settings(found)


def mounts_of(made: Manifests) -> dict[str, Object]:
    """Every mount by its path, with the volume that it is of."""
    volumes = {one["name"]: one for one in pod_of(made)["volumes"]}
    mounts = container_of(made)["volumeMounts"]
    assert {one["name"] for one in mounts} == volumes.keys()
    return {one["mountPath"]: {**one, "volume": volumes[one["name"]]} for one in mounts}


@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing(case: str) -> None:
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values=CASES[case])
    assert result.code == 0, result
    assert "WARNING" not in result.out


def test_there_is_none_unless_requested_for() -> None:
    made = render(WITH_SECRET)
    assert "DaemonSet" not in made.kinds()
    assert AGENT not in made.names("PodDisruptionBudget")


def test_its_absence_is_noticed_by_its_label_whatever_labels_pods_get(made: Manifests) -> None:
    spec = made.one("DaemonSet", AGENT)["spec"]
    assert COMPONENT_BY_APP[AGENT] == "node-agent"
    assert spec["template"]["metadata"]["labels"]["app"] == AGENT
    assert spec["selector"]["matchLabels"] == {"app": AGENT}
    assert made.one("PodDisruptionBudget", AGENT)["spec"]["selector"]["matchLabels"] == {"app": AGENT}


def test_nothing_of_the_services_reaches_it(made: Manifests) -> None:
    text = str(made.one("DaemonSet", AGENT))
    assert DATABASE not in text
    assert DATABASE_URL not in text
    assert NAME not in {one["secret"]["secretName"] for one in pod_of(made)["volumes"] if "secret" in one}
    assert {
        one["valueFrom"]["secretKeyRef"]["name"] for one in env_of(made).values() if "secretKeyRef" in str(one)
    } <= {"agents"}
    assert pod_of(made)["automountServiceAccountToken"] is False
    assert pod_of(made)["serviceAccountName"] == AGENT
    subjects = [one for obj in made.objects for one in obj.get("subjects") or ()]
    assert AGENT not in {one["name"] for one in subjects}, "its account has no rights"


def test_settings_of_the_services_pods_are_none_of_its_own() -> None:
    extra = {
        "extraEnv": [{"name": "DATABASE_PASSWORD", "value": "x"}], "nodeSelector": {"disk": "ssd"},
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}], "affinity": {"podAffinity": {}},
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}], "priorityClassName": "low", "tolerations": [],
    }  # fmt: skip
    assert pod_of(render({**values(), **extra})) == pod_of(plain())


def test_the_agent_takes_its_settings(made: Manifests, tmp_path: Path) -> None:
    settings = settings_of(made, tmp_path)
    assert settings.node == "gpu-01"
    assert env_of(made)["NODE_NAME"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert settings.exporter_url == "http://10.0.0.7:9400/metrics"
    assert str(settings.state_dir) in mounts_of(made)
    assert str(settings.kubelet.directory) == names.DEFAULT_KUBELET_DIR


def test_defaults_are_those_of_the_agent(tmp_path: Path) -> None:
    given = {"NODE_NAME": "gpu-01", NATS_URL: LEDGER, METRICS_LISTEN: "0.0.0.0:8080"}
    ours = settings_of(plain(), tmp_path)
    given |= {names.HEALTH_SOCKET: f"{HEALTH_MONITORS}/health.sock", names.HEALTH_NAMESPACES: NAMESPACE}
    assert ours == read_agent_settings({**given, names.EXPORTER_URL: ours.exporter_url})
    assert settings_of(render(values(allocate="both")), tmp_path).kubelet.allocate == "both"
    assert settings_of(render(CASES["many"]), tmp_path).spool.bytes_max == 512 << 20
    assert settings_of(render(CASES["many"]), tmp_path).xid_classes == "79=warning"


@pytest.mark.parametrize(
    ("case", "variables", "mounts"),
    [
        ("plain", set(), set()),
        ("shared-url", set(), set()),
        ("credentials", {NATS_CREDENTIALS}, {"/etc/gpuledger/agent.creds"}),
        (
            "files-of-nodes",
            {NATS_CREDENTIALS, NATS_CA, NATS_CERTIFICATE, NATS_KEY},
            {"/etc/gpuledger/agent.creds", "/etc/gpuledger/tls"},
        ),
    ],
)
def test_how_an_agent_shows_who_it_is(case: str, variables: set[str], mounts: set[str]) -> None:
    made = render(CASES[case])
    assert {name for name in env_of(made) if name.startswith("GPULEDGER_NATS_")} == variables
    found = {path: one for path, one in mounts_of(made).items() if path.startswith("/etc/")}
    assert found.keys() == mounts
    assert all(one["readOnly"] for one in found.values())
    for name in variables:
        file = PurePosixPath(env_of(made)[name]["value"])
        assert {str(file), str(file.parent)} & mounts


def test_an_agent_sees_its_own_nodes_credentials_alone() -> None:
    mount = mounts_of(render(CASES["credentials"]))["/etc/gpuledger/agent.creds"]
    assert mount["subPathExpr"] == "$(NODE_NAME)"
    assert mount["volume"]["secret"]["secretName"] == "agents"
    shared = env_of(render(CASES["shared-url"]))[NATS_URL]
    assert shared["valueFrom"] == {"secretKeyRef": {"name": "agents", "key": "URL"}}


def test_which_folders_of_the_node_it_has(made: Manifests) -> None:
    mounts = mounts_of(made)
    found = {path: bool(one.get("readOnly")) for path, one in mounts.items() if "hostPath" in one["volume"]}
    for path, one in mounts.items():
        if "hostPath" in one["volume"] and not path.startswith("/etc/gpuledger"):
            assert one["volume"]["hostPath"]["path"] == path, "sockets are named by the node's paths"
    assert FOLDERS_OF_THE_NODE.items() <= found.items()
    assert all(found[path] for path in found.keys() - FOLDERS_OF_THE_NODE.keys())


@pytest.mark.parametrize(("allocate", "folders"), [("env", set()), ("cdi", {"/a", "/b"}), ("both", {"/a", "/b"})])
def test_specifications_of_cdi_are_seen_where_they_are_used(allocate: str, folders: set[str], tmp_path: Path) -> None:
    made = render(values(allocate=allocate, cdi={"kind": "example.com/gpu", "directories": ["/a", "/b"]}))
    assert mounts_of(made).keys() - FOLDERS_OF_THE_NODE.keys() - {"/tmp"} == folders
    kubelet = settings_of(made, tmp_path).kubelet
    assert {str(path) for path in kubelet.cdi_dirs} >= folders
    assert kubelet.cdi_kind == ("example.com/gpu" if folders else names.DEFAULT_CDI_KIND)


def test_another_kubelets_folder_is_mounted_and_named() -> None:
    made = render(values(kubeletDirectory="/data/kubelet", stateDirectory="/data/agent"))
    assert {"/data/kubelet/device-plugins", "/data/kubelet/pod-resources", "/data/agent"} < mounts_of(made).keys()
    assert {names.KUBELET_DIR: "/data/kubelet", names.STATE_DIR: "/data/agent"}.items() <= environ(made).items()


def test_folders_are_mounted_where_they_are_named() -> None:
    assert not {names.RUNTIME_PROXY_DIR, names.DEVICES_DIR} & environ(plain()).keys()
    made = render(values(runtimeProxyDirectory="/proxy", devicesDirectory="/devices"))
    assert {names.RUNTIME_PROXY_DIR: "/proxy", names.DEVICES_DIR: "/devices"}.items() <= environ(made).items()
    assert ["readOnly" in mounts_of(made)[one] for one in ("/proxy", "/devices")] == [False, True]


def test_health_monitors_have_a_socket_in_a_folder_of_the_node(tmp_path: Path) -> None:
    given = {"directory": "/a", "podLogsDirectory": "/b", "namespaces": ["monitoring", NAMESPACE]}
    made = render(values(healthMonitors=given))
    expected = HealthSettings(Path("/a/health.sock"), frozenset({NAMESPACE, "monitoring"}), Path("/b"))
    assert settings_of(made, tmp_path).health == expected
    assert {"/a", "/b"} < mounts_of(made).keys()
    without = render(values(healthMonitors={"enabled": False}))
    assert settings_of(without, tmp_path).health == HealthSettings()
    assert {HEALTH_MONITORS, names.DEFAULT_POD_LOGS}.isdisjoint(mounts_of(without))


def test_it_may_do_what_the_driver_requests_for_and_no_more() -> None:
    made = plain()
    assert container_of(made)["securityContext"] == {
        "runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False, "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN", "SYSLOG"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert pod_of(made)["hostPID"] is True
    assert {"hostNetwork", "hostIPC"}.isdisjoint(pod_of(made))


@pytest.mark.parametrize(("case", "divides"), [("plain", True), ("without-mig", False), ("privileged", True)])
def test_the_runtime_is_requested_for_no_more_than_it_grants(case: str, divides: bool) -> None:
    env = {name: one["value"] for name, one in env_of(render(CASES[case])).items() if name.startswith("NVIDIA_")}
    both = {"NVIDIA_MIG_CONFIG_DEVICES": "all", "NVIDIA_MIG_MONITOR_DEVICES": "all"}
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility", **(both if divides else {}),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("own", "components", "expected"),
    [("", "", None), ("", "nvidia", "nvidia"), ("mine", "nvidia", "mine"), ("mine", "", "mine")],
)
def test_its_runtime_class_is_its_own_or_the_components(own: str, components: str, expected: str | None) -> None:
    given = {**values(runtimeClassName=own), "components": {"runtimeClassName": components}}
    assert pod_of(render(given)).get("runtimeClassName") == expected


def test_other_affinities_and_tolerations_are_possible() -> None:
    assert pod_of(plain())["tolerations"] == [{"operator": "Exists"}]
    own: dict[str, Any] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    pod = pod_of(render(values(affinity=own, tolerations=[{"key": "gpu"}])))
    assert (pod["affinity"], pod["tolerations"]) == (own, [{"key": "gpu"}])


def test_it_is_stored_as_the_components_are() -> None:
    made = plain()
    shipped = component_daemon_sets()[0]["spec"]["template"]["spec"]
    assert pod_of(made)["priorityClassName"] == shipped["priorityClassName"]
    budgets = [made.one("PodDisruptionBudget", name)["spec"]["minAvailable"] for name in (AGENT, "nvidia-dcgm")]
    assert len(set(budgets)) == 1
    resources = container_of(made)["resources"]
    assert resources["requests"] == resources["limits"]
    assert "VerticalPodAutoscaler" not in made.kinds()


def test_it_is_replaced_in_parts_and_has_time_to_end() -> None:
    made = render(values(maxUnavailable=3))
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}
    assert made.one("DaemonSet", AGENT)["spec"]["updateStrategy"] == strategy
    needed = STOP_TIMEOUT_S + CLOSE_MAX_S + WITHDRAW_GRACE_S
    assert pod_of(made)["terminationGracePeriodSeconds"] > needed


def test_a_stuck_part_restarts_it_and_a_slow_start_does_not() -> None:
    container = container_of(plain())
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/metrics", "liveness": "/healthz", "readiness": "/healthz"}
    _, port = parse_address(environ(plain())[METRICS_LISTEN])
    assert container["ports"] == [{"name": "http", "containerPort": port}]


def test_a_pod_monitor_finds_the_agents_and_names_their_nodes() -> None:
    made = render(CASES["many"])
    monitor = made.one("PodMonitor", AGENT)
    labels = made.one("DaemonSet", AGENT)["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["metadata"]["labels"]["release"] == "prom"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in container_of(made)["ports"]}
    assert {one["targetLabel"] for one in endpoint["relabelings"]} == {"node"}
    assert "PodMonitor" not in plain().kinds()


def test_the_image_is_the_releases_or_its_own() -> None:
    assert container_of(plain())["image"] == "registry.example/gpuledger:0.1.0"
    assert container_of(render(values(image="mine/agent@sha256:1")))["image"] == "mine/agent@sha256:1"
    assert container_of(plain())["command"] == ["python", "-m", "gpuledger.agent"]


CALLOUT = {"enabled": True, "credentialsSecret": "login", "keysSecret": "keys"}

WRONG: list[tuple[dict[str, Any], str]] = [
    ({**IMAGE, "agent": {"authCallout": CALLOUT}}, "agent.authCallout is for a NATS server of your own"),
    ({**WITH_SECRET, "agent": {"authCallout": CALLOUT}}, "agent.authCallout needs agent.nats.url"),
    (values({"urlSecret": "agents"}, authCallout=CALLOUT), "agent.authCallout needs agent.nats.url"),
    (
        values({"url": LEDGER, "credentialsSecret": "a"}, authCallout=CALLOUT),
        "agent.nats.credentialsSecret and agent.nats.credentialsPath contradict agent.authCallout",
    ),
    (values(authCallout={**CALLOUT, "credentialsSecret": ""}), "agent.authCallout.credentialsSecret is required"),
    (values(authCallout={**CALLOUT, "keysSecret": ""}), "agent.authCallout.keysSecret is required"),
    (values(authCallout={**CALLOUT, "account": "UABC"}), "agent.authCallout.account: Does not match pattern"),
    ({**WITH_SECRET, "agent": {"enabled": True}}, "agent.enabled needs to know where the ledger is"),
    (values({"url": LEDGER, "urlSecret": "agents"}), "agent.nats.url and agent.nats.urlSecret are both given"),
    ({**IMAGE, "agent": {"nats": {"url": LEDGER}}}, "this release brings one"),
    (values({"urlSecret": NAME}), "agent.nats.urlSecret is the services' Secret"),
    ({**WITH_SECRET, "agent": {"enabled": True, "nats": {"urlSecret": "given"}}}, "is the services' Secret"),
    (
        values({"url": LEDGER, "credentialsSecret": "a", "credentialsPath": "/a"}),
        "agent.nats.credentialsSecret and agent.nats.credentialsPath are both given",
    ),
    (values({"url": "nats://user:password@nats.example"}), "agent.nats.url is not a URL without a login"),
    (values(allocate="mounts"), "agent.allocate: agent.allocate must be one of"),
    (values(hardware="recorded:x"), 'agent.hardware is "recorded:x", and not nvml, or simulated cards'),
    (values(cdi={"directories": []}), "agent.cdi.directories: Array must have at least 1 items"),
    (
        values(kubeletDirectory="/var/lib/kubelet/"),
        'agent.kubeletDirectory is "/var/lib/kubelet/", and not a directory that begins',
    ),
    (values(securityContext={"capabilities": {"add": "[]"}}), "securityContext.capabilities.add: Invalid type"),
    (values(natsUrl=LEDGER), "Additional property natsUrl is not allowed"),
]


@pytest.mark.parametrize(("given", "expected"), WRONG, ids=[expected for _, expected in WRONG])
def test_wrong_values_are_refused_in_messages(given: dict[str, Any], expected: str) -> None:
    result = template(given)
    assert result.code != 0
    assert expected in result.err

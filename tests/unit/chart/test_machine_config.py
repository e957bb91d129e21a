"""The chart's DaemonSet of agents of machine configuration: what a pod may do and sees, and on which nodes it stays."""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.configagent.process import ENDING_MAX_S
from gpuledger.configagent.settings import (
    DEFAULT_FACTS,
    DEFAULT_HOST_ROOT,
    DEFAULT_STATE,
    read_config_agent_settings,
)
from gpuledger.runtime.settings import METRICS_LISTEN
from gpuledger.runtime.telemetry_http import parse_address
from support.chart import (
    CHART,
    DATABASE,
    KUBE_VERSION,
    NAME,
    NAMESPACE,
    WITH_URLS,
    Manifests,
    Object,
    helm,
    needs_helm,
    render,
    template,
)

pytestmark = needs_helm

AGENT = "machine-config-agent"
GPU_AGENTS = {"enabled": True, "nats": {"url": "tls://nats.example:4222"}}
KEEPS_AWAY = ("unschedulable", "not-ready", "unreachable")


def values(**more: Any) -> dict[str, Any]:
    return {**WITH_URLS, "machineConfig": {"enabled": True, **more}}


MANY = {
    **values(
        image="mine/agent@sha256:1", stateDirectory="/data/state", port=9000, nodeSelector={"gpu": "yes"},
        affinity={"nodeAffinity": {}}, tolerations=[{"key": "gpu"}], maxUnavailable=3,
        extraEnv=[{"name": "TZ", "value": "UTC"}],
    ),
    "agent": GPU_AGENTS,
    "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"team": "ml", "app": "mine"},
    "imagePullSecrets": [{"name": "pull"}],
}  # fmt: skip
CASES = {"plain": values(), "many": MANY}


@pytest.fixture(params=CASES, ids=str)
def made(request: pytest.FixtureRequest) -> Manifests:
    return render(CASES[request.param])


def pod_of(made: Manifests, name: str = AGENT) -> Object:
    spec: Object = made.one("DaemonSet", name)["spec"]["template"]["spec"]
    return spec


def container_of(made: Manifests, name: str = AGENT) -> Object:
    (container,) = pod_of(made, name)["containers"]
    found: Object = container
    return found


def environ(made: Manifests, name: str = AGENT) -> dict[str, Any]:
    env = container_of(made, name)["env"]
    found = {one["name"]: one.get("value", one.get("valueFrom")) for one in env}
    assert len(found) == len(env), "a variable is given twice"
    return found


def folders(made: Manifests, name: str = AGENT) -> dict[str, str]:
    """The folders of the node, by where they are mounted."""
    paths = {one["name"]: one["hostPath"]["path"] for one in pod_of(made, name)["volumes"] if "hostPath" in one}
    return {
        one["mountPath"]: paths[one["name"]] for one in container_of(made, name)["volumeMounts"] if one["name"] in paths
    }


@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing(case: str) -> None:
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values=CASES[case])
    assert result.code == 0, result
    assert "WARNING" not in result.out


def test_nothing_of_it_is_there_until_somebody_turns_it_on() -> None:
    made = render({**WITH_URLS, "agent": GPU_AGENTS})
    assert all("machine-config" not in one["metadata"]["name"] for one in made.objects)
    assert "GPULEDGER_CONFIG_FACTS_DIR" not in environ(made, "gpu-node-agent")


def test_it_is_root_of_its_node_and_sees_all_of_it(made: Manifests) -> None:
    pod, container = pod_of(made), container_of(made)
    assert container["command"] == ["python", "-m", "gpuledger.configagent"]
    assert container["securityContext"]["privileged"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (pod["hostPID"], pod["hostNetwork"], pod["dnsPolicy"]) == (True, True, "ClusterFirstWithHostNet")
    env = environ(made)
    assert folders(made)[env["GPULEDGER_HOST_ROOT"]] == "/"
    assert env["GPULEDGER_CONFIG_STATE_DIR"].startswith("/host/")
    assert env["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_agent_takes_its_settings(made: Manifests, tmp_path: Path) -> None:
    env = {name: value for name, value in environ(made).items() if isinstance(value, str)} | {"NODE_NAME": "w1"}
    here = {name: value.replace("/host", str(tmp_path)) for name, value in env.items()}
    settings = read_config_agent_settings(here)
    state = Path(env["GPULEDGER_CONFIG_STATE_DIR"].replace("/host", str(tmp_path)))
    assert (settings.node, settings.root, settings.state) == ("w1", tmp_path, state)
    assert settings.facts == state / DEFAULT_FACTS
    assert settings.systemctl == ("chroot", str(tmp_path), "systemctl")


def test_defaults_are_those_of_the_agent() -> None:
    given = environ(render(values()))
    assert given["GPULEDGER_HOST_ROOT"] == DEFAULT_HOST_ROOT
    assert given["GPULEDGER_CONFIG_STATE_DIR"] == f"{DEFAULT_HOST_ROOT}/{DEFAULT_STATE}"


def test_the_agent_of_gpus_finds_its_reports() -> None:
    made = render(MANY)
    folder = environ(made, "gpu-node-agent")["GPULEDGER_CONFIG_FACTS_DIR"]
    assert environ(made)["GPULEDGER_CONFIG_FACTS_DIR"] == f"/host{folder}"
    assert folders(made, "gpu-node-agent")[folder] == folder == "/data/state/reports"


def test_nothing_of_the_services_reaches_it(made: Manifests) -> None:
    text = str(made.one("DaemonSet", AGENT))
    assert DATABASE not in text
    assert "secret" not in text.lower().replace("imagepullsecrets", "")
    assert (pod_of(made)["serviceAccountName"], pod_of(made)["automountServiceAccountToken"]) == (AGENT, True)


def test_it_asks_for_no_more_than_it_needs(made: Manifests) -> None:
    assert container_of(made)["resources"]["requests"] == {"cpu": "50m", "memory": "64Mi"}
    rules = made.one("ClusterRole", AGENT)["rules"]
    assert [(one["resources"], one["verbs"]) for one in rules] == [
        (["nodes"], ["list", "watch", "patch"]),
        (["renderedmachineconfigs"], ["get"]),
    ]
    subjects = made.one("ClusterRoleBinding", AGENT)["subjects"]
    assert subjects == [{"kind": "ServiceAccount", "name": AGENT, "namespace": NAMESPACE}]
    assert AGENT not in {*made.names("Role"), *made.names("RoleBinding")}


def test_it_stays_on_nodes_that_others_leave() -> None:
    pod = pod_of(render(values()))
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["priorityClassName"] == "system-node-critical"
    budget = render(values()).one("PodDisruptionBudget", AGENT)["spec"]
    assert (budget["minAvailable"], budget["selector"]["matchLabels"]) == (1_000_000, {"app": AGENT})
    chosen = pod_of(render(MANY))
    assert (chosen["tolerations"], chosen["affinity"]) == ([{"key": "gpu"}], {"nodeAffinity": {}})
    assert chosen["nodeSelector"] == {"kubernetes.io/os": "linux", "gpu": "yes"}
    assert pod["terminationGracePeriodSeconds"] > ENDING_MAX_S
    strategy = render(MANY).one("DaemonSet", AGENT)["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 3}}


def test_its_pods_are_found_whatever_labels_pods_get(made: Manifests) -> None:
    spec = made.one("DaemonSet", AGENT)["spec"]
    assert spec["selector"]["matchLabels"] == {"app": AGENT}
    assert spec["template"]["metadata"]["labels"]["app"] == AGENT


def test_probes_and_monitor_reach_its_port(made: Manifests) -> None:
    container = container_of(made)
    _, port = parse_address(environ(made)[METRICS_LISTEN])
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    paths = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {one["path"] for one in paths.values()} == {"/metrics", "/healthz"}
    assert {one["port"] for one in paths.values()} == {"http"}
    monitors = [one for one in made.objects if (one["kind"], one["metadata"]["name"]) == ("PodMonitor", AGENT)]
    for monitor in monitors:
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], monitor["metadata"]["labels"]["release"]) == ("http", "prom")
        assert {one["targetLabel"] for one in endpoint["relabelings"]} == {"node"}
    assert len(monitors) == ("PodMonitor" in made.kinds())


def test_the_image_is_the_releases_or_its_own() -> None:
    assert container_of(render(values()))["image"] == "registry.example/gpuledger:0.1.0"
    assert container_of(render(MANY))["image"] == "mine/agent@sha256:1"


@pytest.mark.parametrize("name", [NAME, f"{NAME}-decisions"])
def test_services_know_their_node_and_start_on_one_that_keeps_others_away(name: str) -> None:
    made = render({**WITH_URLS, "processes": {"decisions": {"only": ["pools"]}}, "tolerations": [{"key": "mine"}]})
    pod = made.one("Deployment", name)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (node,) = [one for one in container["env"] if one["name"] == "NODE_NAME"]
    assert node["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    first, *others = pod["tolerations"]
    assert first == {"key": "mine"}
    starts = {one["key"] for one in others if one["effect"] == "NoSchedule"}
    assert starts == {f"node.kubernetes.io/{one}" for one in KEEPS_AWAY}
    leaves = {one["key"]: one["tolerationSeconds"] for one in others if one["effect"] == "NoExecute"}
    assert leaves == dict.fromkeys(("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"), 300)


WRONG: list[tuple[dict[str, Any], str]] = [
    (values(enabled="yes"), "machineConfig.enabled: Invalid type"),
    (values(stateDirectory="state/"), 'machineConfig.stateDirectory is "state/", and not a directory that begins'),
    (values(port=0), "machineConfig.port: Must be greater than or equal to 1"),
    (values(maxUnavailable="110%"), "machineConfig.maxUnavailable: Does not match pattern"),
    (values(namespace="machine-config-system"), "Additional property namespace is not allowed"),
]


@pytest.mark.parametrize(("given", "expected"), WRONG, ids=[expected for _, expected in WRONG])
def test_wrong_values_are_refused_in_messages(given: dict[str, Any], expected: str) -> None:
    result = template(given)
    assert result.code != 0
    assert expected in result.err

"""The servers that the chart brings unless others are named: what runs, as whom, and who gets which Secret."""

from itertools import pairwise
from typing import Any

import pytest

from gpuledger.api.bundled import NATS_LOGINS, PARTS, BundledServers
from gpuledger.runtime.settings import NATS_CA, NATS_CREDENTIALS, NATS_REPLICAS
from support.chart import (
    DATABASE,
    IMAGE,
    NAME,
    NAMESPACE,
    NATS,
    Manifests,
    Object,
    is_hook,
    needs_helm,
    render,
    template,
)

pytestmark = needs_helm

SERVERS = BundledServers(NAME, NAMESPACE)
THREE: dict[str, Any] = {**IMAGE, "nats": {"replicas": 3}}
OWN_DATABASE: dict[str, Any] = {**IMAGE, "servers": {"databaseUrl": DATABASE}}
OWN_NATS: dict[str, Any] = {**IMAGE, "servers": {"natsUrl": NATS}}
PROOF: dict[str, Any] = {
    **IMAGE,
    "logProof": {"enabled": True},
    "logArchive": {"enabled": True, "location": "s3://fleet/log"},
}
LOGIN_OF = {
    NAME: "services",
    f"{NAME}-migrate-1": "operator",
    "gpu-log-archive": "operator",
    "gpu-log-proof": "reader",
}


def pods(values: dict[str, Any]) -> dict[str, Object]:
    return {one["metadata"]["name"]: pod["spec"] for one, pod in render(values).templates()}


def secrets_of(pod: Object) -> set[str]:
    """Every Secret that a pod can see."""
    (container,) = pod["containers"]
    references = [one.get("valueFrom", {}).get("secretKeyRef") for one in container["env"]]
    mounted = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    return mounted | {one["name"] for one in references if one}


def variables(pod: Object) -> dict[str, Any]:
    (container,) = pod["containers"]
    return {one["name"]: one.get("value") for one in container["env"]}


def test_an_image_is_all_that_has_to_be_given() -> None:
    made = render(IMAGE)
    assert made.names("StatefulSet") == {f"{NAME}-nats", f"{NAME}-postgres"}
    assert {NAME, "gpu-agent-auth"} == made.names("Deployment")
    assert made.names("DaemonSet") == {"gpu-node-agent"}
    assert made.names("Secret") == set(), "a job makes them"


@pytest.mark.parametrize(
    ("values", "sets", "parts"),
    [
        (OWN_DATABASE, {f"{NAME}-nats"}, ["--no-postgres"]),
        (OWN_NATS, {f"{NAME}-postgres"}, ["--no-nats"]),
        ({**IMAGE, "servers": {"existingSecret": "given"}}, set(), None),
        ({**IMAGE, "servers": {"natsUrl": NATS, "databaseUrl": DATABASE}}, set(), None),
    ],
)
def test_servers_that_are_named_take_precedence(
    values: dict[str, Any], sets: set[str], parts: list[str] | None
) -> None:
    made = render(values)
    assert made.names("StatefulSet") == sets
    jobs = {one["metadata"]["name"]: pod for one, pod in made.templates()}
    assert (f"{NAME}-credentials" in jobs) is (parts is not None)
    if parts is not None:
        args = jobs[f"{NAME}-credentials"]["spec"]["containers"][0]["args"]
        assert args == ["credentials", "create", "--namespace", NAMESPACE, "--name", NAME, *parts]


def test_one_server_of_each_is_reached_where_it_is() -> None:
    env = variables(pods(OWN_NATS)[NAME])
    assert (NATS_CREDENTIALS in env, env["PGSSLMODE"]) == (False, "verify-full")
    env = variables(pods(OWN_DATABASE)[NAME])
    assert (NATS_CREDENTIALS in env, "PGSSLMODE" in env) == (True, False)
    made = render(OWN_DATABASE)
    assert made.one("Secret", NAME)["stringData"] == {"DATABASE_URL": DATABASE}


@pytest.mark.parametrize("values", [IMAGE, PROOF, THREE])
def test_each_pod_sees_its_own_secret_alone(values: dict[str, Any]) -> None:
    found = {name: secrets_of(pod) for name, pod in pods(values).items()}
    servers = {f"{NAME}-{part}": {f"{NAME}-{part}"} for part in ("nats", "postgres")}
    clients = {name: {SERVERS.secret(login)} for name, login in LOGIN_OF.items() if name in found}
    expected = servers | clients | {"gpu-agent-auth": {SERVERS.secret("callout")}}
    assert {name: secrets for name, secrets in found.items() if secrets} == expected
    agent = render(values).one("DaemonSet", "gpu-node-agent")["spec"]["template"]["spec"]
    assert secrets_of(agent) == {SERVERS.secret("agents")}


@pytest.mark.parametrize("values", [IMAGE, THREE])
def test_the_servers_are_confined_and_keep_their_data(values: dict[str, Any]) -> None:
    made = render(values)
    for name in made.names("StatefulSet"):
        spec = made.one("StatefulSet", name)["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 65532
        assert pod["automountServiceAccountToken"] is False
        (claim,) = spec["volumeClaimTemplates"]
        assert claim["metadata"]["name"] == "data"
        assert "helm.sh/chart" not in claim["metadata"]["labels"], "a claim can never change"
        assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]


def test_three_servers_find_each_other_and_one_may_be_drained() -> None:
    made, name = render(THREE), f"{NAME}-nats"
    spec = made.one("StatefulSet", name)["spec"]
    args = spec["template"]["spec"]["containers"][0]["args"]
    assert [host for option, host in pairwise(args) if option == "--peer"] == list(SERVERS.nats_peers())
    assert (spec["replicas"], spec["podManagementPolicy"]) == (3, "Parallel")
    peers = made.one("Service", spec["serviceName"])["spec"]
    assert (peers["clusterIP"], peers["publishNotReadyAddresses"]) == ("None", True)
    assert made.one("PodDisruptionBudget", name)["spec"]["maxUnavailable"] == 1
    assert variables(pods(THREE)[f"{NAME}-migrate-1"])[NATS_REPLICAS] == "3"
    assert f"{NAME}-nats" not in render(IMAGE).names("PodDisruptionBudget")


def test_without_persistence_there_is_no_volume() -> None:
    values = {**IMAGE, "nats": {"persistence": {"enabled": False}}}
    spec = render(values).one("StatefulSet", f"{NAME}-nats")["spec"]
    assert "volumeClaimTemplates" not in spec
    assert {"name": "data", "emptyDir": {}} in spec["template"]["spec"]["volumes"]


def test_the_database_is_migrated_beside_the_servers_and_the_services_wait_for_it() -> None:
    made = render(IMAGE)
    job = made.one("Job", f"{NAME}-migrate-1")
    assert not is_hook(job), "a hook would wait for servers that Helm starts after it"
    assert job["spec"]["template"]["spec"]["containers"][0]["args"] == ["migrate", "--wait", "1800"]
    (waits,) = made.one("Deployment", NAME)["spec"]["template"]["spec"]["initContainers"]
    assert waits["args"] == ["migrate", "--check", "--wait", "1800"]
    assert is_hook(render({**IMAGE, "servers": {"existingSecret": "given"}}).one("Job", f"{NAME}-migrate"))


def test_the_jobs_of_credentials_may_write_these_secrets_and_no_others(made: Manifests) -> None:
    for name in (f"{NAME}-credentials", f"{NAME}-renewal"):
        create, change = made.one("Role", name)["rules"]
        assert (create["verbs"], "resourceNames" in create) == (["create"], False)
        assert (change["verbs"], set(change["resourceNames"])) == (["get", "update"], set(map(SERVERS.secret, PARTS)))
        assert name not in made.names("ClusterRole")


def test_agents_log_in_by_a_token_of_their_own_audience(made: Manifests) -> None:
    pod = made.one("DaemonSet", "gpu-node-agent")["spec"]["template"]["spec"]
    env = variables(pod)
    assert env["NATS_URL"] == f"tls://{SERVERS.nats_host}:4222"
    assert (env["GPULEDGER_NATS_TOKEN_FILE"], env[NATS_CA]) == (
        "/etc/gpuledger/token/token",
        "/etc/gpuledger/tls/ca.crt",
    )
    (projected,) = [one["projected"]["sources"] for one in pod["volumes"] if "projected" in one]
    assert projected == [
        {"serviceAccountToken": {"audience": "gpuledger-agents", "expirationSeconds": 3600, "path": "token"}}
    ]
    rules = made.one("ClusterRole", "gpu-agent-auth")["rules"]
    assert rules == [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]
    env = variables(made.one("Deployment", "gpu-agent-auth")["spec"]["template"]["spec"])
    assert env["GPULEDGER_CALLOUT_SERVICE_ACCOUNT"] == f"{NAMESPACE}/gpu-node-agent"


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ({"agent": {"enabled": False}}, False),
        ({"servers": {"existingSecret": "given"}}, False),
        ({"servers": {"existingSecret": "given"}, "agent": {"nats": {"url": "tls://nats.example:4222"}}}, True),
    ],
)
def test_agents_run_where_they_can_reach_a_ledger(values: dict[str, Any], runs: bool) -> None:
    made = render({**IMAGE, **values})
    assert ("gpu-node-agent" in made.names("DaemonSet")) is runs
    assert "gpu-agent-auth" not in made.names("Deployment")


def test_every_login_has_a_secret() -> None:
    assert {*NATS_LOGINS} <= {*PARTS}


def test_secrets_and_hosts_are_called_as_the_chart_calls_them(made: Manifests) -> None:
    assert {f"{NAME}-nats", f"{NAME}-nats-peers", f"{NAME}-postgres"} <= made.names("Service")
    assert SERVERS.nats_host.startswith(f"{NAME}-nats.{NAMESPACE}.")
    assert template(IMAGE).code == 0


@pytest.fixture
def made() -> Manifests:
    return render(IMAGE)

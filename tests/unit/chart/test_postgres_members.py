"""`postgresql.replicas=3`: three servers that Patroni runs, who may do what for it, and which is the database."""

from itertools import pairwise
from typing import Any

import pytest

from gpuledger.api.bundled import PATRONI_PORT, POSTGRES_PORT, BundledServers
from gpuledger.local.pods.patroni_config import LEADER_ROLE, ROLE_LABEL, SCOPE_LABEL, member_of
from support.chart import IMAGE, NAME, NAMESPACE, Object, needs_helm, render, template
from support.rights import granted

pytestmark = needs_helm

POSTGRES = f"{NAME}-postgres"
PEERS = BundledServers(NAME, NAMESPACE).postgres_peers()
THREE: dict[str, Any] = {**IMAGE, "postgresql": {"replicas": 3}}


def stateful_set(values: dict[str, Any] = THREE) -> Object:
    spec: Object = render(values).one("StatefulSet", POSTGRES)["spec"]
    return spec


def test_three_servers_find_each_other_and_keep_their_data() -> None:
    spec = stateful_set()
    (container,) = spec["template"]["spec"]["containers"]
    args = container["args"]
    assert tuple(host for option, host in pairwise(args) if option == "--peer") == PEERS
    assert (spec["replicas"], spec["podManagementPolicy"], len(spec["volumeClaimTemplates"])) == (3, "Parallel", 1)
    peers = render(THREE).one("Service", spec["serviceName"])["spec"]
    assert (peers["clusterIP"], peers["publishNotReadyAddresses"]) == ("None", True)
    assert {port["port"] for port in peers["ports"]} == {POSTGRES_PORT, PATRONI_PORT}
    member = member_of(f"{POSTGRES}-1", PEERS, NAMESPACE)
    assert (member.cluster, member.begins) == (POSTGRES, False)


def test_the_service_leads_to_the_leader() -> None:
    service = render(THREE).one("Service", POSTGRES)["spec"]
    labels = stateful_set()["template"]["metadata"]["labels"]
    assert service["selector"].pop(ROLE_LABEL) == LEADER_ROLE
    assert service["selector"].items() <= labels.items()
    assert labels[SCOPE_LABEL] == POSTGRES, "Patroni finds its members by it"
    assert ROLE_LABEL not in labels, "Patroni sets it"
    assert ROLE_LABEL not in render(IMAGE).one("Service", POSTGRES)["spec"]["selector"]


def test_patroni_answers_the_probes_over_tls() -> None:
    (container,) = stateful_set()["template"]["spec"]["containers"]
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
    assert [one["path"] for one in probes] == ["/liveness", "/liveness", "/readiness"]
    assert {(one["port"], one["scheme"]) for one in probes} == {("patroni", "HTTPS")}


def test_only_three_servers_have_an_account_and_it_writes_what_is_theirs_alone() -> None:
    made = render(THREE)
    pod = made.one("StatefulSet", POSTGRES)["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (POSTGRES, True)
    rules = granted(made, POSTGRES)
    assert {(one.resource, one.verb) for one in rules if not one.name} == {
        *(("configmaps", verb) for verb in ("create", "list", "watch")),
        *(("pods", verb) for verb in ("list", "watch")),
    }
    maps = {f"{POSTGRES}-{name}" for name in ("config", "leader", "sync", "failover")}
    assert {one.name for one in rules if (one.resource, one.verb) == ("configmaps", "patch")} == maps
    names = {f"{POSTGRES}-{number}" for number in range(3)}
    assert {one.name for one in rules if (one.resource, one.verb) == ("pods", "patch")} == names
    assert {one.namespace for one in rules} == {NAMESPACE}
    assert POSTGRES not in render(IMAGE).names("ServiceAccount")


def test_one_server_at_a_time_may_be_drained() -> None:
    assert render(THREE).one("PodDisruptionBudget", POSTGRES)["spec"]["maxUnavailable"] == 1
    assert POSTGRES not in render(IMAGE).names("PodDisruptionBudget")
    spread = stateful_set()["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert spread["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]["topologyKey"]


@pytest.mark.parametrize("values", [THREE, IMAGE])
def test_the_services_log_in_as_to_one_server(values: dict[str, Any]) -> None:
    args = render(values).one("Job", f"{NAME}-credentials")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args == ["credentials", "create", "--namespace", NAMESPACE, "--name", NAME]


def test_three_servers_without_volumes_are_refused() -> None:
    result = template({**IMAGE, "postgresql": {"replicas": 3, "persistence": {"enabled": False}}}, "lab")
    assert result.code != 0
    assert "each of three has a volume" in result.err

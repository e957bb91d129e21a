"""`postgresql.replicas=3`: a Cluster for CloudNativePG in place of the chart's own server, and who finds it how."""

from typing import Any

import pytest

from support.chart import DATABASE, IMAGE, NAME, NATS, Manifests, Object, manifests, needs_helm, template

pytestmark = needs_helm

CLUSTER = f"{NAME}-postgres"
OPERATOR = ("--api-versions", "postgresql.cnpg.io/v1/Cluster")
THREE: dict[str, Any] = {**IMAGE, "postgresql": {"replicas": 3}}


def rendered(values: dict[str, Any] = THREE) -> Manifests:
    result = template(values, "lab", *OPERATOR)
    assert result.code == 0, result.err
    return manifests(result.out)


def variables(pod: Object) -> dict[str, Any]:
    (container,) = pod["containers"]
    return {one["name"]: one for one in container["env"]}


def test_the_cluster_takes_the_place_of_the_charts_server() -> None:
    made = rendered()
    assert made.names("Cluster") == {CLUSTER}
    assert made.names("StatefulSet") == {f"{NAME}-nats"}
    assert CLUSTER not in made.names("Service"), "the operator makes the Services"
    args = made.one("Job", f"{NAME}-credentials")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[-1] == "--no-postgres"


def test_a_committed_transaction_is_on_two_servers_and_survives_a_failover() -> None:
    spec = rendered().one("Cluster", CLUSTER)["spec"]
    assert spec["instances"] == 3
    synchronous = {"method": "any", "number": 1, "dataDurability": "required", "failoverQuorum": True}
    assert spec["postgresql"]["synchronous"] == synchronous
    assert spec["bootstrap"]["initdb"]["dataChecksums"] is True


def test_the_volumes_outlive_the_release() -> None:
    made = rendered().one("Cluster", CLUSTER)
    assert made["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert made["spec"]["storage"] == {"size": "20Gi"}


@pytest.mark.parametrize("name", [NAME, f"{NAME}-migrate-1"])
def test_each_pod_logs_in_by_the_operators_secret_and_verifies_the_server(name: str) -> None:
    pod = next(one["spec"] for made, one in rendered().templates() if made["metadata"]["name"] == name)
    env = variables(pod)
    assert env["DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {"name": f"{CLUSTER}-app", "key": "uri"}
    assert env["PGSSLMODE"]["value"] == "verify-full"
    (tls,) = [one["secret"] for one in pod["volumes"] if one["name"] == "postgres-tls"]
    shown = [{"key": "ca.crt", "path": "ca.crt"}]
    assert (tls["secretName"], tls["items"]) == (f"{CLUSTER}-ca", shown), "the authority's key is in that Secret, too"


def test_no_credentials_are_made_where_no_server_of_the_chart_takes_them() -> None:
    made = rendered({**THREE, "servers": {"natsUrl": NATS}})
    assert f"{NAME}-credentials" not in made.names("Job")
    assert made.names("Cluster") == {CLUSTER}


def test_a_database_that_is_named_takes_precedence() -> None:
    assert not rendered({**THREE, "servers": {"databaseUrl": DATABASE}}).names("Cluster")


def test_the_cluster_goes_where_the_chart_says() -> None:
    where = {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "high"}
    spec = rendered({**THREE, **where}).one("Cluster", CLUSTER)["spec"]
    assert spec["affinity"]["nodeSelector"] == where["nodeSelector"]
    assert (spec["affinity"]["tolerations"], spec["priorityClassName"]) == (where["tolerations"], "high")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"postgresql": {"replicas": 3, "persistence": {"enabled": False}}}, "each of three has a volume"),
        ({**THREE, "fullnameOverride": "a" * 42}, "Give a fullnameOverride of at most 41 characters"),
    ],
)
def test_what_the_operator_would_refuse_is_refused_before(values: dict[str, Any], expected: str) -> None:
    result = template({**IMAGE, **values}, "lab", *OPERATOR)
    assert result.code != 0
    assert expected in result.err

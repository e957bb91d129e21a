"""How the chart's pods log in to NATS, as helm renders them."""

import pytest

from gpuledger.runtime.settings import NATS_CA, NATS_CERTIFICATE, NATS_CREDENTIALS, NATS_KEY, NATS_REPLICAS, PARTITIONS
from support.chart import IMAGE, NAME, WITH_LOGINS, needs_helm, render

pytestmark = needs_helm


def test_services_log_in_to_nats_with_files_that_the_kubelet_renews() -> None:
    """The operator's login is the job's that migrates, and its certificates are those of the services."""
    pods = {one["metadata"]["name"]: pod["spec"] for one, pod in render(WITH_LOGINS).templates()}
    for name, login, key in ((NAME, "login", "svc"), (f"{NAME}-migrate", "operators-login", "nats.creds")):
        spec, (container,) = pods[name], pods[name]["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        folders = {one["name"]: one for one in container["volumeMounts"]}
        files = {NATS_CREDENTIALS: "nats.creds", NATS_CA: "ca.crt", NATS_CERTIFICATE: "tls.crt", NATS_KEY: "tls.key"}
        for variable, file in files.items():
            folder = folders["nats" if variable == NATS_CREDENTIALS else "nats-tls"]
            assert variables[variable] == f"{folder['mountPath']}/{file}"
            assert "subPath" not in folder, "the kubelet would never renew it"
        volumes = {one["name"]: one.get("secret") for one in spec["volumes"]}
        assert volumes["nats"] == {"secretName": login, "items": [{"key": key, "path": "nats.creds"}]}
        assert volumes["nats-tls"] == {"secretName": "tls"}
    for name, spec in pods.items():
        if name not in (NAME, f"{NAME}-migrate"):
            assert not {"nats", "nats-tls"} & {one["name"] for one in spec["volumes"]}, name


def test_the_job_that_migrates_sets_the_replicas() -> None:
    def given(values: dict[str, object]) -> dict[str, str | None]:
        servers = {"existingSecret": "given", "nats": values}
        pods = {one["metadata"]["name"]: pod["spec"] for one, pod in render({**IMAGE, "servers": servers}).templates()}
        found = {
            name: {one["name"]: one.get("value") for one in pod["containers"][0]["env"]} for name, pod in pods.items()
        }
        assert all(NATS_REPLICAS not in variables for name, variables in found.items() if not name.endswith("-migrate"))
        return found[f"{NAME}-migrate"]

    assert given({"replicas": 3})[NATS_REPLICAS] == "3"
    assert NATS_REPLICAS not in given({})


@pytest.mark.parametrize(("partitions", "given"), [(1, None), (4, "4")])
@pytest.mark.parametrize("replicas", ["", 3])
def test_the_job_that_migrates_makes_the_partitions(partitions: int, given: str | None, replicas: object) -> None:
    values = {**IMAGE, "servers": {"existingSecret": "given", "nats": {"replicas": replicas}}, "partitions": partitions}
    pods = {one["metadata"]["name"]: pod["spec"] for one, pod in render(values).templates()}
    for name, pod in pods.items():
        variables = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        assert variables.get(PARTITIONS) == (given if name.endswith("-migrate") else None)


def test_the_authorities_alone_ask_for_no_client_certificate() -> None:
    servers = {"existingSecret": "given", "nats": {"tlsSecret": "tls", "clientCertificate": False}}
    (container,) = render({**IMAGE, "servers": servers}).one("Deployment")["spec"]["template"]["spec"]["containers"]
    found = {one["name"] for one in container["env"] if one["name"].startswith("GPULEDGER_NATS_")}
    assert found == {NATS_CA}


def test_the_proof_of_the_log_reads_as_a_reader_or_as_the_services() -> None:
    """A job that only reads needs no right to record; its certificates are those of the services."""

    def volumes(**servers: object) -> dict[str, object]:
        given = {**WITH_LOGINS, "servers": {**WITH_LOGINS["servers"], **servers}, "logProof": {"enabled": True}}
        pods = {one["metadata"]["name"]: pod["spec"] for one, pod in render(given).templates()}
        return {one["name"]: one.get("secret") for one in pods["gpu-log-proof"]["volumes"]}

    found = volumes(reader={"credentialsSecret": "readers-login", "credentialsKey": "r"})
    assert found["nats"] == {"secretName": "readers-login", "items": [{"key": "r", "path": "nats.creds"}]}
    assert found["nats-tls"] == {"secretName": "tls"}
    assert volumes()["nats"] == {"secretName": "login", "items": [{"key": "svc", "path": "nats.creds"}]}

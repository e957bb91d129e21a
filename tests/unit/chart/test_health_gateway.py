"""The health gateway as helm renders it: its login, certificates and settings, and what it may not have."""

from typing import Any

import pytest

from gpuledger.api.bundled import BundledServers
from gpuledger.runtime import gateway_settings as names
from gpuledger.runtime.settings import NATS_CA, NATS_CREDENTIALS, NATS_URL
from support.chart import (
    CHART,
    IMAGE,
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

GATEWAY = f"{NAME}-gateway"
GIVEN: dict[str, Any] = {"enabled": True, "reporters": ["monitors", "gpu/dcgm"]}
OWN_NATS = {"url": "tls://nats.example:4222", "credentialsSecret": "login", "tlsSecret": "nats-tls"}
OWN = {**GIVEN, "nats": OWN_NATS, "tls": {"secret": "shown"}}
BY_CERTIFICATE = {**GIVEN, "clientCa": {"secret": "nodes"}, "certificates": {"csp.example": "*"}}


def values(base: dict[str, Any], **gateway: Any) -> dict[str, Any]:
    return {**base, "healthGateway": gateway}


def pod_of(made: Manifests) -> Object:
    spec: Object = made.one("Deployment", GATEWAY)["spec"]["template"]["spec"]
    return spec


def environ_of(pod: Object) -> dict[str, str]:
    (container,) = pod["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def test_it_is_off_by_default() -> None:
    assert GATEWAY not in render(IMAGE).names("Deployment")


def test_with_the_charts_server_it_has_a_login_and_a_certificate_of_its_own() -> None:
    made = render(values(IMAGE, **GIVEN))
    pod = pod_of(made)
    environ = environ_of(pod)
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {"gateway": BundledServers(NAME, NAMESPACE).secret("gateway")}
    assert environ[NATS_URL] == f"tls://{NAME}-nats.{NAMESPACE}.svc:4222"
    for name, file in ((NATS_CREDENTIALS, "nats.creds"), (NATS_CA, "ca.crt"), (names.CERTIFICATE, "tls.crt")):
        assert environ[name] == f"/etc/gpuledger/gateway/{file}"
    assert environ[names.REPORTERS] == "monitors,gpu/dcgm"
    assert names.LISTEN_MTLS not in environ
    service = made.one("Service", GATEWAY)["spec"]
    assert [one["port"] for one in service["ports"]] == [9444]
    (host, *_) = BundledServers(NAME, NAMESPACE).gateway_hosts
    assert host == f"{GATEWAY}.{NAMESPACE}.svc"


def test_certificates_of_clients_have_a_port_of_their_own() -> None:
    made = render(values(IMAGE, **BY_CERTIFICATE))
    environ = environ_of(pod_of(made))
    assert environ[names.CERTIFICATES] == '{"csp.example":"*"}'
    assert environ[names.CLIENT_CA] == "/etc/gpuledger/gateway-clients/ca.crt"
    assert [one["port"] for one in made.one("Service", GATEWAY)["spec"]["ports"]] == [9444, 9445]


def test_with_a_server_of_ones_own_it_has_the_given_secrets() -> None:
    pod = pod_of(render(values(WITH_URLS, **OWN)))
    secrets = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
    assert secrets == {"login", "nats-tls", "shown"}
    assert environ_of(pod)[names.KEY] == "/etc/gpuledger/gateway-tls/tls.key"


def test_its_account_may_review_tokens_and_nothing_else() -> None:
    made = render(values(IMAGE, **GIVEN))
    assert made.one("ClusterRole", GATEWAY)["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    bound = [
        one["roleRef"]["name"]
        for one in made.objects
        if one["kind"] in {"ClusterRoleBinding", "RoleBinding"} and GATEWAY in {who["name"] for who in one["subjects"]}
    ]
    assert bound == [GATEWAY]


@pytest.mark.parametrize("given", [values(IMAGE, **BY_CERTIFICATE), values(WITH_URLS, **OWN)])
def test_its_pods_are_confined_and_helm_finds_nothing_wrong(given: dict[str, Any]) -> None:
    found = render(given)
    main, gateway = (found.one("Deployment", name)["spec"]["template"]["spec"] for name in (NAME, GATEWAY))
    assert gateway["securityContext"] == main["securityContext"]
    assert gateway["containers"][0]["securityContext"] == main["containers"][0]["securityContext"]
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values=given)
    assert result.code == 0, result


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (values(IMAGE, enabled=True), "healthGateway.reporters is missing"),
        (values(IMAGE, **GIVEN, certificates={"a": "b"}), "needs healthGateway.clientCa.secret"),
        (values(IMAGE, **GIVEN, nats=OWN_NATS), "leave it empty"),
        (values(WITH_URLS, **GIVEN), "healthGateway.tls.secret is required"),
        (values(WITH_URLS, **GIVEN, tls={"secret": "shown"}), "healthGateway.nats.url is required"),
        (values(WITH_URLS, **{**OWN, "nats": {"url": "nats://n:4222"}}), "credentialsSecret is required"),
        (values(IMAGE, enabled=True, reporters=["A B"]), "reporters"),
        (
            {**values(IMAGE, **GIVEN), "processes": {"gateway": {"only": ["pools"]}}},
            "give that process another name",
        ),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], text: str) -> None:
    result = template(given)
    assert result.code != 0
    assert text in result.err

"""The auth callout that the chart runs beside a NATS server of one's own: its login, its keys, and the agents."""

from typing import Any

import pytest

from gpuledger.runtime.settings import (
    CALLOUT_ACCOUNT,
    CALLOUT_ACCOUNT_SEED,
    CALLOUT_SEED,
    CALLOUT_SERVICE_ACCOUNT,
    CALLOUT_XKEY,
    NATS_CA,
    NATS_CERTIFICATE,
    NATS_CREDENTIALS,
    NATS_KEY,
    NATS_TOKEN_FILE,
    NATS_URL,
)
from support.chart import NAME, NAMESPACE, WITH_URLS, Manifests, Object, needs_helm, render, template

pytestmark = needs_helm

LEDGER = "tls://nats.example:4222"
ACCOUNT = "A" * 56
CALLOUT = "gpu-agent-auth"
GIVEN: dict[str, Any] = {"enabled": True, "credentialsSecret": "login", "keysSecret": "keys"}


def values(**more: Any) -> dict[str, Any]:
    return {**WITH_URLS, "agent": {"nats": {"url": LEDGER}, "authCallout": {**GIVEN, **more}}}


def pod_of(made: Manifests) -> Object:
    spec: Object = made.one("Deployment", CALLOUT)["spec"]["template"]["spec"]
    return spec


def environ_of(pod: Object) -> dict[str, str]:
    (container,) = pod["containers"]
    return {one["name"]: one.get("value", "") for one in container["env"]}


def files_of(pod: Object) -> dict[str, tuple[str, str]]:
    """The Secret and its key behind each file that the container can read."""
    (container,) = pod["containers"]
    folders = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    secrets = {one["name"]: one["secret"] for one in pod["volumes"] if "secret" in one}
    return {
        f"{folders[name]}/{item['path']}": (secret["secretName"], item["key"])
        for name, secret in secrets.items()
        for item in secret.get("items", ())
    }


def test_it_logs_in_with_one_secret_and_signs_with_another() -> None:
    pod = pod_of(render(values(credentialsKey="login", seedKey="key")))
    environ, files = environ_of(pod), files_of(pod)
    assert environ[NATS_URL] == LEDGER
    assert environ[CALLOUT_SERVICE_ACCOUNT] == f"{NAMESPACE}/gpu-node-agent"
    assert files[environ[NATS_CREDENTIALS]] == ("login", "login")
    assert files[environ[CALLOUT_SEED]] == ("keys", "key")
    assert len(files) == 2
    assert environ.keys().isdisjoint({CALLOUT_ACCOUNT, CALLOUT_ACCOUNT_SEED, CALLOUT_XKEY, NATS_CA, NATS_CERTIFICATE})


def test_operator_mode_and_an_xkey_take_further_keys() -> None:
    pod = pod_of(render(values(account=ACCOUNT, accountSeedKey="users", xkeyKey="curve")))
    environ, files = environ_of(pod), files_of(pod)
    assert environ[CALLOUT_ACCOUNT] == ACCOUNT
    assert files[environ[CALLOUT_ACCOUNT_SEED]] == ("keys", "users")
    assert files[environ[CALLOUT_XKEY]] == ("keys", "curve")


@pytest.mark.parametrize("certificate", [False, True])
def test_tls_has_an_authority_and_where_it_is_set_a_certificate(certificate: bool) -> None:
    login = {"credentialsSecret": ""} if certificate else {}
    pod = pod_of(render(values(**login, tlsSecret="tls", clientCertificate=certificate)))
    environ = environ_of(pod)
    assert environ[NATS_CA].endswith("/ca.crt")
    assert ({NATS_CERTIFICATE, NATS_KEY} <= environ.keys()) is certificate
    assert "tls" in {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}


def test_agents_have_a_token_and_nothing_else() -> None:
    made = render(values())
    pod = made.one("DaemonSet", "gpu-node-agent")["spec"]["template"]["spec"]
    environ = environ_of(pod)
    assert (environ[NATS_URL], environ[NATS_TOKEN_FILE]) == (LEDGER, "/etc/gpuledger/token/token")
    assert NATS_CREDENTIALS not in environ
    assert [one for one in pod["volumes"] if "secret" in one] == []
    assert [one["projected"]["sources"][0] for one in pod["volumes"] if "projected" in one] == [
        {"serviceAccountToken": {"audience": "gpuledger-agents", "expirationSeconds": 3600, "path": "token"}}
    ]


def test_its_account_may_review_tokens_and_nothing_else() -> None:
    rules = render(values()).one("ClusterRole", CALLOUT)["rules"]
    assert rules == [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}]


def test_the_services_do_not_see_its_keys() -> None:
    made = render(values())
    for one, template_of in made.templates():
        if one["metadata"]["name"] != CALLOUT:
            assert "keys" not in str(template_of["spec"].get("volumes")), one["metadata"]["name"]
    assert NAME in made.names("Deployment")


def test_it_is_off_unless_it_is_asked_for() -> None:
    made = render({**WITH_URLS, "agent": {"nats": {"url": LEDGER}}})
    assert CALLOUT not in made.names("Deployment")
    earlier = {**WITH_URLS, "agent": {"nats": {"url": LEDGER}, "authCallout": None}}
    assert template(earlier).code == 0, "values of an earlier chart (--reuse-values) have none"

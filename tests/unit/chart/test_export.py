"""The Deployment that exports events, as helm renders it: its settings, files and login, and what it may not have."""

import json
from typing import Any

import pytest

from gpuledger.runtime.export_settings import EXPORT
from support.chart import (
    CHART,
    KUBE_VERSION,
    NAME,
    WITH_LOGINS,
    WITH_SECRET,
    Object,
    helm,
    needs_helm,
    render,
    template,
)

pytestmark = needs_helm

URL = "https://events.example/gpuledger"


def exporting(base: dict[str, Any] = WITH_SECRET, **export: Any) -> Object:
    """The spec of its pods."""
    found = render({**base, "export": {"enabled": True, "url": URL, **export}}).one("Deployment", f"{NAME}-export")
    spec: Object = found["spec"]["template"]["spec"]
    return spec


def settings(spec: Object) -> dict[str, Any]:
    (container,) = spec["containers"]
    (text,) = (one["value"] for one in container["env"] if one["name"] == EXPORT)
    found: dict[str, Any] = json.loads(text)
    return found


def test_it_is_off_by_default_and_no_other_pod_has_its_settings() -> None:
    assert f"{NAME}-export" not in render(WITH_SECRET).names("Deployment")
    found = render({**WITH_SECRET, "export": {"enabled": True, "url": URL}})
    having = [one["metadata"]["name"] for one, pod in found.templates() if EXPORT in str(pod)]
    assert having == [f"{NAME}-export"]


def test_it_runs_the_export_alone_with_an_account_that_has_no_rights() -> None:
    spec = exporting()
    (container,) = spec["containers"]
    assert container["args"] == ["up", "--listen", "0.0.0.0:8080", "--only", "export"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == (f"{NAME}-export", False)
    found = render({**WITH_SECRET, "export": {"enabled": True, "url": URL}})
    bindings = [one for one in found.objects if one["kind"] in {"ClusterRoleBinding", "RoleBinding"}]
    assert bindings
    assert [one for one in bindings if f"{NAME}-export" in {subject["name"] for subject in one["subjects"]}] == []


def test_its_pods_are_confined_as_all_others_and_helm_finds_nothing_wrong() -> None:
    values = {**WITH_LOGINS, "export": {"enabled": True, "url": URL, "tls": {"secret": "tls"}}}
    found = render(values)
    main, export = (found.one("Deployment", name)["spec"]["template"]["spec"] for name in (NAME, f"{NAME}-export"))
    assert export["securityContext"] == main["securityContext"]
    assert export["containers"][0]["securityContext"] == main["containers"][0]["securityContext"]
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values=values)
    assert result.code == 0, result


def test_every_value_is_a_setting() -> None:
    assert settings(exporting()) == {
        "url": URL, "select": [], "begin": "head", "on_refusal": "record", "batch_events": 1,
        "health_shape": "gpuledger", "metadata": {},
    }  # fmt: skip
    given = exporting(
        select=[{"type": "node.health-reported", "where": {"fatal": True}}],
        begin="1/1500",
        onRefusal="stop",
        batchEvents=100,
        healthShape="nvsentinel",
        metadata={"cluster": "east"},
        token={"secret": "login"},
        tls={"secret": "tls", "clientCertificate": True},
    )
    assert settings(given) == {
        "url": URL,
        "select": [{"type": "node.health-reported", "where": {"fatal": True}}],
        "begin": "1/1500",
        "on_refusal": "stop",
        "batch_events": 100,
        "health_shape": "nvsentinel",
        "metadata": {"cluster": "east"},
        "token": "/etc/gpuledger/export-token/token",
        "ca": "/etc/gpuledger/export-tls/ca.crt",
        "certificate": "/etc/gpuledger/export-tls/tls.crt",
        "key": "/etc/gpuledger/export-tls/tls.key",
    }
    folders = {one["name"]: one["mountPath"] for one in given["containers"][0]["volumeMounts"]}
    assert folders["export-token"] == "/etc/gpuledger/export-token"
    assert folders["export-tls"] == "/etc/gpuledger/export-tls"


def test_the_kubelet_renews_a_token_for_the_endpoint() -> None:
    volumes = {one["name"]: one for one in exporting(token={"audience": "events"})["volumes"]}
    (source,) = volumes["export-token"]["projected"]["sources"]
    assert source == {"serviceAccountToken": {"audience": "events", "path": "token"}}


def test_it_logs_in_as_a_reader() -> None:
    servers = {**WITH_LOGINS["servers"], "reader": {"credentialsSecret": "readers-login", "credentialsKey": "r"}}
    volumes = {one["name"]: one.get("secret") for one in exporting({**WITH_LOGINS, "servers": servers})["volumes"]}
    assert volumes["nats"] == {"secretName": "readers-login", "items": [{"key": "r", "path": "nats.creds"}]}


def test_it_stops_with_all_others_for_a_restore() -> None:
    values = {**WITH_SECRET, "replicas": 0, "export": {"enabled": True, "url": URL, "replicas": 2}}
    assert render(values).one("Deployment", f"{NAME}-export")["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"export": {"enabled": True}}, "export.url is missing"),
        ({"export": {"enabled": True, "url": "ftp://a"}}, "export.url"),
        ({"export": {"enabled": True, "url": "https://user:word@a/"}}, "export.url"),
        ({"export": {"enabled": True, "url": URL}, "processes": {"export": {"only": ["pools"]}}}, "processes.export"),
        ({"export": {"onRefusal": "drop"}}, "onRefusal"),
    ],
)
def test_what_cannot_be_used_is_refused(values: dict[str, Any], problem: str) -> None:
    result = template({**WITH_SECRET, **values})
    assert result.code != 0
    assert problem in result.err

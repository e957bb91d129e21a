"""How the chart's pods verify PostgreSQL, as helm renders them."""

from typing import Any

import pytest

from support.chart import IMAGE, NAME, needs_helm, render

pytestmark = needs_helm

FOLDER = "/etc/gpuledger/postgres-tls"
ROOT_READABLE = 0o440
"""Root owns the files of a Secret; libpq takes a key that only root's and the pod's group may read."""


def pods(**database: object) -> dict[str, dict[str, Any]]:
    values = {**IMAGE, "servers": {"existingSecret": "given", "database": database}}
    return {one["metadata"]["name"]: pod["spec"] for one, pod in render(values).templates()}


def variables(spec: dict[str, Any]) -> dict[str, str | None]:
    (container,) = spec["containers"]
    return {one["name"]: one.get("value") for one in container["env"] if one["name"].startswith("PGSSL")}


def test_an_authority_is_mounted_and_the_server_fully_verified() -> None:
    found = pods(tlsSecret="postgres")
    for name in (NAME, f"{NAME}-migrate"):
        spec = found[name]
        assert variables(spec) == {"PGSSLMODE": "verify-full", "PGSSLROOTCERT": f"{FOLDER}/ca.crt"}
        (mount,) = [one for one in spec["containers"][0]["volumeMounts"] if one["name"] == "postgres-tls"]
        assert mount == {"name": "postgres-tls", "mountPath": FOLDER, "readOnly": True}
        (volume,) = [one for one in spec["volumes"] if one["name"] == "postgres-tls"]
        assert volume["secret"] == {"secretName": "postgres", "defaultMode": ROOT_READABLE}
        assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


def test_pods_without_the_servers_urls_get_no_certificates() -> None:
    for name, spec in pods(tlsSecret="postgres", clientCertificate=True).items():
        has_url = any(one["name"] == "DATABASE_URL" for one in spec["containers"][0].get("env", []))
        assert bool(variables(spec)) is has_url, name
        assert ("postgres-tls" in {one["name"] for one in spec["volumes"]}) is has_url, name


def test_our_own_certificate_is_shown_on_request() -> None:
    assert variables(pods(tlsSecret="postgres", clientCertificate=True)[NAME]) == {
        "PGSSLMODE": "verify-full",
        "PGSSLROOTCERT": f"{FOLDER}/ca.crt",
        "PGSSLCERT": f"{FOLDER}/tls.crt",
        "PGSSLKEY": f"{FOLDER}/tls.key",
    }


@pytest.mark.parametrize(("mode", "expected"), [("", {}), ("require", {"PGSSLMODE": "require"})])
def test_without_an_authority_only_the_mode_is_set(mode: str, expected: dict[str, str]) -> None:
    spec = pods(sslMode=mode)[NAME]
    assert variables(spec) == expected
    assert "postgres-tls" not in {one["name"] for one in spec["volumes"]}


def test_a_mode_wins_over_the_default_of_an_authority() -> None:
    assert variables(pods(tlsSecret="postgres", sslMode="verify-ca")[NAME])["PGSSLMODE"] == "verify-ca"

"""How the chart tells the services where snapshots are, as helm renders it."""

from typing import Any

import pytest

from support.chart import IMAGE, NAME, needs_helm, render, template

pytestmark = needs_helm

BUCKET: dict[str, Any] = {
    "url": "s3://ledger/prod",
    "endpoint": "https://minio.example:9000",
    "region": "us-east-1",
    "credentialsSecret": "bucket",
}


def variables(**objects: object) -> dict[str, dict[str, Any]]:
    """What each workload's containers have of these variables."""
    values = {
        **IMAGE,
        "servers": {"existingSecret": "given"},
        "processes": {"decisions": {"only": ["pools"]}},
        "logProof": {"enabled": True},
        "objects": objects,
    }
    return {
        one["metadata"]["name"]: {
            variable["name"]: variable.get("value", variable.get("valueFrom"))
            for container in pod["spec"]["containers"]
            for variable in container.get("env", [])
            if variable["name"].startswith(("GPULEDGER_OBJECTS", "AWS_"))
        }
        for one, pod in render(values).templates()
    }


def test_the_services_get_the_bucket_and_its_login() -> None:
    found = variables(**BUCKET, secretAccessKeyKey="password")
    expected = {
        "GPULEDGER_OBJECTS_URL": "s3://ledger/prod",
        "AWS_ENDPOINT_URL": "https://minio.example:9000",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": {"secretKeyRef": {"name": "bucket", "key": "AWS_ACCESS_KEY_ID"}},
        "AWS_SECRET_ACCESS_KEY": {"secretKeyRef": {"name": "bucket", "key": "password"}},
    }
    services = {NAME, f"{NAME}-decisions"}
    assert {name: found[name] for name in services} == dict.fromkeys(services, expected)
    assert not any(given for name, given in found.items() if name not in services), "nobody else reads or writes there"


def test_a_folder_and_a_role_need_no_login() -> None:
    assert variables(url="file:/objects")[NAME] == {"GPULEDGER_OBJECTS_URL": "file:/objects"}
    assert variables(url="s3://ledger")[NAME] == {"GPULEDGER_OBJECTS_URL": "s3://ledger"}


def test_without_a_url_there_is_no_object_store() -> None:
    assert not any(variables().values())


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ({"region": "us-east-1"}, "are about the bucket in objects.url; give that"),
        ({"url": "file:/objects", "credentialsSecret": "bucket"}, "leave them empty with a file: URL"),
        ({"url": "gs://ledger"}, "objects.url is not a URL such as s3://bucket/prefix"),
        ({"url": "s3://key:password@ledger"}, "without a login in it"),
        ({"url": "s3://ledger", "endpoint": "minio.example"}, "objects.endpoint is not a URL"),
        ({"bucket": "ledger"}, "Additional property bucket is not allowed"),
    ],
)
def test_what_cannot_be_used_is_refused(objects: dict[str, str], reason: str) -> None:
    refused = template({**IMAGE, "servers": {"existingSecret": "given"}, "objects": objects})
    assert refused.code != 0
    assert reason in refused.err
    assert "password" not in refused.err

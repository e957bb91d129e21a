"""From where commands in the chart's pods read: standbys of the release's servers, or one that the values name."""

from typing import Any

import pytest

from gpuledger.api.bundled import DATABASE_READ_URL_KEY, BundledServers
from gpuledger.runtime.settings import DATABASE_READ_URL
from support.chart import DATABASE, IMAGE, NAME, NAMESPACE, NATS, Object, needs_helm, render, template

pytestmark = needs_helm

STANDBY = "postgresql://gpuledger:secret@standby.example/gpuledger"
SERVERS = BundledServers(NAME, NAMESPACE)
JOBS = {"logProof": {"enabled": True}, "logArchive": {"enabled": True, "location": "s3://fleet/log"}}
URLS = {"natsUrl": NATS, "databaseUrl": DATABASE}


def references(values: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """From which key of which Secret the pods that have the servers' URLs read the standby's."""
    found: dict[str, tuple[str, str]] = {}
    for one, pod in render({**IMAGE, **JOBS, **values}).templates():
        env: list[Object] = pod["spec"]["containers"][0].get("env", [])
        for variable in env:
            if variable["name"] == DATABASE_READ_URL:
                reference = variable["valueFrom"]["secretKeyRef"]
                found[one["metadata"]["name"]] = (reference["name"], reference["key"])
    return found


def test_commands_read_from_the_standbys_of_three_servers() -> None:
    assert references({"postgresql": {"replicas": 3}}) == {
        NAME: (SERVERS.secret("services"), DATABASE_READ_URL_KEY),
        f"{NAME}-migrate-1": (SERVERS.secret("operator"), DATABASE_READ_URL_KEY),
        "gpu-log-archive": (SERVERS.secret("operator"), DATABASE_READ_URL_KEY),
        "gpu-log-proof": (SERVERS.secret("reader"), DATABASE_READ_URL_KEY),
    }


@pytest.mark.parametrize(
    "values", [{}, {"servers": URLS}, {"servers": {"existingSecret": "given"}}], ids=["one", "own", "secret"]
)
def test_elsewhere_the_primary_answers(values: dict[str, Any]) -> None:
    assert references(values) == {}


def test_a_standby_of_ones_own_is_in_the_secret() -> None:
    named = {"existingSecret": "given", "databaseReadUrlKey": "READ"}
    assert set(references({"servers": named}).values()) == {("given", "READ")}
    values = {"servers": {**URLS, "databaseReadUrl": STANDBY}}
    found = references(values)
    assert set(found) == {NAME, f"{NAME}-migrate", "gpu-log-archive", "gpu-log-proof"}
    made = render({**IMAGE, **JOBS, **values})
    for secret, key in found.values():
        assert made.one("Secret", secret)["stringData"][key] == STANDBY


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"databaseReadUrl": STANDBY}, "give servers.databaseUrl as well"),
        ({**URLS, "databaseReadUrlKey": "READ"}, "is a key of the Secret in servers.existingSecret"),
        ({**URLS, "databaseReadUrl": "standby.example"}, "servers.databaseReadUrl is not a URL such as postgresql://"),
    ],
)
def test_a_standby_of_nothing_is_refused(given: dict[str, str], reason: str) -> None:
    result = template({**IMAGE, "servers": given}, "lab")
    assert (result.code != 0, reason in result.err) == (True, True), result.err

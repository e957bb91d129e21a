"""The settings: which servers and which cluster the environment names."""

from pathlib import Path

import pytest

from gpuledger.runtime import settings
from gpuledger.runtime.settings import NatsIdentity, SettingsError, WebhookSettings, read_settings
from support.cli import Cli

IN_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.fixture
def token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the token of a service account would be."""
    path = tmp_path / "token"
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT_TOKEN", path)
    return path


@pytest.mark.parametrize(
    ("environ", "has_token", "has_cluster"),
    [
        ({}, False, False),
        ({}, True, False),
        (IN_POD, False, False),
        (IN_POD, True, True),
        ({"KUBERNETES_SERVICE_HOST": ""}, True, False),
        ({"KUBECONFIG": "/config"}, False, True),
        ({"KUBECONFIG": ""}, False, False),
        ({**IN_POD, "KUBECONFIG": ""}, True, True),
    ],
)
def test_which_cluster_there_is(environ: dict[str, str], has_token: bool, has_cluster: bool, token: Path) -> None:
    if has_token:
        token.write_text("t")
    assert read_settings(environ).has_cluster is has_cluster


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({}, "that this pod runs in. Set automountServiceAccountToken: false for the pod"),
        ({"KUBECONFIG": "/config"}, "that KUBECONFIG names. Unset KUBECONFIG"),
    ],
)
def test_no_fleet_is_made_up_in_the_cluster_of_a_pod(
    named: dict[str, str],
    expected: str,
    token: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    token.write_text("t")
    for name, value in (IN_POD | named).items():
        monkeypatch.setenv(name, value)
    result = Cli(capsys)("up", "--fleet", "nodes=1,gpus=1,profile=t4", "--data-dir", str(tmp_path / "d"))
    assert (result.code, result.out) == (2, "")
    assert (
        result.err == f"Error: --fleet would make up Nodes in the cluster {expected} to use the embedded API server.\n"
    )
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, WebhookSettings(None, "d8-gpu-operator")),
        ({"GPULEDGER_ADMISSION_LISTEN": "", "GPULEDGER_NAMESPACE": ""}, WebhookSettings(None, "d8-gpu-operator")),
        (
            {"GPULEDGER_ADMISSION_LISTEN": ":9443", "GPULEDGER_NAMESPACE": "gpu-system"},
            WebhookSettings(":9443", "gpu-system"),
        ),
    ],
)
def test_where_the_webhooks_are(environ: dict[str, str], expected: WebhookSettings) -> None:
    assert read_settings(environ).webhooks == expected


def test_an_invalid_address_of_the_webhooks_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPULEDGER_ADMISSION_LISTEN", "nowhere")
    result = Cli(capsys)("up", "--data-dir", str(tmp_path / "d"))
    assert (result.code, "'nowhere' is not an address to listen on" in result.err) == (2, True)
    assert not (tmp_path / "d").exists()


SERVERS = {"NATS_URL": "nats://a", "DATABASE_URL": "postgresql://b/c"}


def test_a_read_replica_goes_with_its_primary() -> None:
    servers = read_settings({**SERVERS, "DATABASE_READ_URL": "postgresql://s/c"}).servers
    assert servers is not None
    assert (servers.database_url, servers.database_read_url) == ("postgresql://b/c", "postgresql://s/c")
    servers = read_settings({**SERVERS, "DATABASE_READ_URL": ""}).servers
    assert servers is not None
    assert servers.database_read_url is None
    with pytest.raises(SettingsError, match="DATABASE_READ_URL is set but NATS_URL and DATABASE_URL are not"):
        read_settings({"DATABASE_READ_URL": "postgresql://s/c"})


def test_who_services_are_to_nats(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("CREDENTIALS", "CA", "CERTIFICATE", "KEY")}
    for file in files.values():
        file.touch()
    environ = {**SERVERS, **{f"GPULEDGER_NATS_{name}": str(file) for name, file in files.items()}}
    servers = read_settings(environ).servers
    assert servers is not None
    assert servers.nats_identity == NatsIdentity(*files.values())


@pytest.mark.parametrize(("environ", "replicas"), [({}, None), ({"GPULEDGER_NATS_REPLICAS": "3"}, 3)])
def test_how_many_replicas_the_stream_has(environ: dict[str, str], replicas: int | None) -> None:
    servers = read_settings({**SERVERS, **environ}).servers
    assert servers is not None
    assert servers.nats_replicas == replicas


@pytest.mark.parametrize(("environ", "partitions"), [({}, None), ({"GPULEDGER_PARTITIONS": "4"}, 4)])
def test_how_many_partitions_a_new_ledger_has(environ: dict[str, str], partitions: int | None) -> None:
    assert read_settings(environ).partitions == partitions


@pytest.mark.parametrize("text", ["0", "65", "-1", "four"])
def test_a_number_of_partitions_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="it is a number from 1 to 64, or unset: one"):
        read_settings({"GPULEDGER_PARTITIONS": text})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"GPULEDGER_NATS_REPLICAS": "2"}, "GPULEDGER_NATS_REPLICAS is '2'; it is 1, 3 or 5, or unset"),
        ({"GPULEDGER_NATS_CA": "/nowhere"}, "GPULEDGER_NATS_CA names /nowhere, which is not a file"),
        ({"GPULEDGER_NATS_KEY": __file__}, "set both GPULEDGER_NATS_CERTIFICATE and GPULEDGER_NATS_KEY"),
    ],
)
def test_files_that_cannot_log_in_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_settings({**SERVERS, **environ})

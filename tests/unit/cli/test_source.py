"""Whether a command reads the ledger or Kubernetes alone."""

from pathlib import Path

import pytest

from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.source import PRESENT_ONLY, announce_unless_ledger, is_present_only, refuse_in_present
from gpuledger.cli.state_source import open_source
from gpuledger.ledger.errors import NoLedgerError
from gpuledger.tools.cluster import OWN_KUBECONFIG, KubeAccess
from gpuledger.tools.present.source import KubernetesSource

STREAM = "nats/jetstream/jetstream/$G/streams/LEDGER_1"
SERVERS = {"NATS_URL": "nats://x", "DATABASE_URL": "postgresql://x"}
CLUSTER = {"KUBECONFIG": "/nowhere"}


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A laptop without any setting, in a home of its own."""
    for name in (*SERVERS, *CLUSTER, "GPULEDGER_DATA_DIR", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def chosen(data_dir: Path, *, kube: bool = True) -> bool | None:
    """Whether Kubernetes alone is read; None where nothing can be."""
    try:
        return is_present_only(data_dir, KubeAccess(data_dir=data_dir) if kube else None)
    except NoLedgerError:
        return None


@pytest.mark.parametrize(
    ("environ", "streams", "kube", "expected"),
    [
        ({}, False, True, None),
        ({}, True, True, False),
        ({}, True, False, False),
        (SERVERS, False, True, False),
        (SERVERS, False, False, False),
        (CLUSTER, False, True, True),
        (CLUSTER, False, False, None),
        (CLUSTER, True, True, False),
        (CLUSTER | SERVERS, False, True, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False, True, True),
    ],
)
def test_a_ledger_comes_first_and_then_a_cluster(
    environ: dict[str, str],
    streams: bool,
    kube: bool,
    expected: bool | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    if streams:
        (tmp_path / STREAM).mkdir(parents=True)
    assert chosen(tmp_path, kube=kube) is expected


def test_servers_that_were_started_for_nothing_are_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    (tmp_path / "gpuledger.json").write_text('{"format": 1}')
    (tmp_path / STREAM).parent.parent.mkdir(parents=True)
    (tmp_path / "postgres").mkdir()
    assert chosen(tmp_path) is True


@pytest.mark.parametrize("place", [f"data/{OWN_KUBECONFIG}", "home/.kube/config"])
def test_a_kubeconfig_that_nobody_named_counts(place: str, tmp_path: Path) -> None:
    assert chosen(tmp_path / "data") is None
    file = tmp_path / place
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert chosen(tmp_path / "data") is True


def test_nothing_to_read_is_an_error_that_names_both_ways(tmp_path: Path) -> None:
    with pytest.raises(NoLedgerError, match=r"There is no ledger in .*, and there is no kubeconfig\. Set NATS_URL"):
        is_present_only(tmp_path, KubeAccess(data_dir=tmp_path))
    with pytest.raises(NoLedgerError, match="--no-kube leaves Kubernetes out"):
        is_present_only(tmp_path, None)
    assert not list(tmp_path.iterdir())


async def test_the_past_is_refused_and_the_present_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    access = KubeAccess(data_dir=tmp_path)
    with pytest.raises(CliError, match=r"--at does not apply: there is no ledger here") as refused:
        async with open_source(tmp_path, "why", access, at="2026-01-01T00:00:00Z"):
            pass
    assert refused.value.code is ExitCode.USAGE
    async with open_source(tmp_path, "why", access) as source:
        assert isinstance(source, KubernetesSource)
    assert capsys.readouterr().err == f"{PRESENT_ONLY}\n"


def test_an_option_that_is_not_given_is_not_refused() -> None:
    refuse_in_present("--watch", False)
    refuse_in_present("--at", None)


@pytest.mark.parametrize(
    ("environ", "is_announced"),
    [(CLUSTER, True), (CLUSTER | SERVERS, False), (CLUSTER | {"DATABASE_URL": "x"}, False), ({}, False)],
)
def test_kinds_that_always_come_from_kubernetes_say_so_where_there_is_no_ledger(
    environ: dict[str, str],
    is_announced: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    announce_unless_ledger(tmp_path, KubeAccess(data_dir=tmp_path))
    assert capsys.readouterr().err == (f"{PRESENT_ONLY}\n" if is_announced else "")

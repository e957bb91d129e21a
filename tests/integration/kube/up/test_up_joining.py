"""`gpuledger up` and a real cluster: it joins none unawares, and writes to none of another ledger. Real processes."""

from functools import partial
from pathlib import Path

import pytest

from gpuledger.compose.joining import JOINED
from gpuledger.local.kubeapi.kubeconfig import kubeconfig, write_kubeconfig
from support.cli import Cli
from support.servers import short_directory
from support.up import Up, eventually, gpuledger, running_up


def writer_of(up: Up) -> dict[str, object]:
    """What `/healthz` says of its status writer."""
    found = up.health().document["statuswriter"]
    assert isinstance(found, dict)
    return found


def is_foreign(up: Up) -> bool:
    return writer_of(up)["state"] == "foreign-cluster"


def is_at_work(up: Up) -> bool:
    return writer_of(up)["state"] in {"writing", "disabled"}


def context_and_server(path: Path) -> str:
    """The cluster of the kubeconfig, as `up` shows it."""
    lines = [line.strip(" -") for line in path.read_text().splitlines()]
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    return f"context {found['current-context']}, server {found['server']}"


@pytest.mark.long
def test_a_data_directory_joins_a_cluster_only_when_asked_to_and_no_other_ledgers() -> None:
    with short_directory() as directory, running_up(directory / "a") as first:
        eventually(partial(is_at_work, first))
        path, other = first.data_dir / "kubeconfig", directory / "b"
        cluster = context_and_server(path)
        refused = gpuledger(other, "up", KUBECONFIG=str(path))
        expected = (
            f"Error: KUBECONFIG names a real cluster ({cluster}), and the data directory {other} never met a cluster. "
            "Give --kube to join that cluster, or unset KUBECONFIG to use the embedded API server.\n"
        )
        assert (refused.returncode, refused.stderr.decode()) == (2, expected)
        assert not other.exists()
        with running_up(other, "--kube", KUBECONFIG=str(path)) as second:
            assert f"cluster  {cluster}" in second.printed
            eventually(partial(is_foreign, second))
            assert f"The cluster {cluster} belongs to the ledger " in str(writer_of(second)["reason"])
        with running_up(other, KUBECONFIG=str(path)) as second:
            eventually(partial(is_foreign, second))
        with running_up(other, "--take-over", KUBECONFIG=str(path)) as second:
            eventually(partial(is_at_work, second))
            eventually(partial(is_foreign, first))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands in this process, which end before they start anything."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return Cli(capsys)


def test_another_cluster_than_before_is_asked_about(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with short_directory() as directory:
        write_kubeconfig(directory / "kubeconfig", kubeconfig("https://new.example", None))
        (directory / JOINED).write_text('{"context": "c", "server": "https://old.example"}')
        monkeypatch.setenv("KUBECONFIG", str(directory / "kubeconfig"))
        monkeypatch.setenv("GPULEDGER_DATA_DIR", str(directory))
        refused = cli("up")
    assert (refused.code, "has worked with the cluster at https://old.example" in refused.err) == (2, True)


def test_options_about_a_cluster_need_one(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPULEDGER_DATA_DIR", str(tmp_path / "d"))
    nothing = cli("up", "--kube")
    expected = "Error: --kube joins a real cluster, and there is none. Set KUBECONFIG.\n"
    assert (nothing.code, nothing.err) == (2, expected)
    for option in ("--kube", "--take-over"):
        contradiction = cli("up", "--no-kube", option)
        assert (contradiction.code, "Leave out --no-kube" in contradiction.err) == (2, True)
    assert not (tmp_path / "d").exists()

"""`gpuledger up` and a real cluster: it joins none unawares, and writes to none of another ledger. Real processes."""

from functools import partial
from pathlib import Path

from gpuledger.compose.joining import JOINED
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


def context_and_server(kubeconfig: Path) -> str:
    """The cluster of the kubeconfig, as `up` shows it."""
    lines = [line.strip(" -") for line in kubeconfig.read_text().splitlines()]
    found = dict(line.split(": ", 1) for line in lines if ": " in line)
    return f"context {found['current-context']}, server {found['server']}"


def test_a_data_directory_joins_a_cluster_only_when_asked_to_and_no_other_ledgers() -> None:
    with short_directory() as directory, running_up(directory / "a") as first:
        eventually(partial(is_at_work, first))
        kubeconfig, other = first.data_dir / "kubeconfig", directory / "b"
        cluster = context_and_server(kubeconfig)
        refused = gpuledger(other, "up", KUBECONFIG=str(kubeconfig))
        expected = (
            f"Error: KUBECONFIG names a real cluster ({cluster}), and the data directory {other} never met a cluster. "
            "Give --kube to join that cluster, or unset KUBECONFIG to use the embedded API server.\n"
        )
        assert (refused.returncode, refused.stderr.decode()) == (2, expected)
        assert not other.exists()
        with running_up(other, "--kube", KUBECONFIG=str(kubeconfig)) as second:
            assert f"cluster  {cluster}" in second.printed
            eventually(partial(is_foreign, second))
            assert f"The cluster {cluster} belongs to the ledger " in str(writer_of(second)["reason"])
        with running_up(other, KUBECONFIG=str(kubeconfig)) as second:
            eventually(partial(is_foreign, second))
        with running_up(other, "--take-over", KUBECONFIG=str(kubeconfig)) as second:
            eventually(partial(is_at_work, second))
            eventually(partial(is_foreign, first))


def test_another_cluster_than_before_is_asked_about() -> None:
    with short_directory() as directory, running_up(directory / "a") as first:
        data_dir = directory / "b"
        data_dir.mkdir()
        (data_dir / JOINED).write_text('{"context": "c", "server": "https://old.example"}')
        refused = gpuledger(data_dir, "up", KUBECONFIG=str(first.data_dir / "kubeconfig"))
        assert (refused.returncode, b"has worked with the cluster at https://old.example" in refused.stderr) == (
            2,
            True,
        )


def test_options_about_a_cluster_need_one() -> None:
    with short_directory() as directory:
        nothing = gpuledger(directory / "d", "up", "--kube")
        assert (nothing.returncode, nothing.stderr) == (
            2,
            b"Error: --kube joins a real cluster, and there is none. Set KUBECONFIG.\n",
        )
        for option in ("--kube", "--take-over"):
            contradiction = gpuledger(directory / "d", "up", "--no-kube", option)
            assert (contradiction.returncode, b"Leave out --no-kube" in contradiction.stderr) == (2, True)

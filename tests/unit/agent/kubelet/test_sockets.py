"""Socket files: names that differ where resources do, and a folder in which only the agent's own are touched."""

from pathlib import Path

import pytest

from gpuledger.agent.errors import SocketError
from gpuledger.agent.kubelet.sockets import (
    PATH_BYTES_MAX,
    identity_of,
    remove_leftovers,
    socket_name,
    socket_path,
)

FOLDER = Path("/var/lib/kubelet/device-plugins")


@pytest.mark.parametrize(
    "resource", ["gpu.deckhouse.io/a", "cluster.gpu.deckhouse.io/" + "pool-" * 40, "ä ö/ü", "", "/"]
)
def test_a_sockets_path_is_short_and_its_name_ours(tmp_path: Path, resource: str) -> None:
    name = socket_name(resource)
    assert len(str(socket_path(FOLDER, resource))) < 100
    (tmp_path / name).touch()
    assert remove_leftovers(tmp_path) == [name]


@pytest.mark.parametrize(
    ("resource", "readable"),
    [
        ("gpu.deckhouse.io/a", "a-gpu.deckhouse.io"),
        ("cluster.gpu.deckhouse.io/training", "training-cluster.gpu.deckhouse.i"),
        ("cluster.gpu.deckhouse.io/" + "pool-" * 40, "pool-pool-pool-pool-pool-pool-po"),
        ("/", ""),
    ],
)
def test_a_sockets_name_begins_with_that_of_the_pool(resource: str, readable: str) -> None:
    begin, _, digest = socket_name(resource).removesuffix(".sock").rpartition("-")
    assert begin == f"gpuledger-{readable}"
    assert len(digest) == 8


def test_resources_that_differ_have_sockets_that_differ() -> None:
    names = ["gpu.deckhouse.io/a", "gpu.deckhouse.io/A", "gpu.deckhouse.io/a-", "gpu-deckhouse.io/a"]
    names += ["x" * 40 + end for end in "ab"] + [start + "x" * 40 for start in "ab"]
    assert len({socket_name(name) for name in names}) == len(names)


def test_a_folder_that_is_too_deep_is_refused() -> None:
    with pytest.raises(SocketError, match=f"longer than the {PATH_BYTES_MAX} bytes"):
        socket_path(Path("/" + "d" * 60), "gpu.deckhouse.io/some-pool-or-other")


def test_only_leftovers_of_ours_are_removed(tmp_path: Path) -> None:
    others = {"kubelet.sock", "nvidia-gpu.sock", "gpuledger.sock", "gpuledger-a-12345678.sock.bak", "gpuledger-a.sock"}
    for name in (*others, "gpuledger-a-12345678.sock"):
        (tmp_path / name).touch()
    assert remove_leftovers(tmp_path) == ["gpuledger-a-12345678.sock"]
    assert {path.name for path in tmp_path.iterdir()} == others
    assert remove_leftovers(tmp_path / "none") == []


def test_what_stands_in_the_way_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "gpuledger-a-12345678.sock").mkdir()
    with pytest.raises(SocketError, match="remove it by hand"):
        remove_leftovers(tmp_path)
    with pytest.raises(SocketError, match="cannot be read"):
        remove_leftovers(tmp_path / "file")
    with pytest.raises(SocketError, match="cannot be read"):
        identity_of(tmp_path / "file" / "kubelet.sock")


def test_a_file_that_was_made_anew_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    assert identity_of(path) is None
    path.touch()
    first = identity_of(path)
    assert first == identity_of(path)
    path.rename(tmp_path / "old")  # so that its inode is not used again
    path.touch()
    assert identity_of(path) != first

"""Who is at the other end of a connection, by the files of the kernel and the kubelet, and who may report."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuledger.agent.gateway.cgroups import pod_of
from gpuledger.agent.gateway.decide import (
    CHECKS,
    DENIED,
    Container,
    Peer,
    PodName,
    Trust,
    denial,
    reporter_of,
    shares_of,
)
from gpuledger.agent.gateway.peers import PeerFolders, peer_of, with_container
from gpuledger.events.payload import NAME_LENGTH_MAX

UID = "5f3a3c0e-6b0a-4d5e-9f6a-0a1b2c3d4e5f"
SLICE_UID = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"
CONTAINER = "9" * 64
OTHER_CONTAINER = "8" * 64
BURSTABLE = "kubepods.slice/kubepods-burstable.slice"


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (f"0::/{BURSTABLE}/kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-9.scope", UID),
        (f"0::/kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{CONTAINER}.scope", UID),
        (f"0::/kubepods/besteffort/pod{UID}/{CONTAINER}", UID),
        (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE_UID}.slice/x.scope", UID),
        (f"12:memory:/kubepods/burstable/pod{UID}/9\n1:name=systemd:/kubepods/burstable/pod{UID}/9\n0::/", UID),
        (f"0::/system.slice/containerd.service/kubepods-burstable-pod{SLICE_UID}.slice:cri-containerd:9", UID),
        (f"0::/{BURSTABLE}/kubepods-burstable-pod{STATIC}.slice/cri-containerd-9.scope", STATIC),
        (f"0::/kubepods/pod{STATIC}/9", STATIC),
        (f"0::/../../kubepods-besteffort-pod{SLICE_UID}.slice/cri-containerd-9.scope", UID),
        (f"0::/../../pod{UID}/9", UID),
        (f"0::/kubepods/pod{UID}/9/kubepods/pod{STATIC}", UID),
        (f"0::/kubepods/pod{UID}", UID),
        ("0::/", None),
        ("0::/system.slice/nvsentinel.service", None),
        ("0::/user.slice/user-1000.slice/session-1.scope", None),
        (f"0::/machine.slice/libpod-{CONTAINER}.scope", None),
        (f"0::/docker/{CONTAINER}", None),
        (f"0::/system.slice/tripod{UID}.service", None),
        ("0::/kubepods/pod1234/9", None),
        ("", None),
    ],
)
def test_the_pod_of_a_cgroup(cgroup: str, uid: str | None) -> None:
    found = pod_of(cgroup)
    assert (None if found is None else found.uid) == uid


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"{BURSTABLE}/kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{CONTAINER}.scope", CONTAINER),
        (f"kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{CONTAINER}.scope", CONTAINER),
        (f"kubepods.slice/kubepods-pod{SLICE_UID}.slice/crio-{CONTAINER}.scope/container", CONTAINER),
        (f"kubepods/besteffort/pod{UID}/{CONTAINER}", CONTAINER),
        (f"kubepods/besteffort/pod{UID}/crio-{CONTAINER}", CONTAINER),
        (f"system.slice/containerd.service/kubepods-pod{SLICE_UID}.slice:cri-containerd:{CONTAINER}", CONTAINER),
        (f"../../kubepods-pod{SLICE_UID}.slice/cri-containerd-{CONTAINER}.scope", CONTAINER),
        (f"kubepods/pod{UID}/{CONTAINER}/kubepods/pod{UID}/{OTHER_CONTAINER}", CONTAINER),
        (f"kubepods/pod{UID}/sub/{CONTAINER}", None),
        (f"kubepods/pod{UID}/{CONTAINER}0", None),
        (f"kubepods/pod{UID}/{CONTAINER}.slice", None),
        (f"kubepods/pod{UID}/9", None),
        (f"kubepods/pod{UID}", None),
    ],
)
def test_the_container_of_a_cgroup(path: str, container: str | None) -> None:
    for text in (f"0::/{path}\n", f"12:memory:/{path}\n1:name=systemd:/{path}\n0::/\n"):
        assert pod_of(text) == (UID, container)


class Node:
    """The files of a node on which this process belongs to a pod, and both ends of a connection of its own."""

    def __init__(self, root: Path, connection: socket.socket) -> None:
        self.folders = PeerFolders(root / "pods", root / "containers", root / "proc")
        self.connection = connection
        self.process = self.folders.proc / str(os.getpid())
        self.process.mkdir(parents=True)
        self.folders.pod_logs.mkdir()
        (self.process / "stat").write_text(f"1 (a) b) S {' '.join(map(str, range(1, 40)))}")
        self.belongs_to("")

    def belongs_to(self, cgroup: str) -> None:
        (self.process / "cgroup").write_text(f"0::/{cgroup}\n")

    def peer(self) -> Peer:
        return peer_of(self.connection, self.folders)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Node(tmp_path, ours)


def test_a_process_of_the_node(node: Node) -> None:
    assert node.peer() == Peer(os.getpid(), os.getuid())


def test_a_process_of_a_pod(node: Node) -> None:
    node.belongs_to(f"kubepods/pod{UID}/{CONTAINER}")
    (node.folders.pod_logs / f"gpu-system_dcgm-monitor-x7v2p_{UID}").mkdir()
    (node.folders.pod_logs / f"other_pod_{STATIC}").mkdir()
    assert node.peer().pod == PodName("gpu-system", "dcgm-monitor-x7v2p")


def test_a_container_of_a_pod_once_the_kubelet_has_named_it(node: Node) -> None:
    node.belongs_to(f"kubepods/pod{UID}/{CONTAINER}")
    (node.folders.pod_logs / f"team-a_train-0_{UID}").mkdir()
    peer = node.peer()
    assert peer.container == Container(CONTAINER)
    container = with_container(peer, node.folders).container
    assert container == Container(CONTAINER, unknown="No such file or directory")
    node.folders.container_logs.mkdir()
    assert with_container(peer, node.folders) == peer
    name = f"train-0_team-a_preflight-dcgm-diag-{CONTAINER}.log"
    (node.folders.container_logs / name).symlink_to("/var/log/pods/nowhere")
    named = with_container(peer, node.folders)
    assert named.container == Container(CONTAINER, "preflight-dcgm-diag")
    assert with_container(named, node.folders) is named


def test_a_pod_without_logs_is_unknown(node: Node) -> None:
    node.belongs_to(f"kubepods/pod{UID}/{CONTAINER}")
    assert f"has no logs of the pod {UID}" in (node.peer().unknown or "")
    node.folders.pod_logs.rmdir()
    assert "cannot be read (No such file or directory). Mount them." in (node.peer().unknown or "")


@pytest.mark.parametrize("content", ["", "1 (a) S", "1 (a) S " + " x" * 30])
def test_a_process_that_cannot_be_read_is_unknown(node: Node, content: str) -> None:
    (node.process / "stat").write_text(content)
    assert "cannot be read" in (node.peer().unknown or "")


def test_a_process_that_has_ended_is_unknown(node: Node) -> None:
    (node.process / "cgroup").unlink()
    assert "cannot be read ([Errno 2]" in (node.peer().unknown or "")


def test_a_child_that_ended_leaves_a_connection_of_nobody(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connects = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        subprocess.run([sys.executable, "-c", connects, path], check=True)
        accepted, _ = listener.accept()
        with accepted:
            peer = peer_of(accepted, PeerFolders(tmp_path, tmp_path))
    assert peer.pod is None
    assert "cannot be read" in (peer.unknown or "")


ROOT, OWN_USER = 0, 1000
TRUST = Trust(frozenset({"gpu-system"}), OWN_USER)


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        (Peer(7, ROOT), None),
        (Peer(7, OWN_USER), None),
        (Peer(7, 33), "Process 7 of user 33 belongs to no pod, and of those only root's"),
        (Peer(7, 33, PodName("gpu-system", "dcgm")), None),
        (
            Peer(7, ROOT, PodName("team-a", "train-0")),
            "The pod team-a/train-0 may not report health: its namespace is not trusted. If it should be, add team-a",
        ),
        (Peer(7, ROOT, unknown="it has ended."), "The agent cannot tell which pod process 7 belongs to: it has ended."),
    ],
)
def test_who_may_report(peer: Peer, words: str | None) -> None:
    reason = denial(peer, TRUST)
    assert (reason is None) if words is None else (reason or "").startswith(words)


CHECKED = Trust(frozenset({"gpu-system"}), OWN_USER, frozenset({"team-a", "gpu-system"}))
POD = PodName("team-a", "train-0")


def in_container(name: str | None = None, unknown: str | None = None, pod: PodName = POD) -> Peer:
    return Peer(7, ROOT, pod, Container(CONTAINER, name, unknown))


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        (in_container("preflight-dcgm-diag"), None),
        (in_container(), None),
        (in_container("main"), "The container main of the pod team-a/train-0 may not report health"),
        (in_container("my-preflight-check"), "The container my-preflight-check of the pod"),
        (in_container(unknown="No such file"), "The pod team-a/train-0 is in a namespace of preflight checks, but the"),
        (Peer(7, ROOT, POD), "The pod team-a/train-0 is in a namespace of preflight checks, but the cgroup of process"),
        (in_container("preflight-x", pod=PodName("team-b", "p")), "The pod team-b/p may not report health: its names"),
        (in_container("main", pod=PodName("gpu-system", "p")), None),
        (Peer(7, 33), "Process 7 of user 33 belongs to no pod"),
        (in_container("preflight-x")._replace(unknown="it has ended."), "The agent cannot tell which pod process 7"),
    ],
)
def test_which_container_may_report_where_checks_are_added(peer: Peer, words: str | None) -> None:
    reason = denial(peer, CHECKED)
    assert (reason is None) if words is None else (reason or "").startswith(words)


def test_without_namespaces_of_checks_none_may_report() -> None:
    assert (denial(in_container("preflight-dcgm-diag"), TRUST) or "").startswith(
        "The pod team-a/train-0 may not report"
    )


@pytest.mark.parametrize(
    ("peer", "holders"),
    [
        (in_container("preflight-dcgm-diag"), [POD, CHECKS]),
        (in_container(), [DENIED]),
        (in_container("main"), [DENIED]),
        (in_container("main", pod=PodName("team-b", "p")), [DENIED]),
        (in_container("main", pod=PodName("gpu-system", "p")), [PodName("gpu-system", "p")]),
        (Peer(7, ROOT), [7]),
    ],
)
def test_tenants_share_their_connections(peer: Peer, holders: list[object]) -> None:
    assert [one.holder for one in shares_of(peer, CHECKED)] == holders


def test_a_reporter_fits_an_event() -> None:
    assert reporter_of(Peer(7, ROOT)) is None
    assert reporter_of(Peer(7, ROOT, PodName("a", "b"))) == "a/b"
    assert len(reporter_of(Peer(7, ROOT, PodName("a" * 63, "b" * 253))) or "") == NAME_LENGTH_MAX

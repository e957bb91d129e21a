"""Identifies the process at the other end of a connection, its pod and container, by what kernel and kubelet show.

The kernel names the process (SO_PEERCRED), its cgroup the pod's UID and the container's id, and the kubelet's folders
of logs the names of both. A number that another process has got meanwhile names the wrong one: the process has to live
on with the same start.
Nothing here trusts what a peer says.
"""

import os
import select
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from gpuledger.agent.gateway.cgroups import pod_of
from gpuledger.agent.gateway.containers import container_name
from gpuledger.agent.gateway.decide import Container, Peer, PodName

PROC: Final = Path("/proc")

SO_PEERPIDFD: Final = 77
"""A descriptor of the peer's process, which never means another one (Linux 6.5); Python has no name for it."""

_CREDENTIALS: Final = struct.Struct("3i")


class PeerFolders(NamedTuple):
    """Where processes are, the logs of pods by `<namespace>_<pod>_<uid>`, and the links to those of containers."""

    pod_logs: Path
    container_logs: Path
    proc: Path = PROC


class _UnidentifiedPeerError(Exception):
    """Nobody can tell who a peer is; the message says why."""


def peer_of(connection: socket.socket, folders: PeerFolders) -> Peer:
    """The process that has connected; blocks on files.

    Raises:
        OSError: the connection is gone.
    """
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    with _alive(connection) as is_alive:
        try:
            if pid <= 0:
                raise _UnidentifiedPeerError("it is invisible to the agent, whose pod needs hostPID.")
            pod, container = _pod_of(pid, folders)
            if not is_alive():
                raise _UnidentifiedPeerError("it has ended. Keep the process that connects.")
        except _UnidentifiedPeerError as error:
            return Peer(pid, user, unknown=str(error))
        return Peer(pid, user, pod, container)


def with_container(peer: Peer, folders: PeerFolders) -> Peer:
    """The peer with the name of its container, once the kubelet shows it; blocks on files."""
    if peer.pod is None or peer.container is None or peer.container.name is not None:
        return peer
    try:
        name = container_name(os.listdir(folders.container_logs), peer.pod, peer.container.id)  # noqa: PTH208 - names
    except OSError as error:
        return peer._replace(container=peer.container._replace(unknown=f"{error.strerror}"))
    return peer._replace(container=Container(peer.container.id, name))


def _pod_of(pid: int, folders: PeerFolders) -> tuple[PodName | None, Container | None]:
    process = folders.proc / str(pid)
    try:
        started = _start_of(process)
        found = pod_of((process / "cgroup").read_text())
        if _start_of(process) != started:
            raise _UnidentifiedPeerError("it has ended. Keep the process that connects.")
    except (OSError, ValueError, IndexError) as error:
        raise _UnidentifiedPeerError(f"{process} cannot be read ({error}).") from error
    if found is None:
        return None, None
    return _named(found.uid, folders.pod_logs), None if found.container is None else Container(found.container)


def _start_of(process: Path) -> int:
    """When the process started, in ticks since the boot: field 22 of its `stat`, whose second may hold anything."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[19])


def _named(uid: str, logs: Path) -> PodName:
    try:
        names = [name for name in os.listdir(logs) if name.endswith(f"_{uid}")]  # noqa: PTH208 - names alone
    except OSError as error:
        raise _UnidentifiedPeerError(
            f"the logs of pods in {logs} cannot be read ({error.strerror}). Mount them."
        ) from error
    if not names:
        raise _UnidentifiedPeerError(
            f"{logs} has no logs of the pod {uid}. GPULEDGER_POD_LOGS names the kubelet's folder."
        )
    namespace, _, rest = names[0].partition("_")
    return PodName(namespace, rest.removesuffix(f"_{uid}"))


class _Life:
    """Whether a peer's process lives, by its descriptor; without one there is no doubt."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor

    def __call__(self) -> bool:
        if self.descriptor is None:
            return True
        ended = select.poll()
        ended.register(self.descriptor, select.POLLIN)
        return not ended.poll(0)


@contextmanager
def _alive(connection: socket.socket) -> Iterator[_Life]:
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, struct.calcsize("i"))
        life = _Life(int.from_bytes(found, sys.byteorder))
    except OSError:
        life = _Life(None)  # an older kernel
    try:
        yield life
    finally:
        if life.descriptor is not None:
            os.close(life.descriptor)

"""Who may report health over the socket: trusted namespaces and the node's own processes. Pure."""

from collections.abc import Collection
from typing import Final, NamedTuple

from gpuledger.events.payload import NAME_LENGTH_MAX

ROOT: Final = 0

DENIED: Final = "peers that may report nothing"


class PodName(NamedTuple):
    """A pod by its names."""

    namespace: str
    name: str


class Peer(NamedTuple):
    """A process at the other end of a connection, and its pod; None: it is the node's own.

    `unknown` says why nobody can tell who it is; None where that is clear.
    """

    pid: int
    user: int
    pod: PodName | None = None
    unknown: str | None = None


class Trust(NamedTuple):
    """Whom the agent trusts: pods of these namespaces, and processes of the node by root or by its own user."""

    namespaces: Collection[str]
    user: int


def reporter_of(peer: Peer) -> str | None:
    """The peer as events name it."""
    return None if peer.pod is None else f"{peer.pod.namespace}/{peer.pod.name}"[:NAME_LENGTH_MAX]


def denial(peer: Peer, trust: Trust) -> str | None:
    """Why the peer may report nothing, with what to do about it; None if it may.

    A pod of a tenant may report only on checks that gpuledger added to it, and it adds none.
    """
    if peer.unknown is not None:
        return f"The agent cannot tell which pod process {peer.pid} belongs to: {peer.unknown}"
    if peer.pod is None:
        if peer.user in (ROOT, trust.user):
            return None
        return (
            f"Process {peer.pid} of user {peer.user} belongs to no pod, and of those only root's and the agent's own "
            "user's may report health. Run it as root, or in a pod of a trusted namespace."
        )
    if peer.pod.namespace in trust.namespaces:
        return None
    return (
        f"The pod {reporter_of(peer)} may not report health: its namespace is not trusted. If it should be, add "
        f"{peer.pod.namespace} to GPULEDGER_HEALTH_NAMESPACES of the agent (chart: agent.healthMonitors.namespaces)."
    )


def holder_of(peer: Peer, trust: Trust) -> object:
    """Whose connections the peer's are counted among: all that may report nothing share theirs."""
    return (peer.pod or peer.pid) if denial(peer, trust) is None else DENIED

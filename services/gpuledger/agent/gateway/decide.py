"""Who may report health over the socket: trusted namespaces, the node's own processes, and preflight checks. Pure.

gpuledger's webhook adds checks to pods of tenants as init containers, and replaces containers of these names that a pod
brings along. So in the namespaces where it does that, the name of a container proves that it is a check.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from gpuledger.api.preflight import CHECK_PREFIX
from gpuledger.events.payload import NAME_LENGTH_MAX

ROOT: Final = 0

DENIED: Final = "peers that may report nothing"
CHECKS: Final = "preflight checks"

CONNECTIONS_PER_PEER_MAX: Final = 16
"""How many connections a pod has, a process of the node, or all together that may report nothing."""

CONNECTIONS_PER_CHECKED_POD_MAX: Final = 4
CONNECTIONS_OF_CHECKS_MAX: Final = 32
"""How many all preflight checks of the node have together, so that tenants leave health monitors the others."""


class PodName(NamedTuple):
    """A pod by its names."""

    namespace: str
    name: str


class Container(NamedTuple):
    """A container by its id, and its name; None: the kubelet has not shown it yet, or `unknown` says why not."""

    id: str
    name: str | None = None
    unknown: str | None = None


class Peer(NamedTuple):
    """A process at the other end of a connection, its pod (None: it is the node's own), and its container in that.

    `unknown` says why nobody can tell who it is; None where that is clear.
    """

    pid: int
    user: int
    pod: PodName | None = None
    container: Container | None = None
    unknown: str | None = None


class Trust(NamedTuple):
    """Whom the agent trusts: pods of these namespaces, and processes of the node by root or by its own user.

    In the namespaces of `preflight` it trusts checks, each with what is its own.
    """

    namespaces: Collection[str]
    user: int
    preflight: Collection[str] = ()

    def expects_checks(self, peer: Peer) -> bool:
        """Whether the peer may be a preflight check, and nothing else that reports."""
        is_trusted = peer.pod is None or peer.unknown is not None or peer.pod.namespace in self.namespaces
        return not is_trusted and peer.pod is not None and peer.pod.namespace in self.preflight


class Share(NamedTuple):
    """Whose connections some are counted among, and how many those may be."""

    holder: object
    connections_max: int


def reporter_of(peer: Peer) -> str | None:
    """The peer as events name it."""
    return None if peer.pod is None else f"{peer.pod.namespace}/{peer.pod.name}"[:NAME_LENGTH_MAX]


def denial(peer: Peer, trust: Trust) -> str | None:
    """Why the peer may report nothing, with what to do about it; None if it may.

    A preflight check may, with what is its own; one whose name the kubelet has not shown yet may as soon as it has.
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
    if trust.expects_checks(peer):
        return _container_denial(peer)
    return (
        f"The pod {reporter_of(peer)} may not report health: its namespace is not trusted. If it should be, add "
        f"{peer.pod.namespace} to GPULEDGER_HEALTH_NAMESPACES of the agent (chart: agent.healthMonitors.namespaces)."
    )


def is_check(peer: Peer) -> bool:
    """Whether the peer's container has the name of a preflight check."""
    return peer.container is not None and (peer.container.name or "").startswith(CHECK_PREFIX)


def shares_of(peer: Peer, trust: Trust) -> tuple[Share, ...]:
    """Whose connections the peer's are counted among: all that may report nothing share theirs."""
    if trust.expects_checks(peer) and is_check(peer):
        return Share(peer.pod, CONNECTIONS_PER_CHECKED_POD_MAX), Share(CHECKS, CONNECTIONS_OF_CHECKS_MAX)
    if trust.expects_checks(peer) or denial(peer, trust) is not None:
        return (Share(DENIED, CONNECTIONS_PER_PEER_MAX),)
    return (Share(peer.pod or peer.pid, CONNECTIONS_PER_PEER_MAX),)


def _container_denial(peer: Peer) -> str | None:
    """Why a container in a namespace of preflight checks may report nothing; None: it is a check, or may be one."""
    name, container = reporter_of(peer), peer.container
    if container is None:
        return (
            f"The pod {name} is in a namespace of preflight checks, but the cgroup of process {peer.pid} names no "
            "container, so that nobody can tell whether it is a check. Run it in a container of the node's runtime."
        )
    if container.unknown is not None:
        return (
            f"The pod {name} is in a namespace of preflight checks, but the agent cannot read which container "
            f"{container.id[:12]} is ({container.unknown}). Mount the kubelet's links to logs, /var/log/containers, "
            "and name them by GPULEDGER_CONTAINER_LOGS (chart: agent.healthMonitors.containerLogsDirectory)."
        )
    if container.name is None or is_check(peer):
        return None
    return (
        f"The container {container.name} of the pod {name} may not report health: in its namespace only the preflight "
        f"checks may that gpuledger adds to pods, whose containers' names begin with {CHECK_PREFIX}."
    )

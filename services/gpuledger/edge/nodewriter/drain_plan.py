"""Plans which pods leave a node, and when each is evicted. Pure.

Several owners may want a node drained. Each of their drains is in force by itself, so a pod is evicted at the earliest
time that one of them says. That does not depend on who asked first, and nobody's request is weakened by another.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gpuledger.domain.maintenance.drain_modes import is_untouched, mode_of
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.edge.nodewriter.holders import requests_devices
from gpuledger.events.maintenance import PODS_LISTED_MAX, Drain, LeavingPod, OwnedDrain

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that the kubelet runs from a file: evicting it has no effect."""

ENDED: Final = ("Succeeded", "Failed")
TERMINATING: Final = "Terminating"
UNTIL_IT_ENDS: Final = "Waits until it ends"
UNCLEAR: Final = "Stays: the ledger does not know whether it holds the device"
UNTOUCHED: Final = "Stays: drains leave its namespace untouched"
OF_DAEMON_SET: Final = "Stays: its DaemonSet would create it again, and it holds a device"
OF_A_FILE: Final = "Stays: the kubelet runs it from a file, and it holds a device"
MAY_HOLD: Final = "Stays, as one of a DaemonSet or of a file: the ledger does not know whether it holds the device"

STAYING: Final = frozenset({UNTOUCHED, OF_DAEMON_SET, OF_A_FILE, MAY_HOLD})
"""What is reported of pods that a drain does not wait for; it finishes with them in place."""


class Leaving(NamedTuple):
    """A pod that is to leave. `evict_at` is when it may be evicted at the earliest; None: it ends by itself.

    `delete_at` is when it may be deleted where a disruption budget refuses its eviction; None: never. One that
    `is_unclear` is not to leave by what is known: it may hold a device whose pods are.
    """

    namespace: str
    pod: str
    uid: str
    evict_at: datetime | None
    is_terminating: bool
    delete_at: datetime | None = None
    is_unclear: bool = False


Begun = Mapping[str, datetime]
"""When the drains of each owner began; one that is not there began as soon as it was requested."""

NOT_LATE: Final[Begun] = MappingProxyType({})

Holds = Callable[[Mapping[str, Any], Collection[str]], bool | None]
"""Whether a pod holds one of these devices; None: nobody knows."""


def leaving(
    pods: Iterable[Mapping[str, Any]],
    node: str,
    drains: Sequence[OwnedDrain],
    untouched: Sequence[str],
    holds: Holds = lambda _pod, _devices: None,
    begun: Begun = NOT_LATE,
) -> list[Leaving]:
    """The pods of a node that are to leave, by namespace and name; `untouched` are patterns of namespaces.

    `begun` is when the drains of each owner began, where that was later than they were requested.
    Of a drain that names devices, these are the pods that hold one of them. Where nobody knows who does, the drain
    becomes no wider: such a pod is among them, and is never evicted for it.
    """
    found = (_leaving(pod, drains, holds, begun) for pod in pods if must_leave(pod, node, untouched))
    return sorted((one for one in found if one is not None), key=lambda one: (one.namespace, one.pod))


def is_of_nodes(drains: Iterable[OwnedDrain]) -> bool:
    """Whether one of the drains is about a whole node, which is to be cordoned for it."""
    return any(not one.drain.devices for one in drains)


def waits_for(pod: Leaving, now: datetime) -> str | None:
    """What a pod waits for that is not to be evicted now; None if it is."""
    if pod.is_unclear:
        return UNCLEAR
    if pod.is_terminating:
        return TERMINATING
    if pod.evict_at is None:
        return UNTIL_IT_ENDS
    if pod.evict_at > now:
        return f"{UNTIL_IT_ENDS}, or until {pod.evict_at.isoformat(timespec='seconds')}"
    return None


def staying(
    pods: Iterable[Mapping[str, Any]],
    node: str,
    drains: Collection[OwnedDrain],
    untouched: Sequence[str],
    holds: Holds = lambda _pod, _devices: None,
) -> list[LeavingPod]:
    """The first pods of a node that stay though they are in the way, each with the reason, by namespace and name.

    They would leave if their namespaces were not left untouched, or hold a drained device and come back at once.
    """
    kept = ((pod, _stays(pod, node, drains, untouched, holds)) for pod in pods)
    names = sorted(
        (namespace_of(pod), str(mapping(pod, "metadata").get("name") or ""), reason) for pod, reason in kept if reason
    )
    return [LeavingPod(namespace=one, pod=pod, state=reason) for one, pod, reason in names[:PODS_LISTED_MAX]]


def _stays(
    pod: Mapping[str, Any], node: str, drains: Collection[OwnedDrain], untouched: Sequence[str], holds: Holds
) -> str | None:
    if not _is_there(pod, node):
        return None
    if not (_is_of_daemon_set(pod) or _is_of_file(pod)):
        return UNTOUCHED if is_untouched(namespace_of(pod), untouched) else None
    held = [holds(pod, one.drain.devices) if one.drain.devices else requests_devices(pod) for one in drains]
    if any(held):
        return OF_DAEMON_SET if _is_of_daemon_set(pod) else OF_A_FILE
    return MAY_HOLD if None in held else None


def must_leave(pod: Mapping[str, Any], node: str, untouched: Sequence[str]) -> bool:
    """Whether a drain concerns a pod."""
    return _is_drainable(pod, node) and not is_untouched(namespace_of(pod), untouched)


def namespace_of(pod: Mapping[str, Any]) -> str:
    """The namespace of a pod."""
    return str(mapping(pod, "metadata").get("namespace") or "")


def _is_drainable(pod: Mapping[str, Any], node: str) -> bool:
    """Whether a pod can leave: one of a DaemonSet comes back, a mirror pod stays, one that ended is gone."""
    return _is_there(pod, node) and not _is_of_daemon_set(pod) and not _is_of_file(pod)


def _is_there(pod: Mapping[str, Any], node: str) -> bool:
    is_on_node = mapping(pod, "spec").get("nodeName") == node
    return is_on_node and mapping(pod, "status").get("phase") not in ENDED


def _is_of_daemon_set(pod: Mapping[str, Any]) -> bool:
    return any(
        mapping(one).get("controller") is True and mapping(one).get("kind") == "DaemonSet"
        for one in items(pod, "metadata", "ownerReferences")
    )


def _is_of_file(pod: Mapping[str, Any]) -> bool:
    return MIRROR in mapping(mapping(pod, "metadata"), "annotations")


def times_out_at(drains: Iterable[OwnedDrain], begun: Begun = NOT_LATE) -> datetime:
    """When all pods should have gone.

    Where pods are evicted after a time-out, they get the same time once more to go.
    """
    return max(_gone_at(one, begun) if _waits_first(one.drain) else one.since + _timeout(one.drain) for one in drains)


def _leaving(pod: Mapping[str, Any], drains: Iterable[OwnedDrain], holds: Holds, begun: Begun) -> Leaving | None:
    held = [(one, not one.drain.devices or holds(pod, one.drain.devices)) for one in drains]
    concerned = [one for one, is_held in held if is_held]
    if concerned or any(is_held is None for _, is_held in held):
        return _planned(pod, concerned, begun)
    return None


def _planned(pod: Mapping[str, Any], drains: Sequence[OwnedDrain], begun: Begun) -> Leaving:
    """When a pod leaves by these drains; without any it is unclear whether it is to leave."""
    metadata, namespace = mapping(pod, "metadata"), namespace_of(pod)
    times = [time for one in drains if (time := _evict_at(one, namespace)) is not None]
    deletions = [time for one in drains if (time := _delete_at(one, namespace, begun)) is not None]
    is_terminating = bool(metadata.get("deletionTimestamp"))
    name, uid = str(metadata.get("name") or ""), str(metadata.get("uid") or "")
    return Leaving(
        namespace, name, uid, min(times, default=None), is_terminating, min(deletions, default=None), not drains
    )


def _evict_at(one: OwnedDrain, namespace: str) -> datetime | None:
    mode = mode_of(one.drain, namespace)
    if mode == "AllowCompletion":
        return None
    return one.since if mode == "Immediate" else one.since + _timeout(one.drain)


def _delete_at(one: OwnedDrain, namespace: str, begun: Begun) -> datetime | None:
    """When a pod may be deleted whose eviction a budget refuses: the budget has had as long as the pods."""
    return _gone_at(one, begun) if mode_of(one.drain, namespace) == "DeleteAfterTimeout" else None


def _gone_at(one: OwnedDrain, begun: Begun) -> datetime:
    """When pods should have gone that are evicted after the time-out: as long after the first possible eviction.

    Nobody could evict them before the drain began, however long ago it was requested.
    """
    timeout = _timeout(one.drain)
    return max(one.since + timeout, begun.get(one.owner, one.since)) + timeout


def _waits_first(drain: Drain) -> bool:
    return "DeleteAfterTimeout" in (drain.mode, *(one.mode for one in drain.namespaces))


def _timeout(drain: Drain) -> timedelta:
    return timedelta(seconds=drain.timeout_s)

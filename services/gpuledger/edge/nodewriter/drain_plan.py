"""Plans which pods leave a node, and when each is evicted. Pure.

Several owners may want a node drained. Each of their drains is in force by itself, so a pod is evicted at the earliest
time that one of them says. That does not depend on who asked first, and nobody's request is weakened by another.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from gpuledger.domain.maintenance.drain_modes import is_untouched, mode_of
from gpuledger.edge.kube.objects import items, mapping
from gpuledger.events.maintenance import PODS_LISTED_MAX, Drain, LeavingPod, OwnedDrain

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of a pod that the kubelet runs from a file: evicting it has no effect."""

ENDED: Final = ("Succeeded", "Failed")
TERMINATING: Final = "Terminating"
UNTIL_IT_ENDS: Final = "Waits until it ends"
UNCLEAR: Final = "Stays: the ledger does not know whether it holds the device"
UNTOUCHED: Final = "Stays: drains leave its namespace untouched"


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


Holds = Callable[[Mapping[str, Any], Collection[str]], bool | None]
"""Whether a pod holds one of these devices; None: nobody knows."""


def leaving(
    pods: Iterable[Mapping[str, Any]],
    node: str,
    drains: Sequence[OwnedDrain],
    untouched: Sequence[str],
    holds: Holds = lambda _pod, _devices: None,
) -> list[Leaving]:
    """The pods of a node that are to leave, by namespace and name; `untouched` are patterns of namespaces.

    Of a drain that names devices, these are the pods that hold one of them. Where nobody knows who does, the drain
    becomes no wider: such a pod is among them, and is never evicted for it.
    """
    found = (_leaving(pod, drains, holds) for pod in pods if must_leave(pod, node, untouched))
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


def staying(pods: Iterable[Mapping[str, Any]], node: str, untouched: Sequence[str]) -> list[LeavingPod]:
    """The first pods of a node that would leave if their namespaces were not left untouched, by namespace and name."""
    kept = (pod for pod in pods if _is_drainable(pod, node) and is_untouched(namespace_of(pod), untouched))
    names = sorted((namespace_of(pod), str(mapping(pod, "metadata").get("name") or "")) for pod in kept)
    return [LeavingPod(namespace=one, pod=pod, state=UNTOUCHED) for one, pod in names[:PODS_LISTED_MAX]]


def must_leave(pod: Mapping[str, Any], node: str, untouched: Sequence[str]) -> bool:
    """Whether a drain concerns a pod."""
    return _is_drainable(pod, node) and not is_untouched(namespace_of(pod), untouched)


def namespace_of(pod: Mapping[str, Any]) -> str:
    """The namespace of a pod."""
    return str(mapping(pod, "metadata").get("namespace") or "")


def _is_drainable(pod: Mapping[str, Any], node: str) -> bool:
    """Whether a pod can leave: one of a DaemonSet comes back, a mirror pod stays, one that ended is gone."""
    metadata = mapping(pod, "metadata")
    is_of_daemon_set = any(
        mapping(one).get("controller") is True and mapping(one).get("kind") == "DaemonSet"
        for one in items(pod, "metadata", "ownerReferences")
    )
    return (
        mapping(pod, "spec").get("nodeName") == node
        and not is_of_daemon_set
        and MIRROR not in mapping(metadata, "annotations")
        and mapping(pod, "status").get("phase") not in ENDED
    )


def times_out_at(drains: Iterable[OwnedDrain]) -> datetime:
    """When all pods should have gone.

    Where pods are evicted after a time-out, they get the same time once more to go.
    """
    return max(one.since + _timeout(one.drain) * (2 if _waits_first(one.drain) else 1) for one in drains)


def _leaving(pod: Mapping[str, Any], drains: Iterable[OwnedDrain], holds: Holds) -> Leaving | None:
    held = [(one, not one.drain.devices or holds(pod, one.drain.devices)) for one in drains]
    concerned = [one for one, is_held in held if is_held]
    if concerned or any(is_held is None for _, is_held in held):
        return _planned(pod, concerned)
    return None


def _planned(pod: Mapping[str, Any], drains: Sequence[OwnedDrain]) -> Leaving:
    """When a pod leaves by these drains; without any it is unclear whether it is to leave."""
    metadata, namespace = mapping(pod, "metadata"), namespace_of(pod)
    times = [time for one in drains if (time := _evict_at(one, namespace)) is not None]
    deletions = [time for one in drains if (time := _delete_at(one, namespace)) is not None]
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


def _delete_at(one: OwnedDrain, namespace: str) -> datetime | None:
    """When a pod may be deleted whose eviction was refused since the time-out: after as long again."""
    waits_first = mode_of(one.drain, namespace) == "DeleteAfterTimeout"
    return one.since + 2 * _timeout(one.drain) if waits_first else None


def _waits_first(drain: Drain) -> bool:
    return "DeleteAfterTimeout" in (drain.mode, *(one.mode for one in drain.namespaces))


def _timeout(drain: Drain) -> timedelta:
    return timedelta(seconds=drain.timeout_s)

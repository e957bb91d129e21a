"""What kube-scheduler decides beside its extender, for a laptop: which nodes may take a pod, and the best one.

It is no second scheduler: shared devices are the extender's matter alone. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuledger.edge.kube.objects import items, mapping

UNSCHEDULABLE: Final = "Unschedulable"
BLOCKING: Final = frozenset({"NoSchedule", "NoExecute"})

Object = Mapping[str, Any]


class Candidates(NamedTuple):
    """The nodes that may take a pod, in their order, and the reason of each other one."""

    names: tuple[str, ...]
    refused: Mapping[str, str]


def candidates(pod: Object, nodes: Iterable[Object]) -> Candidates:
    """The nodes that pass what kube-scheduler checks itself: cordons, taints and the pod's node selector."""
    refused: dict[str, str] = {}
    names = []
    for node in nodes:
        name = str(mapping(node, "metadata").get("name"))
        reason = _reason(pod, node)
        if reason is None:
            names.append(name)
        else:
            refused[name] = reason
    return Candidates(tuple(names), refused)


def explanation(reasons: Iterable[str]) -> str:
    """Why no node takes a pod, as kube-scheduler words it: each reason once, with the number of its nodes."""
    counted = Counter(reason.rstrip(".") for reason in reasons)
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in counted.items()))
    return f"0/{counted.total()} nodes are available: {listed}." if counted else "no nodes available to schedule pods"


def best(names: Iterable[str], scores: Mapping[str, int]) -> str:
    """The node of the greatest score; of several, the first by name."""
    return min(names, key=lambda name: (-scores.get(name, 0), name))


def is_waiting(pod: Object) -> bool:
    """Whether a pod waits for a node."""
    spec, metadata = mapping(pod, "spec"), mapping(pod, "metadata")
    phase = mapping(pod, "status").get("phase")
    is_over = bool(metadata.get("deletionTimestamp")) or phase in ("Succeeded", "Failed")
    return not is_over and not spec.get("nodeName") and not spec.get("schedulingGates")


def has_to_start(pod: Object) -> bool:
    """Whether a node's kubelet would start the pod now."""
    is_bound = bool(mapping(pod, "spec").get("nodeName")) and not mapping(pod, "metadata").get("deletionTimestamp")
    return is_bound and mapping(pod, "status").get("phase", "Pending") == "Pending"


def has_to_end(pod: Object) -> bool:
    """Whether a node's kubelet would end the pod now, and have its object removed."""
    return bool(mapping(pod, "spec").get("nodeName")) and bool(mapping(pod, "metadata").get("deletionTimestamp"))


def unscheduled(pod: Object, message: str, time: str) -> dict[str, Any] | None:
    """The status of a pod that no node takes; None where it says so already."""
    conditions = [dict(one) for one in items(pod, "status", "conditions") if isinstance(one, Mapping)]
    before = next((one for one in conditions if one.get("type") == "PodScheduled"), {})
    if (before.get("status"), before.get("message")) == ("False", message):
        return None
    is_same = before.get("status") == "False"
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": UNSCHEDULABLE,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": before.get("lastTransitionTime") if is_same else time,
    }
    return {"conditions": [*(one for one in conditions if one.get("type") != "PodScheduled"), condition]}


def _reason(pod: Object, node: Object) -> str | None:
    """Why a node is no candidate, as kube-scheduler words it."""
    tolerations = [one for one in items(pod, "spec", "tolerations") if isinstance(one, Mapping)]
    if mapping(node, "spec").get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in items(node, "spec", "taints"):
        if mapping(taint).get("effect") in BLOCKING and not any(_tolerates(one, taint) for one in tolerations):
            return f"node(s) had untolerated taint(s) {{{taint.get('key')}: {taint.get('value') or ''}}}"
    labels = mapping(node, "metadata", "labels")
    selector = mapping(pod, "spec", "nodeSelector")
    if any(labels.get(key) != value for key, value in selector.items()):
        return "node(s) didn't match Pod's node affinity/selector"
    return None


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    if toleration.get("key") != taint.get("key"):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == (taint.get("value") or "")

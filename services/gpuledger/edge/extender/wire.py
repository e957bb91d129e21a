"""What kube-scheduler sends to an extender, and the answers that it reads: `k8s.io/kube-scheduler/extender/v1`. Pure.

The types have no JSON tags there, so keys are the names of Go's fields; a missing one, a null and an empty one mean the
same. Pods and nodes are core/v1 objects. Scores go from 0 to `SCORE_MAX`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuledger.edge.extender.errors import ArgumentsError
from gpuledger.edge.kube.objects import items, mapping

SCORE_MAX: Final = 10
"""What upstream calls MaxExtenderPriority; the scheduler weights and scales it."""

Object = Mapping[str, Any]


class ExtenderArgs(NamedTuple):
    """A pod and its candidate nodes.

    `nodes` are whole Node objects, from a scheduler whose extender is not `nodeCacheCapable`; None where it sent names.
    """

    pod: Object
    names: tuple[str, ...]
    nodes: tuple[Object, ...] | None = None


class FilterResult(NamedTuple):
    """The nodes that can take a pod, and why the others cannot; evicting helps on none of the `unresolvable` ones."""

    fits: Sequence[str]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class BindingArgs(NamedTuple):
    """A pod that the scheduler gives to a node."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def pod(self) -> str:
        """The pod's id in the ledger."""
        return f"{self.namespace}/{self.name}"


class Victims(NamedTuple):
    """The pods, by UID, that a node would lose for another pod, the most important first."""

    uids: tuple[str, ...]
    budget_violations: int = 0


class PreemptionArgs(NamedTuple):
    """A pod, and by node the pods that the scheduler would evict for it."""

    pod: Object
    victims: Mapping[str, Victims]


def read_args(document: object) -> ExtenderArgs:
    """The arguments of filter and prioritize.

    Raises:
        ArgumentsError: they are not ExtenderArgs.
    """
    pod = _pod(document)
    names = mapping(document).get("NodeNames")
    if isinstance(names, list):
        return ExtenderArgs(pod, tuple(map(str, names)))
    nodes = tuple(one for one in items(document, "Nodes", "items") if isinstance(one, dict))
    return ExtenderArgs(pod, tuple(str(mapping(one, "metadata").get("name") or "") for one in nodes), nodes)


def read_binding(document: object) -> BindingArgs:
    """The arguments of bind.

    Raises:
        ArgumentsError: they are not ExtenderBindingArgs.
    """
    given = mapping(document)
    values = [given.get(key) for key in ("PodNamespace", "PodName", "PodUID", "Node")]
    if not all(isinstance(one, str) and one for one in values):
        raise ArgumentsError("The body is no ExtenderBindingArgs with PodNamespace, PodName, PodUID and Node.")
    return BindingArgs(*map(str, values))


def read_preemption(document: object) -> PreemptionArgs:
    """The arguments of preempt; victims that came as whole pods are reduced to their UIDs.

    Raises:
        ArgumentsError: they are not ExtenderPreemptionArgs.
    """
    pod = _pod(document)
    found = {node: _victims(one, _uid_of) for node, one in mapping(document, "NodeNameToVictims").items()}
    found |= {node: _victims(one, _meta_uid) for node, one in mapping(document, "NodeNameToMetaVictims").items()}
    return PreemptionArgs(pod, found)


def filter_document(args: ExtenderArgs, result: FilterResult) -> dict[str, Any]:
    """An ExtenderFilterResult, with nodes where nodes were sent, and else with names."""
    nodes = None
    if args.nodes is not None:
        fits = set(result.fits)
        kept = [node for name, node in zip(args.names, args.nodes, strict=True) if name in fits]
        nodes = {"metadata": {}, "items": kept}
    return {
        "Nodes": nodes,
        "NodeNames": list(result.fits) if nodes is None else None,
        "FailedNodes": dict(result.failed),
        "FailedAndUnresolvableNodes": dict(result.unresolvable),
        "Error": "",
    }


def filter_error(message: str) -> dict[str, Any]:
    """An ExtenderFilterResult that ends the scheduling of the pod for now with an error."""
    return {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": None,
        "FailedAndUnresolvableNodes": None,
        "Error": message,
    }


def priorities_document(scores: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """A HostPriorityList."""
    return [{"Host": name, "Score": score} for name, score in scores]


def binding_document(error: str = "") -> dict[str, Any]:
    """An ExtenderBindingResult; without an error the pod is bound."""
    return {"Error": error}


def preemption_document(victims: Mapping[str, Victims]) -> dict[str, Any]:
    """An ExtenderPreemptionResult."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in one.uids], "NumPDBViolations": one.budget_violations}
            for node, one in victims.items()
        }
    }


def _pod(document: object) -> Object:
    pod = mapping(document).get("Pod")
    if not isinstance(pod, dict):
        raise ArgumentsError("The body has no Pod.")
    return pod


def _victims(given: object, uid_of: Callable[[object], str]) -> Victims:
    uids = tuple(uid for uid in map(uid_of, items(given, "Pods")) if uid)
    violations = mapping(given).get("NumPDBViolations")
    return Victims(uids, violations if isinstance(violations, int) else 0)


def _uid_of(pod: object) -> str:
    return str(mapping(pod, "metadata").get("uid") or "")


def _meta_uid(pod: object) -> str:
    return str(mapping(pod).get("UID") or "")

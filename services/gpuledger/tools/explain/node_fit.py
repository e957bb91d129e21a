"""What keeps a pod off a node: its own selectors, the node's taints and a cordon. Pure.

It must never call a node closed that the scheduler may use: what it does not check keeps no pod off.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuledger.domain.dra.objects import LabelledNode, NodeExpression, Reach
from gpuledger.domain.dra.reach import reaches
from gpuledger.edge.admission.rules.scheduling_hints import tolerates
from gpuledger.edge.kube.client import Object
from gpuledger.edge.watchers.fields import FieldReader
from gpuledger.edge.watchers.resources.reaches import terms_of
from gpuledger.events.pool import PoolDefined, PoolTaint
from gpuledger.tools.explain.pools import Barrier, NodeConstraint

CORDON: Final = "node.kubernetes.io/unschedulable"
"""The taint that Kubernetes puts on a node that is cordoned."""

KEEPING_OFF: Final = frozenset({"NoSchedule", "NoExecute"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def constraints(pod: Object, node: Object) -> tuple[NodeConstraint, ...]:
    """What keeps the pod off a node of Kubernetes."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    return (
        *_cordon(pod, spec),
        *_taints(pod, spec),
        *selection(pod, LabelledNode(metadata["name"], metadata.get("labels") or {})),
    )


def selection(pod: Object, node: LabelledNode) -> Iterator[NodeConstraint]:
    """The parts of a pod's node selector and required node affinity that a node does not meet."""
    spec = pod.get("spec") or {}
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        if node.labels.get(key) != value:
            yield NodeConstraint(Barrier.NOT_SELECTED, f"nodeSelector {key}={value}")
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is not None and not reaches(_reach(required), node):
        yield NodeConstraint(Barrier.NOT_SELECTED, "required node affinity")


def untolerated(pod: Object, pool: PoolDefined) -> list[str]:
    """The taints of a pool's nodes that the pod does not tolerate, as `key=value:effect`."""
    taints = pool.taints if pool.taints_enabled else ()
    return [_text(one) for one in taints if one.effect in KEEPING_OFF and not _tolerated(pod, one)]


def _cordon(pod: Object, spec: Mapping[str, Any]) -> Iterator[NodeConstraint]:
    if spec.get("unschedulable") and not _tolerated(pod, PoolTaint(key=CORDON, effect="NoSchedule")):
        yield NodeConstraint(Barrier.CORDONED)


def _taints(pod: Object, spec: Mapping[str, Any]) -> Iterator[NodeConstraint]:
    for one in spec.get("taints") or ():
        taint = PoolTaint(key=one["key"], value=one.get("value") or None, effect=one["effect"])
        is_cordon = bool(spec.get("unschedulable")) and taint.key == CORDON
        if taint.effect in KEEPING_OFF and not is_cordon and not _tolerated(pod, taint):
            yield NodeConstraint(Barrier.TAINTED, _text(taint))


def _tolerated(pod: Object, taint: PoolTaint) -> bool:
    return any(tolerates(one, taint) for one in (pod.get("spec") or {}).get("tolerations") or ())


def _text(taint: PoolTaint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def _reach(selector: Mapping[str, Any]) -> Reach:
    """The nodes that a node selector selects: those of any of its terms."""
    terms = terms_of(selector, FieldReader())
    return Reach(
        terms=tuple(
            tuple(NodeExpression(one["key"], one["operator"], tuple(one["values"]), one["is_field"]) for one in term)
            for term in terms
        )
    )

"""What keeps a pod off a node: cordons, taints, and the pod's selectors."""

from typing import Any

import pytest

from gpuledger.events.pool import PoolTaint
from gpuledger.tools.explain.node_fit import CORDON, constraints, untolerated
from gpuledger.tools.explain.pools import Barrier
from support.pools import pool

CORDON_TAINT = {"key": CORDON, "effect": "NoSchedule"}
TEAM = {"key": "team", "value": "b", "effect": "NoSchedule"}
EVICTS = {"key": "gone", "effect": "NoExecute"}
SOFT = {"key": "soft", "effect": "PreferNoSchedule"}


def node(*taints: dict[str, str], cordoned: bool = False, **labels: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"taints": list(taints)}
    if cordoned:
        spec["unschedulable"] = True
    return {"metadata": {"name": "w1", "labels": labels}, "spec": spec}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "team-a"}, "spec": spec}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


def zone(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": operator, "values": list(values)}]}


NAMED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["w1"]}]}


@pytest.mark.parametrize(
    ("requests", "has", "expected"),
    [
        (pod(), node(), []),
        (pod(), node(cordoned=True), [(Barrier.CORDONED, "")]),
        (pod(), node(CORDON_TAINT, cordoned=True), [(Barrier.CORDONED, "")]),
        (pod(tolerations=[{"key": CORDON, "operator": "Exists"}]), node(CORDON_TAINT, cordoned=True), []),
        (pod(), node(CORDON_TAINT), [(Barrier.TAINTED, f"{CORDON}:NoSchedule")]),
        (pod(), node(TEAM, EVICTS), [(Barrier.TAINTED, "team=b:NoSchedule"), (Barrier.TAINTED, "gone:NoExecute")]),
        (pod(), node(SOFT), []),
        (pod(tolerations=[{"key": "team", "value": "b"}]), node(TEAM), []),
        (pod(tolerations=[{"key": "team", "value": "a"}]), node(TEAM), [(Barrier.TAINTED, "team=b:NoSchedule")]),
        (pod(tolerations=[{"operator": "Exists"}]), node(TEAM, EVICTS), []),
        (pod(nodeSelector={"zone": "1"}), node(zone="1"), []),
        (pod(nodeSelector={"zone": "1"}), node(zone="2"), [(Barrier.NOT_SELECTED, "nodeSelector zone=1")]),
        (pod(nodeSelector={"zone": ""}), node(), [(Barrier.NOT_SELECTED, "nodeSelector zone=")]),
        (pod(affinity=affinity(zone("In", "1"), zone("In", "2"))), node(zone="2"), []),
        (pod(affinity=affinity(zone("In", "1"))), node(zone="2"), [(Barrier.NOT_SELECTED, "required node affinity")]),
        (pod(affinity=affinity(zone("NotIn", "1"))), node(), []),
        (pod(affinity=affinity(NAMED)), node(), []),
        (pod(affinity=affinity({})), node(), [(Barrier.NOT_SELECTED, "required node affinity")]),
        (pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}), node(), []),
    ],
)
def test_what_keeps_a_pod_off_a_node(
    requests: dict[str, Any], has: dict[str, Any], expected: list[tuple[Barrier, str]]
) -> None:
    assert [(one.barrier, one.detail) for one in constraints(requests, has)] == expected


def test_taints_of_a_pool_that_a_pod_does_not_tolerate() -> None:
    taints = tuple(PoolTaint.model_validate(one) for one in (TEAM, EVICTS, SOFT))
    tolerates = pod(tolerations=[{"key": "gone", "operator": "Exists"}])
    assert untolerated(tolerates, pool(taints=taints)) == ["team=b:NoSchedule"]
    assert untolerated(tolerates, pool(taints=taints, taints_enabled=False)) == []

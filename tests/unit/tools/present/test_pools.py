"""Pools as objects of Kubernetes make the answers of `why pod`."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuledger.tools.explain.pools import Finding, PodState, PoolAnswer, UnitRequest, answer, uses_of
from gpuledger.tools.explain.pools_wording import pool_words
from gpuledger.tools.present.pools import PoolObjects, pools_of

Json = dict[str, Any]

UNITS, POOL = "gpu.deckhouse.io/a", "team-a/a"
TIME = "2026-01-01T01:00:00Z"


def named(name: str, namespace: str | None = None) -> Json:
    place = {"namespace": namespace} if namespace else {}
    return {"name": name, "uid": f"u-{name}", "creationTimestamp": TIME} | place


def pool(total: int | None = 4, **condition: str) -> Json:
    spec = {"provider": "Nvidia", "backend": "DevicePlugin", "resource": {"unit": "Card"}}
    conditions = [{"lastTransitionTime": TIME, **condition}] if condition else []
    capacity = {} if total is None else {"total": total}
    return {"metadata": named("a", "team-a"), "spec": spec, "status": {"capacity": capacity, "conditions": conditions}}


def node(name: str, units: int) -> Json:
    return {
        "metadata": named(name) | {"labels": {"zone": name}},
        "status": {"allocatable": {UNITS: str(units), "cpu": "8"}},
    }


def pod(name: str, units: int, where: str | None = None) -> Json:
    container = {"name": "c", "resources": {"limits": {UNITS: str(units)}}}
    return {"metadata": named(name, "team-a"), "spec": {"containers": [container], "nodeName": where}}


def device(name: str, configured: str, reason: str) -> Json:
    condition = {"type": "Configured", "status": configured, "reason": reason, "lastTransitionTime": TIME}
    reference = {"name": "a", "namespace": "team-a"}
    state = "Assigned" if configured == "True" else "PendingAssignment"
    status = {"nodeName": "w1", "state": state, "poolRef": reference, "conditions": [condition], "managed": True}
    return {"metadata": named(name), "status": status}


def asked(
    units: int,
    *,
    pools: Sequence[Json],
    devices: Sequence[Json] = (),
    nodes: Sequence[Json] = (),
    pods: Sequence[Json] = (),
) -> PoolAnswer:
    state = pools_of(PoolObjects({"gpupools": list(pools)}, list(devices), list(nodes), list(pods)))
    return answer(state, UnitRequest(UNITS, POOL, units), uses_of(state.pod.rows, POOL), PodState())


def test_a_node_offers_what_its_kubelet_reports() -> None:
    found = asked(2, pools=[pool()], nodes=[node("w1", 3), node("w2", 1)], pods=[pod("one", 2, "w1"), pod("waits", 1)])
    assert [(one.node, one.offered, one.used, one.free) for one in found.rooms] == [("w1", 3, 2, 1), ("w2", 1, 0, 1)]
    assert found.finding is Finding.FRAGMENTED
    assert asked(1, pools=[pool()], nodes=[node("w1", 3)]).finding is Finding.FITS
    assert asked(3, pools=[pool()], nodes=[node("w1", 2), node("w2", 2)]).finding is Finding.NODES_TOO_SMALL


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        ([], Finding.NOT_FOUND),
        ([pool(None)], Finding.UNDECIDED),
        ([pool(0)], Finding.WITHOUT_CAPACITY),
        ([pool(1)], Finding.TOO_MANY),
    ],
)
def test_what_the_status_of_a_pool_says_of_its_capacity(given: list[Json], finding: Finding) -> None:
    assert asked(2, pools=given, nodes=[node("w1", 2)]).finding is finding


def test_conditions_and_devices_that_offer_nothing_are_those_of_the_statuses() -> None:
    closed = {"type": "Configured", "status": "False", "reason": "Invalid", "message": "no profile"}
    devices = [device("d0", "True", "Applied"), device("d1", "False", "NodeNotReady")]
    found = asked(1, pools=[pool(0, **closed)], devices=devices)
    assert [(one.state, one.reason, one.devices) for one in found.idle] == [("PendingAssignment", "NodeNotReady", 1)]
    words = pool_words(found)
    assert "GPUPool team-a/a is Configured=False (Invalid: no profile)" in words
    assert "offers none: 1 PendingAssignment (NodeNotReady)" in words


def test_odd_objects_are_left_out() -> None:
    odd: list[Json] = [{}, {"metadata": {"name": "x"}, "status": {"nodeName": 3, "allocatable": 3}}]
    state = pools_of(PoolObjects({"gpupools": odd, "clustergpupools": odd}, odd, odd, odd))
    assert not state.device.rows
    assert not state.allocatable

"""Documents and pages of `why pod` about pools; they name only pods that the user may read."""

from typing import Any

import pytest

from gpuledger.cli.render import Console
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.why_page import pod_part, pool_part
from gpuledger.tools.explain.access import Readable
from gpuledger.tools.explain.pod_units import UnitsExplanation
from gpuledger.tools.explain.pools import Barrier, NodeConstraint, PodState
from gpuledger.tools.explain.pools_document import pod_document, pool_documents, quota_notes
from gpuledger.tools.explain.query import QueriedPod, pod_of
from support.events import hour
from support.pool_explanations import POOL, UNITS, cards, explained_pool, pod_on
from support.pools import marked, pool

MINE = Readable("of namespaces in which you may read pods", namespaces=frozenset({"team-a"}))
QUOTA = {"namespace": "team-a", "name": "gpus", "used": "3", "hard": "4"}


def of_pools(**other: Any) -> UnitsExplanation:
    pools = cards(w1=3, w2=1).begin("w3")
    pools.record("w3-0", marked("a"))
    pools.record(POOL, pool(maintenance="enabled"))
    uses = (
        pod_on("w1", 1, "team-a/train"),
        pod_on("w1", 1, "team-b/x"),
        pod_on("w2", 1, "team-c/y"),
        pod_on(None, 1, "team-b/z"),
    )
    found = explained_pool(pools, 2, *uses)
    return UnitsExplanation(**{"answers": (found,), "may": MINE, "quotas": {}, "untolerated": {}, "notes": ()} | other)


def test_pods_that_may_not_be_named_are_counted() -> None:
    (document,) = pool_documents(of_pools())
    assert document["pods"] == [{"pod": "team-a/train", "node": "w1", "units": 1}]
    assert document["unnamedPods"] == {"pods": 2, "units": 2}
    assert (document["total"], document["used"], document["free"], document["othersWaiting"]) == (4, 3, 1, 1)
    assert not any(name in str(document) for name in ("team-b", "team-c"))
    everybody = of_pools(may=Readable("all", everywhere=True))
    assert [one["pod"] for one in pool_documents(everybody)[0]["pods"]] == ["team-a/train", "team-b/x", "team-c/y"]


def test_nodes_and_devices_appear_with_their_facts() -> None:
    (document,) = pool_documents(of_pools())
    assert document["nodes"][0] == {
        "node": "w1", "offered": 3, "used": 2, "free": 1, "fits": False, "inTheWay": [],
    }  # fmt: skip
    assert (document["resource"], document["pool"], document["asked"], document["reason"]) == (
        UNITS, POOL, 2, "UnitsInUse",
    )  # fmt: skip
    assert document["conditions"] == [{"type": "Maintenance", "status": "True", "reason": "ByOperator", "message": ""}]
    (idle,) = document["devicesThatOfferNothing"]
    assert (idle["devices"], idle["state"]) == (1, "PendingAssignment")


@pytest.mark.parametrize(
    ("used", "hard", "left", "reached"),
    [("3", "4", 1, True), ("2", "4", 2, False), (None, "1", 1, True), ("5", "4", 0, True), ("x", "4", None, False)],
)
def test_quotas_show_what_they_leave(used: str | None, hard: str, left: int | None, reached: bool) -> None:
    documents = pool_documents(of_pools(quotas={UNITS: [{**QUOTA, "used": used, "hard": hard}]}))
    assert documents[0]["quotas"] == [{"name": "gpus", "hard": hard, "used": used, "left": left, "reached": reached}]
    assert [note[:33] for note in quota_notes(documents)] == (
        [f"ResourceQuota gpus leaves {left} of {hard} "] if reached else []
    )


def written(capsys: pytest.CaptureFixture[str], page: Page) -> list[str]:
    page.show(Console.standard())
    return capsys.readouterr().out.splitlines()


def test_the_page_of_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    pools = cards(w1=3, w2=2)
    found = explained_pool(
        pools, 2, pod_on("w1", 1, "team-b/x"), constraints={"w1": (NodeConstraint(Barrier.TAINTED, "k:NoSchedule"),)}
    )
    page = Page()
    pool_part(page, pool_documents(of_pools(answers=(found,), quotas={UNITS: [QUOTA]}))[0])
    lines = [line.split() for line in written(capsys, page)]
    assert lines[0][:2] == ["Pool:", f"{POOL}:"]
    assert ["Units:", "2", "requested;", "5", "in", "all,", "1", "used,", "4", "free"] in lines
    rows = [line for line in lines if line and line[0] in ("w1", "w2")]
    assert rows[0] == ["w2", "2", "0", "2", "<none>"]
    assert rows[1][:4] == ["w1", "3", "1", "2"]
    assert rows[1][-1] == "(k:NoSchedule)"
    assert ["Used", "by", "others:", "1", "by", "(1", "pod)"] in lines
    assert ["gpus", "3", "4", "1"] in lines
    assert "team-b" not in str(lines)


def test_a_node_with_too_few_units_is_named_while_units_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    taken = pod_on("w1", 2, "team-a/train")
    for state, expected in ((PodState(), "has too few free"), (PodState("w1"), "<none>")):
        page = Page()
        pool_part(page, pool_documents(of_pools(answers=(explained_pool(cards(w1=3), 2, taken, pod=state),)))[0])
        (row,) = (line for line in written(capsys, page) if line.split()[:1] == ["w1"])
        assert row.split(maxsplit=4)[4] == expected


def test_a_pod_shows_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    limits = {"resources": {"limits": {UNITS: "2"}}}
    metadata = {"name": "p", "namespace": "team-a"}
    pod: dict[str, Any] = {
        "metadata": metadata,
        "spec": {"containers": [limits, limits], "schedulingGates": [{"name": "g"}]},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }
    found = pod_of(pod)
    assert (found.units, found.state, found.gates) == ({UNITS: 4}, PodState(running=False), ("g",))
    page = Page()
    pod_part(page, pod_document(found))
    assert [line.split() for line in written(capsys, page)] == [
        ["Scheduling", "gates:", "g"],
        ["Scheduler", "says:", "Unschedulable:", "0/3", "nodes"],
    ]
    placed = {**scheduled, "status": "True", "lastTransitionTime": "2026-01-01T03:00:00Z"}
    pod["spec"]["nodeName"] = "w1"
    pod["status"] = {"phase": "Running", "conditions": [placed]}
    bound = pod_of(pod)
    assert (bound.state, bound.gates, bound.scheduler) == (PodState("w1", hour(3), running=True), (), None)
    pod["status"] = {"phase": "Failed", "reason": "Evicted"}
    assert pod_of(pod).state.ended == "Failed: Evicted"
    assert pod_document(QueriedPod())["schedulingGates"] == []

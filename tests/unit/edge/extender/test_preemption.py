"""What the extender answers about victims, from what the ledger has of pods and nodes."""

from typing import Any

from gpuledger.events.sharing import AllocatedDevice, Allocation, PodSharingGone, PodSharingObserved
from support.extending import gpu, pod_of
from support.extending_in_memory import ExtenderInMemory

Answered = dict[str, tuple[list[str], int]]


def runs(extender: ExtenderInMemory, uid: str, minor: int, *, percent: int = 50, priority: int = 0) -> None:
    resources = {name: total * percent // 100 for name, total in gpu("n1", minor).resources.items()}
    allocation: Allocation = {"gpu": (AllocatedDevice(minor=minor, resources=resources),)}
    data = PodSharingObserved(uid=uid, node="n1", allocation=allocation, priority=priority, started=True)
    extender.record(f"default/{uid}", data)


def preempted(extender: ExtenderInMemory, pod: dict[str, Any], given: dict[str, list[str]]) -> Answered:
    victims = {node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in given.items()}
    answer = extender.effects.questions.preempt({"Pod": pod, "NodeNameToMetaVictims": victims})
    return {
        node: ([one["UID"] for one in found["Pods"]], found["NumPDBViolations"])
        for node, found in answer["NodeNameToMetaVictims"].items()
    }


def urgent(priority: int = 100, **amounts: int) -> dict[str, Any]:
    pod = dict(pod_of("urgent", **amounts))
    pod["spec"] = {**pod["spec"], "priority": priority}
    return pod


async def test_more_pods_of_lower_priority_leave_where_the_victims_do_not_suffice() -> None:
    extender = ExtenderInMemory()
    for node, cards in (("n1", 2), ("n2", 1)):
        extender.share(node, cards)
    extender.resume()
    for uid, minor in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
        runs(extender, uid, minor)
    whole = urgent(gpu=100)
    assert preempted(extender, whole, {"n1": ["cpu"], "n2": ["x"]}) == {"n1": (["cpu", "c", "d"], 2), "n2": (["x"], 0)}
    assert preempted(extender, whole, {"n1": ["d", "cpu"]}) == {"n1": (["d", "cpu", "c"], 1)}
    assert preempted(extender, whole, {"n1": ["c", "d"]}) == {"n1": (["c", "d"], 0)}, "they suffice"
    assert preempted(extender, urgent(gpu=300), {"n1": ["a"]}) == {}, "nobody's leaving helps"
    assert preempted(extender, whole, {"elsewhere": ["a"]}) == {}
    half = urgent(gpu=50)
    assert preempted(extender, half, {"n2": []}) == {}, "the scheduler refuses all where a node has no victim"


async def test_only_pods_of_lower_priority_that_the_scheduler_has_on_the_node_leave() -> None:
    extender = ExtenderInMemory()
    extender.share("n1", 1)
    extender.kube.put("reserved", gpu=100)
    extender.resume()
    runs(extender, "equal", 0, percent=100, priority=100)
    assert preempted(extender, urgent(gpu=100), {"n1": ["cpu"]}) == {}
    assert preempted(extender, urgent(101, gpu=100), {"n1": ["cpu"]}) == {"n1": (["cpu", "equal"], 1)}
    extender.record("default/equal", PodSharingGone(uid="equal"))
    assert await extender.bind("reserved") == ""
    assert preempted(extender, urgent(gpu=100), {"n1": ["cpu"]}) == {}, "watchers have not seen that it is bound"


async def test_pods_without_devices_and_invalid_ones() -> None:
    extender = ExtenderInMemory()
    extender.share("n1", 1)
    extender.resume()
    assert preempted(extender, urgent(), {"n1": ["cpu"]}) == {"n1": (["cpu"], 0)}
    assert preempted(extender, urgent(gpu_core=50), {"n1": ["cpu"]}) == {}

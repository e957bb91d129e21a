"""The extender between a scheduler, an API server and the ledger: pods get devices, and no device is given twice."""

import asyncio
from dataclasses import replace

import aiohttp
import orjson
import pytest

from gpuledger.api.kinds import PODS
from gpuledger.edge.kube.client import KubeRequest
from gpuledger.events.sharing import PodDevicesBound, PodDevicesReleased, PodDevicesReserved
from support.extending import GIB, NAMES, QUICK_EXTENDER, Scheduler, SharingCluster, binding_of, extender, scheduling
from support.statuswriting import CountingClient
from support.waiting import eventually

HALF = {"gpu_core": 50, "gpu_memory_ratio": 50}


async def test_two_pods_share_a_card_and_the_third_gets_it_when_one_is_gone(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    first, second, third = [await sharing.create(name, **HALF) for name in ("a", "b", "c")]
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        for pod in (first, second):
            assert await scheduler.fits(pod, "n1") == ["n1"]
            assert await scheduler.bind(pod, "n1") == ""
        refused = await scheduler.filter(third, "n1", "plain")
        assert refused["NodeNames"] == []
        assert "Insufficient" in refused["FailedNodes"]["n1"]
        assert "shares no devices" in refused["FailedAndUnresolvableNodes"]["plain"]
        assert (await scheduler.bind(third, "n1")).startswith("NoRoom: n1: Insufficient")
        await sharing.delete(first)
        assert await scheduler.fits(third, "n1") == ["n1"]
        assert await scheduler.bind(third, "n1") == ""
    live = await sharing.live(second)
    assert live["spec"]["nodeName"] == "n1"
    resources = {
        NAMES.resource("gpu-core"): "50", NAMES.resource("gpu-memory"): "8Gi", NAMES.resource("gpu-memory-ratio"): "50",
    }  # fmt: skip
    document = {"gpu": [{"minor": 0, "resources": resources, "id": "GPU-n1-0"}]}
    assert orjson.loads(live["metadata"]["annotations"][NAMES.allocated]) == document
    reserved, bound = await sharing.outcomes(second)
    assert (reserved.node, reserved.uid, reserved.strategy) == ("n1", live["metadata"]["uid"], "LeastAllocated")
    assert reserved.allocation["gpu"][0].resources == {"gpu-core": 50, "gpu-memory-ratio": 50, "gpu-memory": 8 * GIB}
    assert bound == PodDevicesBound(uid=live["metadata"]["uid"], node="n1")


async def test_the_annotation_is_written_before_the_binding(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    pod = await sharing.create("a", **HALF)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(pod, "n1")
        writing.written.clear()
        assert await scheduler.bind(pod, "n1") == ""
        place = f"{PODS.path('default')}/a"
        assert writing.written == [f"PATCH {place}", f"POST {place}/binding"]
        assert await scheduler.bind(pod, "n1") == "", "a repeated bind has the same answer"
        assert writing.written == [f"PATCH {place}", f"POST {place}/binding"]


@pytest.mark.parametrize("pods", [2, 7])
async def test_binds_at_once_for_the_last_half_oversell_nothing(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient, pods: int
) -> None:
    await sharing.share("n1")
    holder, *others = [await sharing.create(f"p{number}", **HALF) for number in range(pods + 1)]
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(holder, "n1")
        assert await scheduler.bind(holder, "n1") == ""
        answers = await asyncio.gather(*(scheduler.bind(one, "n1") for one in others))
    assert sum(not one for one in answers) == 1
    assert all(one.startswith("NoRoom: ") for one in answers if one)
    bound = [one for one in await sharing.outcomes() if isinstance(one, PodDevicesBound)]
    assert len(bound) == 2


async def test_a_pod_that_is_gone_gets_nothing_and_its_devices_are_free(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    gone, other = await sharing.create("a", gpu=100), await sharing.create("b", gpu=100)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(gone, "n1")
        await sharing.client.delete(PODS, "a", "default")
        assert (await scheduler.bind(gone, "n1")).startswith("PodGone: ")
        assert await scheduler.bind(other, "n1") == ""
    reserved, released = await sharing.outcomes(gone)
    assert isinstance(reserved, PodDevicesReserved)
    assert (released.reason, released.node) == ("PodGone", "n1")


async def test_a_pod_of_the_same_name_with_another_uid_is_left_alone(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    before = await sharing.create("a", **HALF)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(before, "n1")
        await sharing.client.delete(PODS, "a", "default")
        after = await sharing.create("a", **HALF)
        assert (await scheduler.bind(before, "n1")).startswith("PodGone: ")
        live = await sharing.live(after)
        assert NAMES.allocated not in (live["metadata"].get("annotations") or {})
        assert not live["spec"].get("nodeName")
        assert await scheduler.bind(after, "n1") == ""


async def test_a_pod_that_somebody_else_binds_loses_its_reservation_and_annotation(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    pod, other = await sharing.create("a", gpu=100), await sharing.create("b", gpu=100)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(pod, "n1")
        await _bind_by_hand(sharing, "a", "elsewhere")
        assert (await scheduler.bind(pod, "n1")).startswith("BoundElsewhere: ")
        assert await scheduler.bind(other, "n1") == ""
    live = await sharing.live(pod)
    assert live["spec"]["nodeName"] == "elsewhere"
    assert NAMES.allocated not in (live["metadata"].get("annotations") or {})
    *_, released = await sharing.outcomes(pod)
    assert isinstance(released, PodDevicesReleased)


async def test_a_pod_that_is_bound_keeps_its_annotation_whatever_else_is_asked_of_it(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    for node in ("n1", "n2"):
        await sharing.share(node)
    pod = await sharing.create("a", **HALF)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(pod, "n1")
        assert await scheduler.bind(pod, "n1") == ""
        annotations = (await sharing.live(pod))["metadata"]["annotations"]
        assert (await scheduler.bind(pod, "n2")).startswith("BoundElsewhere: ")
        assert (await sharing.live(pod))["metadata"]["annotations"] == annotations
        assert len(await sharing.outcomes(pod)) == 2


async def test_an_annotation_joins_those_that_the_pod_has(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    await sharing.share("n1")
    pod = await sharing.create("a", **HALF)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(pod, "n1")
        await sharing.client.merge_patch(PODS, "a", {"metadata": {"annotations": {"team": "x"}}}, "default")
        assert await scheduler.bind(pod, "n1") == ""
    assert set((await sharing.live(pod))["metadata"]["annotations"]) == {"team", NAMES.allocated}


async def test_preempt_keeps_the_nodes_where_losing_the_victims_helps(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    for node in ("n1", "n2"):
        await sharing.share(node)
    holders = [await sharing.create(name, gpu=100) for name in ("a", "b")]
    pod = await sharing.create("urgent", gpu=100)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        for holder, node in zip(holders, ("n1", "n2"), strict=True):
            await scheduler.fits(holder, node)
            assert await scheduler.bind(holder, node) == ""
        uid = holders[0]["metadata"]["uid"]
        victims = {
            "n1": {"Pods": [{"UID": uid}], "NumPDBViolations": 1},
            "n2": {"Pods": [{"UID": "of-no-device"}], "NumPDBViolations": 0},
            "plain": {"Pods": [], "NumPDBViolations": 0},
        }
        asked = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}
        answer = await scheduler.ask("preempt", asked)
        assert answer.body == {"NodeNameToMetaVictims": {"n1": victims["n1"]}}
        whole = {"n1": {"Pods": [holders[0]], "NumPDBViolations": 0}}
        answer = await scheduler.ask("preempt", {"Pod": pod, "NodeNameToVictims": whole})
        assert answer.body["NodeNameToMetaVictims"]["n1"]["Pods"] == [{"UID": uid}]


async def test_the_best_node_gets_the_greatest_score(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    for node in ("n1", "n2"):
        await sharing.share(node, 2)
    holder, pod = await sharing.create("a", **HALF), await sharing.create("b", **HALF)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        await scheduler.fits(holder, "n1")
        assert await scheduler.bind(holder, "n1") == ""

        async def are_both() -> bool:
            return len((await scheduler.filter(pod, "n1", "n2"))["NodeNames"]) == 2

        await eventually(are_both)
        scores = await scheduler.prioritize(pod, "n1", "n2", "plain")
    assert scores["n2"] == 10
    assert 0 < scores["n1"] < 10
    assert scores["plain"] == 0


async def test_one_pod_a_node_is_in_flight(sharing: SharingCluster, migrated_url: str, writing: CountingClient) -> None:
    await sharing.share("n1", 2)
    first, second = await sharing.create("a", **HALF), await sharing.create("b", **HALF)
    one_a_node = replace(QUICK_EXTENDER, one_in_flight=True)
    async with scheduling(sharing.ledger, migrated_url, writing, one_a_node) as scheduler:
        await scheduler.fits(first, "n1")
        assert await scheduler.bind(first, "n1") == ""
        error = await scheduler.bind(second, "n1")
        assert error.startswith("AnotherPodInFlight: n1: the pod default/a ")
        await sharing.observe(first, started=True)

        async def is_bound() -> bool:
            return await scheduler.bind(second, "n1") == ""

        await eventually(is_bound)


async def test_only_the_leader_answers(sharing: SharingCluster, migrated_url: str, writing: CountingClient) -> None:
    await sharing.share("n1")
    pod = await sharing.create("a", **HALF)
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        assert await scheduler.fits(pod, "n1") == ["n1"]
        async with (
            extender(sharing.ledger, migrated_url, writing) as standby,
            aiohttp.ClientSession() as session,
        ):
            other = Scheduler(session, await standby.url())
            for verb, document in (("filter", {"Pod": pod, "NodeNames": ["n1"]}), ("bind", binding_of(pod, "n1"))):
                answer = await other.ask(verb, document)
                assert answer.status == 503
                assert "does not lead" in answer.body
            assert not standby.health().is_ready
        assert await scheduler.bind(pod, "n1") == ""


async def test_what_no_scheduler_sends_is_refused(
    sharing: SharingCluster, migrated_url: str, writing: CountingClient
) -> None:
    async with scheduling(sharing.ledger, migrated_url, writing) as scheduler:
        for verb, document in (("filter", {"Nodes": None}), ("bind", {"PodName": "a"}), ("preempt", []), ("filter", 7)):
            answer = await scheduler.ask(verb, document)
            assert (answer.status, "Send what kube-scheduler sends" in answer.body) == (400, True), verb


async def _bind_by_hand(sharing: SharingCluster, name: str, node: str) -> None:
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    await sharing.client.send(KubeRequest("bind", "POST", f"{PODS.path('default')}/{name}/binding", {}, body))

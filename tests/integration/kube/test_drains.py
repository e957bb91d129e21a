"""Drains on an API server: who is evicted, when, and never twice; and how a drain ends."""

from dataclasses import replace
from datetime import timedelta

import pytest
from aiohttp import web

from gpuledger.api.kinds import DAEMON_SETS, NAMESPACES, NODES, PODS
from gpuledger.edge.nodewriter.decide import CANCELLED
from gpuledger.edge.nodewriter.drain_plan import UNTOUCHED
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    LeavingPod,
    NamespaceMode,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
    NodeIsolationApplied,
    NodePodDeletionRequested,
)
from gpuledger.events.position import is_at_or_after
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.clock import system_clock
from support.draining import BUDGETS, IMMEDIATE, blocked_pod, until
from support.killing import SteppingClient
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer
from support.nodewriting import (
    QUICK,
    InterruptedClient,
    Maintainer,
    node_writer,
)
from support.scripted_api import refuse
from support.statuswriting import counting
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("pods are bound and made ready without a scheduler and a kubelet")


async def test_pods_leave_and_others_stay(maintainer: Maintainer, migrated_url: str, writing: SteppingClient) -> None:
    await maintainer.node("n1", unschedulable=True)
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "d"}}, "template": template}
    made = await maintainer.client.create(
        DAEMON_SETS, {"metadata": {"name": "d", "namespace": "default"}, "spec": spec}
    )
    reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": made["metadata"]["uid"]}
    daemon = [reference | {"controller": True}]
    await maintainer.pod("a", "n1")
    await maintainer.pod("b", "n1")
    await maintainer.pod("daemon", "n1", ownerReferences=daemon)
    await maintainer.pod("system", "n1", "kube-system")
    await maintainer.client.create(NAMESPACES, {"metadata": {"name": "machine-config-system"}})
    await maintainer.pod("config", "n1", "machine-config-system")
    await maintainer.pod("elsewhere", "n2")
    intent = await maintainer.drain("n1", IMMEDIATE)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, intent, NodeDrainFinished)
    assert (await maintainer.pods(), sorted(writing.evictions())) == (
        ["config", "daemon", "elsewhere", "system"],
        ["a", "b"],
    )


async def test_the_node_of_the_node_writer_keeps_its_pod(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.client.create(NAMESPACES, {"metadata": {"name": "ours"}})
    await maintainer.node("n1")
    await maintainer.pod("nodewriter", "n1", "ours")
    await maintainer.pod("a", "n1")
    cordon = await maintainer.ask("n1", Isolation(unschedulable=True))
    intent = await maintainer.drain("n1", IMMEDIATE)
    settings = replace(QUICK, untouched_namespaces=("ours",))
    async with node_writer(maintainer.ledger, migrated_url, writing, settings):
        over = await until(maintainer, intent, NodeDrainFinished)
        await until(maintainer, cordon, NodeIsolationApplied)
    stays = (LeavingPod(namespace="ours", pod="nodewriter", state=UNTOUCHED),)
    assert over.data == NodeDrainFinished(intent=intent.id, stays=stays)
    assert (await maintainer.pods(), (await maintainer.spec("n1"))["unschedulable"]) == (["nodewriter"], True)


async def test_a_budget_blocks_and_lets_go(maintainer: Maintainer, migrated_url: str, writing: SteppingClient) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1", labels={"app": "x"})
    await maintainer.pod("b", "n1")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await maintainer.client.create(BUDGETS, {"metadata": {"name": "pdb", "namespace": "default"}, "spec": spec})
    intent = await maintainer.drain("n1", IMMEDIATE)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        blocked = await until(maintainer, intent, NodeDrainProgressed, "Blocked: ")
        assert isinstance(blocked.data, NodeDrainProgressed)
        assert "The disruption budget pdb needs 1 healthy pods" in blocked.data.pods[0].state
        assert await maintainer.pods() == ["a"]
        await maintainer.client.delete(BUDGETS, "pdb", "default")
        await until(maintainer, intent, NodeDrainFinished)
    assert await maintainer.pods() == []


async def test_a_budget_that_blocks_for_too_long_is_overruled_in_one_mode(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1", unschedulable=True)
    uid = await blocked_pod(maintainer, "a", "n1", grace_s=30)
    now, waits = system_clock(), Drain(mode="DeleteAfterTimeout", timeout_s=600)
    first = await maintainer.drain("n1", waits, since=now - timedelta(seconds=1100))
    immediate = Drain(mode="Immediate", timeout_s=1)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, first, NodeDrainProgressed, "Blocked: ")
        second = await maintainer.drain("n1", immediate, since=now - timedelta(days=1))
        await until(maintainer, second, NodeDrainTimedOut, "Blocked: ")
        assert writing.deletions() == []
        late = Drain(mode="DeleteAfterTimeout", timeout_s=1)
        third = await maintainer.drain("n1", late, since=now - timedelta(days=1))
        asked = await until(maintainer, third, NodePodDeletionRequested)
        begun = await until(maintainer, third, NodeDrainProgressed, "Blocked: ")
        assert asked.time - begun.time >= timedelta(seconds=1), "the budget has its time, however old the request is"
        assert isinstance(asked.data, NodePodDeletionRequested)
        assert (asked.data.pod, asked.data.uid) == ("a", uid)
        assert "The disruption budget pdb-a needs 1 healthy pods" in asked.data.blocked
        await until(maintainer, third, NodeDrainTimedOut)

        async def is_terminating() -> bool:
            return all("deletionTimestamp" in one["metadata"] for one in (await maintainer.client.list(PODS)).items)

        await eventually(is_terminating)
        (pod,) = (await maintainer.client.list(PODS)).items
        assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
        await maintainer.end(pod)
        await until(maintainer, third, NodeDrainFinished)
    assert writing.deletions() == ["a"]


async def test_pods_that_may_complete_are_waited_for(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1")
    intent = await maintainer.drain("n1", Drain(timeout_s=1), since=system_clock() - timedelta(minutes=1))
    async with node_writer(maintainer.ledger, migrated_url, writing):
        late = await until(maintainer, intent, NodeDrainTimedOut)
        assert isinstance(late.data, NodeDrainTimedOut)
        assert [(one.pod, one.state) for one in late.data.pods] == [("a", "Waits until it ends")]
        done = {"status": {"phase": "Succeeded"}}
        await maintainer.client.merge_patch(PODS, "a", done, "default", subresource="status")
        await until(maintainer, intent, NodeDrainFinished)
    assert writing.evictions() == []


async def test_after_the_time_out_pods_are_evicted(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1")
    await maintainer.pod("b", "n1", "kube-public")
    waits = Drain(mode="DeleteAfterTimeout")
    first = await maintainer.drain("n1", waits)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, first, NodeDrainProgressed, "Waits until it ends, or until 20")
        assert writing.evictions() == []
        second = await maintainer.drain("n1", waits, since=system_clock() - timedelta(hours=1))
        await until(maintainer, second, NodeDrainFinished)
        await until(maintainer, first, NodeDrainSuperseded)
    assert writing.evictions() == ["a"]


async def test_a_pattern_of_namespaces_has_its_own_mode(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1")
    spared = NamespaceMode(namespaces="def*", mode="AllowCompletion")
    intent = await maintainer.drain("n1", Drain(mode="Immediate", namespaces=(spared,)))
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, intent, NodeDrainProgressed, "Waits until it ends")
    assert writing.evictions() == []


async def test_a_release_stops_it_in_the_middle(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1", labels={"app": "x"})
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    await maintainer.client.create(BUDGETS, {"metadata": {"name": "pdb", "namespace": "default"}, "spec": spec})
    intent = await maintainer.drain("n1", IMMEDIATE)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, intent, NodeDrainProgressed, "Blocked")
        await maintainer.drain("n1")
        over = await until(maintainer, intent, NodeDrainSuperseded)
        assert over.data == NodeDrainSuperseded(intent=intent.id, reason="Newer", message=CANCELLED)
        await maintainer.client.delete(BUDGETS, "pdb", "default")
        requested = writing.evictions()
        await maintainer.node("n2", unschedulable=True)
        await until(maintainer, await maintainer.drain("n2", IMMEDIATE), NodeDrainFinished)
    assert (await maintainer.pods(), writing.evictions()) == (["a"], requested)


async def test_a_pod_that_came_later_under_the_same_name_is_not_evicted(
    maintainer: Maintainer, migrated_url: str, kube: KubeServer
) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1")
    intent = await maintainer.drain("n1", IMMEDIATE)

    async def replace_it() -> None:
        await maintainer.client.delete(PODS, "a", "default")
        await maintainer.pod("a", "n2")

    async with counting(kube.kubeconfig, InterruptedClient) as client:
        assert isinstance(client, InterruptedClient)
        client.before = replace_it
        async with node_writer(maintainer.ledger, migrated_url, client):
            await until(maintainer, intent, NodeDrainFinished)
    assert (await maintainer.pods(), client.evictions()) == (["a"], ["a"])


async def test_a_release_behind_an_eviction_spares_the_next_pod(
    maintainer: Maintainer, migrated_url: str, kube: KubeServer
) -> None:
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1")
    await maintainer.pod("b", "n1")
    intent = await maintainer.drain("n1", IMMEDIATE)
    async with counting(kube.kubeconfig, InterruptedClient) as client:
        assert isinstance(client, InterruptedClient)
        async with node_writer(maintainer.ledger, migrated_url, client) as writer:

            async def release() -> None:
                await maintainer.drain("n1")
                head = await maintainer.ledger.head()

                async def is_folded() -> bool:
                    return is_at_or_after(writer.health().position, head)

                await eventually(is_folded)

            client.behind = release
            over = await until(maintainer, intent, NodeDrainSuperseded)
    assert over.data == NodeDrainSuperseded(intent=intent.id, reason="Newer", message=CANCELLED)
    assert (await maintainer.pods(), client.evictions()) == (["b"], ["a"])


async def test_a_drain_ends_where_a_person_uncordons_the_node(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    await maintainer.pod("a", "n1")
    await maintainer.ask("n1", Isolation(unschedulable=True))
    intent = await maintainer.drain("n1", Drain(mode="DeleteAfterTimeout"))
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, intent, NodeDrainProgressed, "Waits until it ends, or until 20")
        await maintainer.client.merge_patch(NODES, "n1", {"spec": {"unschedulable": None}})
        over = await until(maintainer, intent, NodeDrainSuperseded)
        assert isinstance(over.data, NodeDrainSuperseded)
        assert (over.data.reason, "gpuledger node drain" in over.data.message) == ("NotCordoned", True)
    assert writing.evictions() == []


async def test_a_drain_waits_for_the_cordon_that_was_decided_with_it(
    maintainer: Maintainer, migrated_url: str, proxy: KubeProxy
) -> None:
    await maintainer.node("n1")
    await maintainer.pod("a", "n1")
    cordon = await maintainer.ask("n1", Isolation(unschedulable=True))
    intent = await maintainer.drain("n1", IMMEDIATE)
    proxy.fault = conflicts
    async with (
        counting(proxy.kubeconfig, SteppingClient) as client,
        node_writer(maintainer.ledger, migrated_url, client),
    ):
        await until(maintainer, intent, NodeDrainProgressed, "Waits until the node is cordoned")
        assert await maintainer.outcomes(cordon) == []
        proxy.fault = None
        await until(maintainer, intent, NodeDrainFinished)


async def conflicts(request: web.Request) -> web.StreamResponse | None:
    """Somebody else is faster, whenever a Node is written."""
    return await refuse(409, "Conflict")(request) if request.method == "PATCH" else None


async def test_what_is_old_imported_or_about_another_node_evicts_nobody(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    now, reasons = system_clock(), []
    intents = []
    for name, more in (("n1", {"at": now - timedelta(hours=2)}), ("n2", {"imported": True}),
                       ("n3", {"recorded_at": now - timedelta(days=10)})):  # fmt: skip
        await maintainer.node(name, unschedulable=True)
        await maintainer.pod(f"p-{name}", name)
        intents.append(await maintainer.drain(name, IMMEDIATE, **more))
    async with node_writer(maintainer.ledger, migrated_url, writing):
        for intent in intents:
            over = await until(maintainer, intent, NodeDrainSuperseded)
            assert isinstance(over.data, NodeDrainSuperseded)
            reasons.append(over.data.reason)
    assert (reasons, writing.evictions()) == (["Expired", "Imported", "Expired"], [])


async def test_a_drain_goes_on_after_a_restart_from_a_snapshot(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    settings = replace(QUICK, snapshots=SnapshotSettings(events_min=1))
    await maintainer.node("n1", unschedulable=True)
    await maintainer.pod("a", "n1")
    first = await maintainer.drain("n1", Drain())
    async with node_writer(maintainer.ledger, migrated_url, writing, settings):
        await until(maintainer, first, NodeDrainProgressed)
    async with node_writer(maintainer.ledger, migrated_url, writing, settings):
        await maintainer.client.delete(PODS, "a", "default")
        await until(maintainer, first, NodeDrainFinished)

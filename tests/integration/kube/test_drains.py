"""Drains on an API server: who is evicted, when, and never twice; and how a drain ends."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from aiohttp import web

from gpuledger.api.kinds import DAEMON_SETS, NODES, PODS, Resource
from gpuledger.edge.kube.client import KubeClient, Selection
from gpuledger.edge.nodewriter.decide import CANCELLED
from gpuledger.events.envelope import Decoded
from gpuledger.events.maintenance import (
    Drain,
    Isolation,
    NamespaceMode,
    NodeDrainFinished,
    NodeDrainProgressed,
    NodeDrainSuperseded,
    NodeDrainTimedOut,
)
from gpuledger.events.position import is_at_or_after
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.clock import system_clock
from support.kube_proxy import KubeProxy
from support.kube_server import KubeServer
from support.nodewriting import (
    QUICK,
    InterruptedClient,
    Maintainer,
    SteppingClient,
    Steps,
    node_writer,
    run_until_killed,
)
from support.scripted_api import refuse
from support.statuswriting import counting
from support.waiting import eventually

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
IMMEDIATE = Drain(mode="Immediate")
STEPS = 8
"""To read the Node and its pods, to evict one, and to report: two steps each."""

pytestmark = pytest.mark.embedded_only("pods are bound and made ready without a scheduler and a kubelet")


@pytest.fixture
async def maintainer(ledger: JetStreamLedger, client: KubeClient) -> Maintainer:
    found = Maintainer(ledger, client)
    await found.claim()
    return found


@pytest.fixture
async def writing(kube: KubeServer, client: KubeClient) -> AsyncIterator[SteppingClient]:
    async with counting(kube.kubeconfig, SteppingClient) as found:
        assert isinstance(found, SteppingClient)
        yield found


async def until(maintainer: Maintainer, intent: Decoded, kind: type, state: str = "") -> Decoded:
    """The first report or outcome of this kind, one pod of which is in that state."""
    found: list[Decoded] = []

    async def is_there() -> bool:
        found[:] = [
            one
            for one in await maintainer.outcomes(intent)
            if isinstance(one.data, kind)
            and (not state or any(state in pod.state for pod in getattr(one.data, "pods", ())))
        ]
        return bool(found)

    await eventually(is_there)
    return found[0]


async def ending(maintainer: Maintainer, node: str) -> None:
    """Pods of the node that were evicted end, once none is left but those."""

    async def is_ended() -> bool:
        found = (await maintainer.client.list(PODS, Selection(fields=f"spec.nodeName={node}"))).items
        if any("deletionTimestamp" not in one["metadata"] for one in found):
            return False
        for one in found:
            await maintainer.end(one)
        return True

    await eventually(is_ended)


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
    await maintainer.pod("elsewhere", "n2")
    intent = await maintainer.drain("n1", IMMEDIATE)
    async with node_writer(maintainer.ledger, migrated_url, writing):
        await until(maintainer, intent, NodeDrainFinished)
    assert (await maintainer.pods(), sorted(writing.evictions())) == (["daemon", "elsewhere", "system"], ["a", "b"])


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


async def test_a_kill_at_any_step_evicts_each_pod_once(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    kill_at, was_killed = 0, True
    while was_killed:
        kill_at += 1
        name, pods = f"n{kill_at}", [f"a{kill_at}", f"b{kill_at}"]
        await maintainer.node(name, unschedulable=True)
        await maintainer.pod(pods[0], name)
        await maintainer.pod(pods[1], name, grace_s=30)
        intent = await maintainer.drain(name, IMMEDIATE)
        steps, end = Steps(kill_at), partial(ending, maintainer, name)
        was_killed = await run_until_killed(maintainer.ledger, migrated_url, writing, steps, end)
        async with node_writer(maintainer.ledger, migrated_url, writing):
            await end()
            await until(maintainer, intent, NodeDrainFinished)
        assert [one for one in writing.evictions() if one in pods] == pods
        outcomes = [one for one in await maintainer.outcomes(intent) if isinstance(one.data, NodeDrainFinished)]
        assert len(outcomes) == 1
    assert kill_at > STEPS


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

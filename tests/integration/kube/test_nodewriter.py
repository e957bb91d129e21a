"""The node writer on an API server: each transition is written once, whatever happens, and nothing of anybody else."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from gpuledger.api.kinds import NODES
from gpuledger.edge.kube.client import MERGE_PATCH, KubeClient, KubeRequest, Object
from gpuledger.events.maintenance import (
    Isolation,
    NodeIsolationApplied,
    NodeIsolationChanged,
    NodeIsolationFailed,
    NodeIsolationSuperseded,
)
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.snapshots import SnapshotSettings
from gpuledger.runtime.clock import system_clock
from support.killing import SteppingClient, SteppingLedger, Steps
from support.kube_proxy import KubeProxy, only
from support.kube_server import KubeServer
from support.ledgers import DEADLINE_S
from support.nodewriting import (
    ASIDE,
    PATIENT,
    QUICK,
    Maintainer,
    node_writer,
    run_until_killed,
    settled,
)
from support.projections import execute
from support.scripted_api import refuse
from support.statuswriting import counting
from support.waiting import eventually

STEPS = 8
"""A writer asks whose the cluster is, reads and writes the Node, and records the outcome: two steps each."""


STEPS_OF_RECORDING = 2
"""Outcomes that are recorded together are published once."""


async def test_a_node_is_set_aside_and_given_back(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    before = await maintainer.node("n1")
    intent = await maintainer.ask("n1", ASIDE)
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
        found = await maintainer.client.get(NODES, "n1")
        assert found["spec"]["unschedulable"]
        assert found["metadata"]["labels"]["example.com/state"] == "broken"
        (outcome,) = await maintainer.outcomes(intent)
        assert (outcome.data, outcome.causation_id) == (
            NodeIsolationApplied(intent=intent.id, written=True), intent.id,
        )  # fmt: skip
        back = await maintainer.ask("n1", Isolation())
        await settled(writer, maintainer.ledger)
        assert len(await maintainer.outcomes(back)) == 1
    after = await maintainer.client.get(NODES, "n1")
    assert (after["spec"], after["metadata"].get("labels")) == (before["spec"], before["metadata"].get("labels"))
    assert writing.patches("n1") == 2


async def test_a_kill_at_any_step_leads_to_each_transition_once(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    kill_at, was_killed = 0, True
    while was_killed:
        kill_at += 1
        name = f"n{kill_at}"
        await maintainer.node(name)
        for written, isolation in enumerate((ASIDE, Isolation()), 1):
            intent = await maintainer.ask(name, isolation)
            was_killed = await run_until_killed(maintainer.ledger, migrated_url, writing, Steps(kill_at))
            assert not await run_until_killed(maintainer.ledger, migrated_url, writing, Steps())
            assert writing.patches(name) == written
            assert (await maintainer.spec(name))["unschedulable"] == isolation.unschedulable
            assert [type(one.data) for one in await maintainer.outcomes(intent)] == [NodeIsolationApplied]
    assert kill_at > STEPS


async def test_the_outcomes_of_a_burst_are_recorded_together(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    names, steps = [f"n{number}" for number in range(2 * QUICK.nodes_at_once_max)], Steps()
    for name in names:
        await maintainer.node(name)
    intents = [await maintainer.ask(name, ASIDE) for name in names]
    patient = replace(QUICK, outcomes_apart_s=DEADLINE_S)
    stepping = SteppingLedger(maintainer.ledger, steps)
    async with node_writer(stepping, migrated_url, writing, patient) as writer:
        await settled(writer, maintainer.ledger)
    assert steps.taken == STEPS_OF_RECORDING
    assert [writing.patches(name) for name in names] == [1] * len(names)
    assert [len(await maintainer.outcomes(intent)) for intent in intents] == [1] * len(names)


class CachedClient(SteppingClient):
    """Answers lists of some Nodes with what it has kept, if anything: a server whose cache is behind."""

    kept: Object | None = None

    async def send(self, request: KubeRequest) -> Object:
        answer = await super().send(request)
        return self.kept if self.kept and "labelSelector" in request.query else answer


@pytest.fixture
async def cached(kube: KubeServer, client: KubeClient) -> AsyncIterator[CachedClient]:
    async with counting(kube.kubeconfig, CachedClient) as found:
        assert isinstance(found, CachedClient)
        yield found


async def test_nodes_that_are_queued_together_are_read_together(
    maintainer: Maintainer, migrated_url: str, cached: CachedClient
) -> None:
    names = [f"n{number}" for number in range(2 * QUICK.nodes_at_once_max)]
    await maintainer.labelled(*names)
    for name in names:
        await maintainer.ask(name, ASIDE)
    async with node_writer(maintainer.ledger, migrated_url, cached) as writer:
        await settled(writer, maintainer.ledger)
    assert cached.asked.count("list nodes") > 0
    assert cached.asked.count("list nodes") + cached.asked.count("get nodes") < len(names) / 2
    assert [cached.patches(name) for name in names] == [1] * len(names)


async def test_a_kill_at_any_step_of_several_nodes_leads_to_each_transition_once(
    maintainer: Maintainer, migrated_url: str, cached: CachedClient
) -> None:
    kill_at, was_killed = STEPS - 6, True
    while was_killed:
        kill_at += 1
        names = [f"n{kill_at}-{number}" for number in range(3)]
        await maintainer.labelled(*names)
        intents = [await maintainer.ask(name, ASIDE) for name in names]
        was_killed = await run_until_killed(maintainer.ledger, migrated_url, cached, Steps(kill_at))
        assert not await run_until_killed(maintainer.ledger, migrated_url, cached, Steps())
        assert [cached.patches(name) for name in names] == [1] * len(names)
        outcomes = [one.data for intent in intents for one in await maintainer.outcomes(intent)]
        assert [type(one) for one in outcomes] == [NodeIsolationApplied] * len(names)
    assert kill_at > STEPS + 2 * (len(names) - 1)
    assert cached.asked.count("list nodes") > kill_at - STEPS


async def test_a_copy_that_is_behind_leads_to_no_outcome_and_no_wrong_write(
    maintainer: Maintainer, migrated_url: str, cached: CachedClient
) -> None:
    """The copies say: `back` is ours and cordoned, `gone` is there, `lost` lacks the taint that somebody has set."""
    names = ("back", "gone", "lost")
    await maintainer.labelled(*names)
    theirs = {"key": "example.com/theirs", "effect": "NoSchedule"}
    for name in names[:2]:
        await maintainer.ask(name, ASIDE)
    async with node_writer(maintainer.ledger, migrated_url, cached) as writer:
        await settled(writer, maintainer.ledger)
    cached.kept = await maintainer.client.send(KubeRequest("list nodes", "GET", NODES.path()))
    listed = cached.asked.count("list nodes")
    await maintainer.client.merge_patch(NODES, "back", {"spec": {"unschedulable": None}})
    again = [await maintainer.ask(name, ASIDE) for name in ("back", "gone")]
    await maintainer.client.delete(NODES, "gone")
    lost = await maintainer.ask("lost", ASIDE)
    await maintainer.client.merge_patch(NODES, "lost", {"spec": {"taints": [theirs]}})
    async with node_writer(maintainer.ledger, migrated_url, cached) as writer:
        await settled(writer, maintainer.ledger)
    assert cached.asked.count("list nodes") > listed
    assert (await maintainer.spec("back"))["unschedulable"]
    assert [one["key"] for one in (await maintainer.spec("lost"))["taints"]] == ["example.com/theirs", "gpu/broken"]
    reached = [(await maintainer.outcomes(intent))[0].data for intent in (*again, lost)]
    assert [type(one) for one in reached] == [
        NodeIsolationApplied, NodeIsolationSuperseded, NodeIsolationApplied,
    ]  # fmt: skip


async def test_outcomes_do_not_wait_for_more_than_may_wait(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    names = [f"n{number}" for number in range(4)]
    for name in names:
        await maintainer.node(name)
    intents = [await maintainer.ask(name, ASIDE) for name in names]
    crowded = replace(QUICK, outcomes_waiting_max=1, outcomes_apart_s=0.01)
    async with node_writer(maintainer.ledger, migrated_url, writing, crowded) as writer:
        await settled(writer, maintainer.ledger)
    assert [len(await maintainer.outcomes(intent)) for intent in intents] == [1] * len(names)


async def test_who_loses_its_rows_acts_on_nothing_a_second_time(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    for name in ("n1", "n2"):
        await maintainer.node(name)
        await maintainer.ask(name, ASIDE)
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
    await maintainer.client.merge_patch(NODES, "n1", {"spec": {"unschedulable": None}})
    execute(migrated_url, "TRUNCATE gpuledger.snapshot CASCADE")
    writing.written.clear()
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
    assert writing.written == []
    assert not (await maintainer.spec("n1"))["unschedulable"]


async def test_a_restart_begins_at_a_snapshot_with_what_has_no_outcome(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient, proxy: KubeProxy
) -> None:
    settings = replace(QUICK, snapshots=SnapshotSettings(events_min=1))
    await maintainer.node("n1")
    await maintainer.ask("n1", ASIDE)
    proxy.fault = only("/nodes/n1", refuse(500, "Trouble"))
    async with counting(proxy.kubeconfig) as client, node_writer(maintainer.ledger, migrated_url, client, settings):

        async def is_kept() -> bool:
            return execute(migrated_url, "SELECT 1 FROM gpuledger.snapshot WHERE name = 'intents'") == [(1,)]

        await maintainer.node("n2")
        await maintainer.ask("n2", Isolation())
        await eventually(is_kept)
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
    assert writing.patches("n1") == 1


async def test_what_is_old_imported_or_not_the_newest_never_acts(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    now, reasons = system_clock(), []
    old = await maintainer.ask("n1", ASIDE, now - QUICK.max_age - timedelta(minutes=1))
    imported = await maintainer.ask("n1", ASIDE, imported=True)
    restored = await maintainer.ask("n1", ASIDE, recorded_at=now - timedelta(days=10))
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
        for intent in (old, imported, restored):
            (outcome,) = await maintainer.outcomes(intent)
            assert isinstance(outcome.data, NodeIsolationSuperseded)
            reasons.append(outcome.data.reason)
    assert (reasons, writing.patches("n1")) == (["Newer", "Imported", "Expired"], 0)


async def test_a_node_that_is_gone_or_another_by_now_is_left(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    gone = await maintainer.record("n0", NodeIsolationChanged(uid="u0", isolation=ASIDE))
    other = await maintainer.record("n1", NodeIsolationChanged(uid="u0", isolation=ASIDE))
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
    for intent in (gone, other):
        (outcome,) = await maintainer.outcomes(intent)
        assert outcome.data == NodeIsolationSuperseded(intent=intent.id, reason="NodeGone")
    assert not (await maintainer.spec("n1"))["unschedulable"]


async def test_the_cordon_of_somebody_else_stays(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1", unschedulable=True)
    intent = await maintainer.ask("n1", Isolation(unschedulable=True))
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
        (outcome,) = await maintainer.outcomes(intent)
        was = Isolation(unschedulable=True)
        assert outcome.data == NodeIsolationApplied(intent=intent.id, written=False, was=was)
        await maintainer.ask("n1", Isolation())
        await settled(writer, maintainer.ledger)
    assert (await maintainer.spec("n1"))["unschedulable"]
    assert writing.patches("n1") == 0


async def test_the_cordon_that_somebody_else_sets_later_stays(
    maintainer: Maintainer, migrated_url: str, writing: SteppingClient
) -> None:
    await maintainer.node("n1")
    await maintainer.ask("n1", ASIDE)
    async with node_writer(maintainer.ledger, migrated_url, writing) as writer:
        await settled(writer, maintainer.ledger)
        for value in (None, True):
            path, by, body = f"{NODES.path()}/n1", {"fieldManager": "kubectl"}, {"spec": {"unschedulable": value}}
            await maintainer.client.send(KubeRequest("patch nodes", "PATCH", path, by, body, MERGE_PATCH))
        back = await maintainer.ask("n1", Isolation())
        await settled(writer, maintainer.ledger)
        (outcome,) = await maintainer.outcomes(back)
        assert isinstance(outcome.data, NodeIsolationApplied)
        assert outcome.data.was.unschedulable
    assert await maintainer.spec("n1") == {"unschedulable": True, "taints": []}


async def test_who_was_faster_is_not_overwritten(maintainer: Maintainer, migrated_url: str, proxy: KubeProxy) -> None:
    await maintainer.node("n1")
    await maintainer.ask("n1", ASIDE)
    theirs = {"key": "example.com/theirs", "effect": "NoSchedule"}
    proxy.fault = only("/nodes/n1", refuse(409, "Conflict"))
    async with counting(proxy.kubeconfig) as client, node_writer(maintainer.ledger, migrated_url, client) as writer:

        async def is_refused() -> bool:
            return writer.health().failing > 0

        await eventually(is_refused)
        found = await maintainer.client.get(NODES, "n1")
        taints = [*(found["spec"].get("taints") or []), theirs]
        await maintainer.client.merge_patch(NODES, "n1", {"spec": {"taints": taints}})
        proxy.fault = None
        await settled(writer, maintainer.ledger)
    assert [one["key"] for one in (await maintainer.spec("n1"))["taints"]] == ["example.com/theirs", "gpu/broken"]


async def test_what_the_api_server_keeps_refusing_has_failed(
    maintainer: Maintainer, migrated_url: str, proxy: KubeProxy
) -> None:
    await maintainer.node("n1")
    intent = await maintainer.ask("n1", ASIDE)
    proxy.fault = only("/nodes/n1", refuse(403, "Forbidden"))
    async with (
        counting(proxy.kubeconfig) as client,
        node_writer(maintainer.ledger, migrated_url, client, PATIENT) as writer,
    ):
        await settled(writer, maintainer.ledger)
    (outcome,) = await maintainer.outcomes(intent)
    assert isinstance(outcome.data, NodeIsolationFailed)
    assert outcome.data.reason == "Forbidden"


async def test_a_cluster_of_another_ledger_is_not_written(
    ledger: JetStreamLedger, client: KubeClient, migrated_url: str, writing: SteppingClient
) -> None:
    maintainer = Maintainer(ledger, client)
    await maintainer.node("n1")
    await maintainer.ask("n1", ASIDE)
    async with node_writer(ledger, migrated_url, writing, replace(QUICK, ownership_check_s=0.05)) as writer:

        async def says_why() -> bool:
            return "belongs to no ledger" in (writer.health().reason or "")

        await eventually(says_why)
        assert writing.patches("n1") == 0
        await maintainer.claim()
        await settled(writer, ledger)
    assert writing.patches("n1") == 1

"""Pools and their devices on real servers: finalizers, statuses, approvals, and Events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.api.kinds import (
    CLUSTER_GPU_POOLS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MODULE_CONFIG,
    NAMESPACES,
)
from gpuledger.api.labels import ANNOTATION_ASSIGNMENT, POOL_FINALIZER
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.pod import PodObserved
from gpuledger.events.pool import PoolGone, PoolReleased
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from support.gpu_states import CARD, POOL, FactRecorder, assigned, found, offers, phase, prepared, ready
from support.inventory_decisions import events, own_events
from support.kube_fleet import create
from support.kube_server import KubeServer
from support.statuswriting import QUICK, CountingClient, all_written, counting, status_writer
from support.waiting import eventually

Object = dict[str, Any]
THEIRS = {"labels": {"team": "x"}, "annotations": {"note": "mine"}, "finalizers": ["example.com/theirs"]}


@pytest.fixture
def facts(ledger: JetStreamLedger) -> FactRecorder:
    return FactRecorder(ledger)


@pytest.fixture
async def ours(kube: KubeServer, client: KubeClient) -> AsyncIterator[CountingClient]:
    """What the status writer uses; there is a namespace for pools."""
    await create(client, NAMESPACES, {"metadata": {"name": "team"}})
    async with counting(kube.kubeconfig) as ours:
        yield ours


@asynccontextmanager
async def writing(facts: FactRecorder, database_url: str, client: KubeClient) -> AsyncIterator[StatusWriter]:
    settings = replace(QUICK, without_pool_grace_s=0.05)
    async with status_writer(facts.ledger, database_url, client, settings) as writer:
        yield writer


async def pool(client: KubeClient) -> Object:
    return await client.get(GPU_POOLS, "a", "team")


async def define(client: KubeClient, facts: FactRecorder, **metadata: Any) -> str:
    """Somebody creates a pool, and a watcher records it; returns its UID."""
    body = {"apiVersion": GPU_POOLS.api_version, "kind": "GPUPool", "spec": {"resource": {"unit": "Card"}}}
    made = await client.create(GPU_POOLS, body | {"metadata": {"name": "a", "namespace": "team", **metadata}})
    uid = str(made["metadata"]["uid"])
    await facts.record((POOL, CARD.model_copy(update={"uid": uid})))
    return uid


async def is_gone(client: KubeClient) -> bool:
    try:
        await pool(client)
    except NotFoundError:
        return True
    return False


async def event(client: KubeClient, reason: str) -> Object:
    notes: list[Object] = []

    async def is_recorded() -> bool:
        notes[:] = await events(client, reason)
        return bool(notes)

    await eventually(is_recorded)
    return notes[0]


async def test_a_pool_is_kept_shown_and_let_go(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        uid = await define(client, facts, **THEIRS)
        await facts.record(
            ("team/p", PodObserved(uid="p", node="w1", requests={"gpu.deckhouse.io/a": 2})),
            (POOL, offers(4, ("Supported", "True"), ("Configured", "True"))),
        )
        await all_written(writer, facts.ledger)
        made = await pool(client)
        assert made["status"]["capacity"] == {"total": 4, "used": 2, "available": 2}
        assert {one["type"]: one["observedGeneration"] for one in made["status"]["conditions"]} == {
            "Supported": 1, "Configured": 1,
        }  # fmt: skip
        assert set(made["metadata"]["finalizers"]) == {"example.com/theirs", POOL_FINALIZER}
        assert {name: made["metadata"][name] for name in ("labels", "annotations")} == {
            name: THEIRS[name] for name in ("labels", "annotations")
        }
        assert made["metadata"]["generation"] == 1
        assert (await compare(client, facts.ledger)).differences == 0

        await client.delete(GPU_POOLS, "a", "team")
        await facts.record((POOL, CARD.model_copy(update={"uid": uid, "deleting": True})), (POOL, offers(0)))
        await all_written(writer, facts.ledger)
        made = await pool(client)
        assert made["status"]["capacity"]["total"] == 0
        assert POOL_FINALIZER in made["metadata"]["finalizers"]

        await facts.record((POOL, PoolReleased()))
        await all_written(writer, facts.ledger)
        assert (await pool(client))["metadata"]["finalizers"] == THEIRS["finalizers"]
        await client.merge_patch(GPU_POOLS, "a", {"metadata": {"finalizers": None}}, "team")
        await eventually(lambda: is_gone(client))
        await facts.record((POOL, PoolGone()))
        await all_written(writer, facts.ledger)
        assert (await compare(client, facts.ledger)).differences == 0


async def test_a_pool_is_never_made_nor_removed(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        await facts.record((POOL, CARD), (POOL, offers(4)), ("c", CARD), ("c", offers(4)))
        await all_written(writer, facts.ledger)
        assert (await client.list(GPU_POOLS)).items == (await client.list(CLUSTER_GPU_POOLS)).items == []
        uid = await define(client, facts)
        await all_written(writer, facts.ledger)
        await facts.record((POOL, PoolGone()))
        await all_written(writer, facts.ledger)
        assert (await pool(client))["metadata"]["uid"] == uid


async def test_a_pool_of_the_same_name_is_another_one(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        await define(client, facts)
        await facts.record((POOL, offers(4)))
        await all_written(writer, facts.ledger)
        await facts.record((POOL, PoolReleased()))
        await all_written(writer, facts.ledger)
        await client.delete(GPU_POOLS, "a", "team")
        await eventually(lambda: is_gone(client))
        ours.written.clear()
        body = {"apiVersion": GPU_POOLS.api_version, "kind": "GPUPool", "spec": {"resource": {"unit": "Card"}}}
        made = await client.create(GPU_POOLS, body | {"metadata": {"name": "a", "namespace": "team"}})
        await facts.record((POOL, offers(5)))
        await all_written(writer, facts.ledger)
        assert ours.objects_written() == []
        await facts.record((POOL, CARD.model_copy(update={"uid": made["metadata"]["uid"]})))
        await all_written(writer, facts.ledger)
        assert (await pool(client))["metadata"]["finalizers"] == [POOL_FINALIZER]


async def test_changes_by_others_to_a_pools_status_and_finalizer_are_reverted(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        await define(client, facts)
        await facts.record((POOL, offers(4)))
        await all_written(writer, facts.ledger)
        await client.merge_patch(GPU_POOLS, "a", {"metadata": {"finalizers": None}}, "team")
        await client.merge_patch(GPU_POOLS, "a", {"status": {"capacity": {"total": 9}}}, "team", subresource="status")

        async def is_as_before() -> bool:
            made = await pool(client)
            shown = made["metadata"].get("finalizers"), made["status"]["capacity"]["total"]
            return bool(shown == ([POOL_FINALIZER], 4))

        await eventually(is_as_before)
        notes = await event(client, "GPUStatusRestored")
        assert (notes["metadata"]["namespace"], notes["regarding"]["namespace"]) == ("team", "team")
        await all_written(writer, facts.ledger)


async def test_a_device_goes_through_preparation_into_a_pool_and_out(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async def state() -> str:
        await all_written(writer, facts.ledger)
        return str((await client.get(GPU_DEVICES, "w1-0"))["status"]["state"])

    async with writing(facts, database_url, ours) as writer:
        await facts.record(*found("w1-0"))
        assert await state() == "Discovered"
        for given, shown in [
            (prepared("Validating"), "Validating"),
            (prepared("Ready"), "Ready"),
            (assigned("Pending"), "PendingAssignment"),
            (assigned("Assigned"), "Assigned"),
            (prepared("Faulted"), "Faulted"),
            (prepared("Ready"), "Assigned"),
            (assigned("Unassigning"), "Assigned"),
            (assigned(None), "Ready"),
        ]:
            await facts.record(("w1-0", given))
            assert await state() == shown
        await facts.record(("w1", phase("ValidatingFailed", ("DriverMissing", "True"))))
        await all_written(writer, facts.ledger)
        node = await client.get(GPU_NODE_STATES, "w1")
        assert {one["type"] for one in node["status"]["conditions"]} == {"InventoryComplete", "DriverMissing"}
        notes = await event(client, "GPUBootstrapPhaseChanged")
        assert (notes["type"], notes["regarding"]["name"]) == ("Warning", "w1")
        assert (await compare(client, facts.ledger)).differences == 0


async def test_an_automatic_assignment_is_written_on_the_device_and_taken_back(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async def annotations() -> Object:
        await all_written(writer, facts.ledger)
        return (await client.get(GPU_DEVICES, "w1-0"))["metadata"].get("annotations") or {}

    async with writing(facts, database_url, ours) as writer:
        await facts.record(*found("w1-0"), ("w1-0", prepared("Ready")))
        await all_written(writer, facts.ledger)
        await client.merge_patch(GPU_DEVICES, "w1-0", {"metadata": {"annotations": {"note": "mine"}}})
        await facts.record(("w1-0", assigned("Pending", automatic=True)))
        assert await annotations() == {"note": "mine", ANNOTATION_ASSIGNMENT: "a"}
        managers = {
            one["manager"]
            for one in (await client.get(GPU_DEVICES, "w1-0"))["metadata"]["managedFields"]
            if ANNOTATION_ASSIGNMENT in str(one["fieldsV1"])
        }
        assert managers == {"gpuledger-auto-approval"}
        await facts.record(("w1-0", assigned("Assigned", automatic=True)))
        assert ANNOTATION_ASSIGNMENT in await annotations()
        await facts.record(("w1-0", assigned(None)))
        assert await annotations() == {"note": "mine"}
        assert (await compare(client, facts.ledger)).differences == 0


async def test_what_a_person_wrote_on_a_device_stands(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        await facts.record(*found("w1-0"), ("w1-0", prepared("Ready")))
        await all_written(writer, facts.ledger)
        requests = {"metadata": {"name": "w1-0", "annotations": {ANNOTATION_ASSIGNMENT: "b"}}}
        await client.apply(GPU_DEVICES, requests, field_manager="kubectl")
        await event(client, "GPUDeviceDetected")
        await facts.record(("w1-0", assigned("Pending", automatic=True)))
        await all_written(writer, facts.ledger)
        ours.written.clear()
        await facts.record(("w1-0", assigned(None)))
        await all_written(writer, facts.ledger)
        assert (await client.get(GPU_DEVICES, "w1-0"))["metadata"]["annotations"] == {ANNOTATION_ASSIGNMENT: "b"}
        assert [one["reason"] for one in await own_events(client)] == ["GPUDeviceDetected"]
        assert writer.health().left == 0


async def test_events_about_nodes_and_devices_that_no_pool_takes(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours):
        mismatch = assigned(None, reason="AnnotationMismatch", message="There is no pool b.")
        await facts.record(*found("w1-0"), ("w1-0", prepared("Ready")), ("w1", ready()), ("w1-0", mismatch))
        notes = await event(client, "GPUAnnotationMismatch")
        assert (notes["type"], notes["regarding"]["name"], notes["note"]) == ("Warning", "w1-0", "There is no pool b.")
        notes = await event(client, "GPUNodeWithoutPool")
        assert (notes["type"], notes["regarding"]["kind"], notes["regarding"]["name"]) == (
            "Warning", "GPUNodeState", "w1",
        )  # fmt: skip


async def test_a_disabled_module_leaves_pools_alone(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await facts.record((MODULE_CONFIG, SettingsChanged(enabled=False)))
    async with writing(facts, database_url, ours) as writer:
        await define(client, facts)
        await facts.record((POOL, offers(4)))
        await all_written(writer, facts.ledger)
        assert ours.objects_written() == []
        await facts.record((MODULE_CONFIG, SettingsChanged()))
        await all_written(writer, facts.ledger)
        assert (await pool(client))["status"]["capacity"]["total"] == 4

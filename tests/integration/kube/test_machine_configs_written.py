"""What the status writer keeps of machine configuration, on real servers: objects, statuses, annotations and Events."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from gpuledger.api.kinds import (
    CRDS,
    GPU_DEVICES,
    MACHINE_CONFIG_POOLS,
    NODES,
    RENDERED_MACHINE_CONFIGS,
    Resource,
)
from gpuledger.api.machine_config import (
    ANNOTATION_CORDONED,
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_DESIRED_SET_AT,
    ANNOTATION_DRAIN_STARTED_AT,
    ANNOTATION_POOL,
    LABEL_POOL,
)
from gpuledger.domain.machineconfig.rendered_object import read_object
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import InvalidError, NotFoundError
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.machine_config import (
    MachineConfigRenderedWithdrawn,
    NodeConfigChanged,
    NodeConfigDrainFailed,
    NodeConfigReported,
)
from gpuledger.ledger.jetstream import JetStreamLedger
from support.config_decisions import NODE, POOL, RENDERED, SET_AT, changed, configured, defined
from support.enforcing import enforce
from support.gpu_states import FactRecorder, found
from support.inventory_decisions import has_event
from support.statuswriting import CountingClient, all_written, status_writer
from support.waiting import eventually

BY_HAND = "by-hand"


async def create(client: KubeClient, kind: Resource, obj: Object) -> Object:
    """Create an object; returns it as the server keeps it."""
    return await client.create(kind, {"apiVersion": kind.api_version, "kind": kind.kind} | obj)


class Rollout(FactRecorder):
    """What the rollout decides about a pool with one node, and what the API server shows of it."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient, writer: StatusWriter) -> None:
        super().__init__(ledger)
        self.client, self.writer = client, writer

    async def begin(self) -> tuple[str, str]:
        """Pool and Node exist, and a configuration is rendered; returns the UIDs of both."""
        pool = await create(self.client, MACHINE_CONFIG_POOLS, {"metadata": {"name": POOL}, "spec": {}})
        annotations = {ANNOTATION_CURRENT: "rendered-worker-0", "team": "a"}
        node = await create(self.client, NODES, {"metadata": {"name": NODE, "annotations": annotations}})
        await self.decide((POOL, defined(pool["metadata"]["uid"])), (POOL, RENDERED))
        return str(pool["metadata"]["uid"]), str(node["metadata"]["uid"])

    async def decide(self, *facts: Any) -> None:
        await self.record(*facts)
        await all_written(self.writer, self.ledger)

    async def rendered(self) -> Object:
        return await self.client.get(RENDERED_MACHINE_CONFIGS, RENDERED.name)

    async def shows(self, spec: Object) -> bool:
        """Whether the API server has the configuration with this spec."""
        found = (await self.client.list(RENDERED_MACHINE_CONFIGS)).items
        return spec in [one["spec"] for one in found if one["metadata"]["name"] == RENDERED.name]

    async def annotations(self) -> dict[str, str]:
        """The Node's, but for those of its agent and of people."""
        found = (await self.client.get(NODES, NODE))["metadata"]["annotations"]
        assert (found.pop(ANNOTATION_CURRENT), found.pop("team")) == ("rendered-worker-0", "a")
        return dict(found)

    async def annotate(self, annotations: dict[str, str]) -> None:
        """As somebody does by hand."""
        obj = {"metadata": {"name": NODE, "annotations": annotations}}
        await self.client.apply(NODES, obj, force=True, field_manager=BY_HAND)

    async def differences(self) -> list[tuple[str, str]]:
        verification = await compare(self.client, self.ledger)
        return [(str(one.key.kind), one.path) for one in verification.first]


@pytest.fixture
async def rollout(
    ledger: JetStreamLedger, migrated_url: str, client: KubeClient, ours: CountingClient
) -> AsyncIterator[Rollout]:
    await enforce(ledger, migrated_url)
    async with status_writer(ledger, migrated_url, ours) as writer:
        yield Rollout(ledger, client, writer)


async def test_a_rendered_config_is_made_follows_its_pools_policy_and_goes(rollout: Rollout) -> None:
    uid, _ = await rollout.begin()
    made = await rollout.rendered()
    assert made["metadata"]["labels"] == {LABEL_POOL: POOL}
    assert read_object(made).config_hash == RENDERED.config_hash
    await rollout.decide((POOL, defined(uid, reboot_strategy="IfRequired", reboot_min_interval_s=60)))
    after = await rollout.rendered()
    assert after["spec"]["reboot"] == {"required": True, "strategy": "IfRequired", "minIntervalSeconds": 60}
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert await rollout.differences() == []
    await rollout.decide((POOL, MachineConfigRenderedWithdrawn(name=RENDERED.name)))
    with pytest.raises(NotFoundError):
        await rollout.rendered()


async def test_a_rendered_config_that_somebody_deletes_or_changes_is_written_again(rollout: Rollout) -> None:
    await rollout.begin()
    made = await rollout.rendered()
    content = {"metadata": {"name": RENDERED.name}, "spec": {"config": {"files": []}}}
    with pytest.raises(InvalidError):
        await rollout.client.apply(RENDERED_MACHINE_CONFIGS, content, force=True, field_manager=BY_HAND)
    policy = {"metadata": {"name": RENDERED.name}, "spec": {"reboot": {"minIntervalSeconds": 1}}}
    await rollout.client.apply(RENDERED_MACHINE_CONFIGS, policy, force=True, field_manager=BY_HAND)

    await eventually(partial(rollout.shows, made["spec"]))
    await rollout.client.delete(RENDERED_MACHINE_CONFIGS, RENDERED.name)
    await eventually(partial(rollout.shows, made["spec"]))
    assert (await rollout.rendered())["metadata"]["uid"] != made["metadata"]["uid"]


async def test_another_configuration_of_its_name_is_replaced(
    ledger: JetStreamLedger, migrated_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await enforce(ledger, migrated_url)
    async with status_writer(ledger, migrated_url, ours) as writer:
        rollout = Rollout(ledger, client, writer)
        await rollout.begin()
        made = await rollout.rendered()
    await client.delete(RENDERED_MACHINE_CONFIGS, RENDERED.name)
    forged = made["spec"] | {"config": {"files": [], "systemd": {"units": []}}}
    metadata = {"name": RENDERED.name, "labels": {LABEL_POOL: POOL}}
    await create(client, RENDERED_MACHINE_CONFIGS, {"metadata": metadata, "spec": forged})
    assert await rollout.differences() == [("RenderedMachineConfig", "spec.config.files")]
    async with status_writer(ledger, migrated_url, ours) as writer:
        await eventually(partial(rollout.shows, made["spec"]))
        await all_written(writer, ledger)
    assert await rollout.differences() == []


async def test_a_pool_shows_its_state_and_keeps_what_is_its_owners(rollout: Rollout) -> None:
    await rollout.begin()
    state = changed(("Updating", "True", "NodesPending"), ("Ready", "False", "NodesPending"), updated_count=1)
    await rollout.decide((POOL, state))
    pool = await rollout.client.get(MACHINE_CONFIG_POOLS, POOL)
    assert "finalizers" not in pool["metadata"]
    status = pool["status"]
    assert (status["targetRevision"], status["machineCount"], status["updatedMachineCount"]) == (RENDERED.name, 3, 1)
    assert status["observedGeneration"] == 4
    conditions = {one["type"]: one for one in status["conditions"]}
    assert conditions["Updating"]["status"] == "True"
    assert conditions["Ready"]["lastTransitionTime"]
    assert await rollout.differences() == []
    spoiled = {"metadata": {"name": POOL}, "status": {"machineCount": 9}}
    await rollout.client.apply(
        MACHINE_CONFIG_POOLS, spoiled, subresource="status", force=True, field_manager=BY_HAND
    )  # fmt: skip

    async def is_right() -> bool:
        return bool((await rollout.client.get(MACHINE_CONFIG_POOLS, POOL))["status"] == status)

    await eventually(is_right)
    assert (await has_event(rollout.client, "UpdateStarted"))["regarding"]["kind"] == "MachineConfigPool"


async def test_the_annotations_of_a_node_follow_its_update_and_go_with_its_pool(rollout: Rollout) -> None:
    _, uid = await rollout.begin()
    draining = configured("Draining", None, uid=uid, cordoned=True, drain_started_at=SET_AT)
    await rollout.decide((NODE, draining))
    assert await rollout.annotations() == {
        ANNOTATION_POOL: POOL, ANNOTATION_CORDONED: "true", ANNOTATION_DRAIN_STARTED_AT: "2026-01-09T10:00:00Z",
    }  # fmt: skip
    await rollout.decide((NODE, configured(uid=uid)))
    assert await rollout.annotations() == {
        ANNOTATION_POOL: POOL, ANNOTATION_DESIRED: RENDERED.name, ANNOTATION_DESIRED_SET_AT: "2026-01-09T10:00:00Z",
    }  # fmt: skip
    assert await rollout.differences() == []
    await rollout.decide((NODE, NodeConfigChanged(uid=uid)))
    assert await rollout.annotations() == {}
    assert await rollout.differences() == []


async def test_what_others_make_of_the_annotations_is_reverted(rollout: Rollout) -> None:
    _, uid = await rollout.begin()
    await rollout.decide((NODE, configured(uid=uid)))
    right = await rollout.annotations()

    async def is_right() -> bool:
        return await rollout.annotations() == right

    await rollout.annotate({ANNOTATION_DESIRED: "rendered-worker-9"})
    await eventually(is_right)
    await rollout.annotate({ANNOTATION_CORDONED: "true"})
    await eventually(is_right)
    assert (await has_event(rollout.client, "GPUStatusRestored"))["regarding"]["kind"] == "Node"


async def test_another_node_of_the_same_name_has_no_annotations_before_it_is_decided_about(rollout: Rollout) -> None:
    _, uid = await rollout.begin()
    await rollout.decide((NODE, configured(uid=uid)))
    await rollout.client.delete(NODES, NODE)
    again = await create(rollout.client, NODES, {"metadata": {"name": NODE}})
    await rollout.decide((POOL, changed()))
    assert "annotations" not in (await rollout.client.get(NODES, NODE))["metadata"]
    await rollout.decide((NODE, configured(uid=again["metadata"]["uid"])))
    assert ANNOTATION_DESIRED in (await rollout.client.get(NODES, NODE))["metadata"]["annotations"]


async def test_annotations_of_another_controller_stay(rollout: Rollout) -> None:
    _, uid = await rollout.begin()
    theirs = {ANNOTATION_POOL: "theirs", ANNOTATION_DESIRED: "theirs-1"}
    await rollout.annotate(theirs)
    await rollout.decide(*found("w1-0"), (NODE, NodeConfigChanged(uid=uid)))
    assert await rollout.annotations() == theirs


async def test_events_say_on_the_node_and_on_its_pool_what_goes_wrong(rollout: Rollout) -> None:
    _, uid = await rollout.begin()
    await rollout.decide((NODE, configured("Draining", None, uid=uid)))
    await rollout.decide((NODE, NodeConfigDrainFailed(pool=POOL, attempt=1, left=2)))
    await rollout.decide((NODE, configured(uid=uid)), (NODE, NodeConfigReported(state="error", error="disk full")))
    reported = await has_event(rollout.client, "ApplyFailed")
    assert (reported["regarding"]["kind"], reported["regarding"]["uid"], reported["type"]) == ("Node", uid, "Warning")
    assert (await has_event(rollout.client, "DrainFailed"))["action"] == "Drain"
    await rollout.decide((NODE, configured("Failed", uid=uid, reason="ApplyTimeout")))
    assert (await has_event(rollout.client, "ApplyTimeout"))["type"] == "Warning"
    await rollout.decide((NODE, configured("Idle", uid=uid)))
    assert (await has_event(rollout.client, "UpdateApplied"))["note"] == f"The node has {RENDERED.name} of pool worker."


async def test_a_difference_names_the_annotation(
    ledger: JetStreamLedger, migrated_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await enforce(ledger, migrated_url)
    async with status_writer(ledger, migrated_url, ours) as writer:
        rollout = Rollout(ledger, client, writer)
        _, uid = await rollout.begin()
        await rollout.decide((NODE, configured(uid=uid)))
    assert await rollout.differences() == []
    await rollout.annotate({ANNOTATION_DESIRED: "rendered-worker-9"})
    assert await rollout.differences() == [("Node", f"annotations.{ANNOTATION_DESIRED}")]
    strange = {"metadata": {"name": "strange"}, "spec": (await rollout.rendered())["spec"]}
    await create(client, RENDERED_MACHINE_CONFIGS, strange)
    assert ("RenderedMachineConfig", "") in await rollout.differences()


async def test_a_cluster_without_these_kinds_is_unharmed(
    ledger: JetStreamLedger, migrated_url: str, client: KubeClient, ours: CountingClient
) -> None:
    for kind in (MACHINE_CONFIG_POOLS, RENDERED_MACHINE_CONFIGS):
        await client.delete(CRDS, kind.full_name)
    await enforce(ledger, migrated_url)
    node = await create(client, NODES, {"metadata": {"name": NODE}})
    async with status_writer(ledger, migrated_url, ours) as writer:
        recorder = FactRecorder(ledger)
        await recorder.record(*found("w1-0"), (POOL, defined()), (POOL, RENDERED), (POOL, changed()))
        await recorder.record((NODE, configured(uid=node["metadata"]["uid"])))

        async def is_written() -> bool:
            devices = (await client.list(GPU_DEVICES)).items
            shown = (await client.get(NODES, NODE))["metadata"].get("annotations") or {}
            return any("status" in one for one in devices) and ANNOTATION_DESIRED in shown

        await eventually(is_written)
        health = writer.health()
        assert (health.state, health.failing) == ("writing", 0)
        assert set(health.unlisted) == {"RenderedMachineConfig", "MachineConfigPool"}
    assert (await compare(client, ledger)).enabled

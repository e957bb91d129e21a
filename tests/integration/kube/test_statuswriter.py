"""The status writer on real servers: the API server shows the ledger's decisions, and nothing is written twice."""

from gpuledger.api.kinds import (
    GPU_DEVICES,
    GPU_NODE_STATES,
    MODULE_CONFIG,
    MODULE_CONFIGS,
    NODE_FEATURE_RULE,
    NODE_FEATURE_RULES,
)
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.settings import StatusWriterSettings
from gpuledger.edge.watchers.resources import moduleconfig
from gpuledger.events.device import DeviceDescribed, DeviceWithdrawn
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import NodeInventoryWithdrawn
from gpuledger.events.settings import SettingsChanged
from gpuledger.projection.rebuild import rebuild
from gpuledger.tools.queries.backend import all_projections
from support.inventory_decisions import Decided, events, events_number, hardware, has_event, names, settled, writing
from support.statuswriting import BACKOFF, CountingClient
from support.waiting import eventually


async def test_objects_come_change_and_go(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(decided, database_url, ours) as writer:
        await decided.node("w1")
        await settled(writer, decided)
        found = await client.get(GPU_DEVICES, "w1-0")
        assert found["status"]["state"] == "Discovered"
        assert found["status"]["hardware"]["pci"]["address"] == "0000:00:00.0"
        assert found["metadata"]["labels"] == {
            "gpu.deckhouse.io/product": "a100", "gpu.deckhouse.io/vendor": "nvidia",
            "gpu.deckhouse.io/precision.fp32": "true", "gpu.deckhouse.io/precision.bf16": "true",
        }  # fmt: skip
        state = await client.get(GPU_NODE_STATES, "w1")
        assert state["spec"] == {"nodeName": "w1"}
        assert {one["type"]: one["status"] for one in state["status"]["conditions"]} == {
            "InventoryComplete": "True", "ManagedDisabled": "False",
        }  # fmt: skip
        assert len(ours.objects_written()) == 2 * 3 + 1
        await decided.record(("w1-0", DeviceDescribed(hardware=hardware(0, precision=("fp8",)), managed=False)))
        await settled(writer, decided)
        found = await client.get(GPU_DEVICES, "w1-0")
        assert found["status"]["managed"] is False
        assert "gpu.deckhouse.io/precision.fp8" in found["metadata"]["labels"]
        assert "gpu.deckhouse.io/precision.fp32" not in found["metadata"]["labels"]
        await decided.record(("w1-0", DeviceWithdrawn()), ("w1-1", DeviceWithdrawn()), ("w1", NodeInventoryWithdrawn()))
        await settled(writer, decided)
        assert await names(client) == []
        assert (await client.list(GPU_NODE_STATES)).items == []
        verification = await compare(client, decided.ledger)
        assert (verification.enabled, verification.objects, verification.differences) == (True, 0, 0)


async def test_nothing_is_written_again_after_a_restart_or_by_a_resync(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    for index in range(5):
        await decided.node(f"w{index}", 4)
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        written = ours.objects_written()
        assert len(written) == len(set(written))
        assert len([one for one in written if one.endswith("/status")]) == 25
        await has_event(client, "GPUDeviceDetected")
        await eventually(lambda: events_number(client, 20))
    ours.written.clear()
    often = StatusWriterSettings(backoff=BACKOFF, refused_backoff=BACKOFF, relist_period_s=0.1)
    await decided.record((MODULE_CONFIG, SettingsChanged(resync_period_s=1)))
    async with writing(decided, database_url, ours, often) as writer:
        await settled(writer, decided)
        await eventually(lambda: has_listed(ours, 3))
        await settled(writer, decided)
    assert ours.written == []
    assert (await compare(client, decided.ledger)).differences == 0


async def has_listed(ours: CountingClient, times: int) -> bool:
    return ours.lists >= times


async def test_a_disabled_module_writes_nothing(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.record((MODULE_CONFIG, SettingsChanged(enabled=False)))
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        assert ours.objects_written() == []
        await decided.record((MODULE_CONFIG, SettingsChanged()))
        await settled(writer, decided)
        assert await names(client) == ["w1-0", "w1-1"]
        assert (await client.get(NODE_FEATURE_RULES, NODE_FEATURE_RULE))["spec"] == crds.node_feature_rule()["spec"]
        await decided.record((MODULE_CONFIG, SettingsChanged(enabled=False)))
        await settled(writer, decided)
        ours.written.clear()
        await client.delete(GPU_DEVICES, "w1-0")
        await decided.node("w2")
        await settled(writer, decided)
        assert ours.written == []


async def test_what_was_withdrawn_meanwhile_goes_and_what_the_ledger_never_knew_stays(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1", 2)
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
    await decided.record(("w1-0", DeviceWithdrawn(moved_to="w2")))
    await decided.node("gone", 1)
    await decided.record(("gone-0", DeviceWithdrawn()), ("gone", NodeInventoryWithdrawn()))
    await client.create(
        GPU_DEVICES, {"apiVersion": GPU_DEVICES.api_version, "kind": "GPUDevice", "metadata": {"name": "x"}}
    )
    ours.written.clear()
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        assert ours.objects_written() == [f"DELETE {GPU_DEVICES.path()}/w1-0"]
        assert await names(client) == ["w1-1", "x"]
        verification = await compare(client, decided.ledger)
        assert [(one.key.name, one.expected) for one in verification.first] == [("x", None)]
        await eventually(lambda: events_number(client, 5))
        notes = [event["note"] for event in await events(client, "GPUDeviceRemoved")]
        assert any("it sits in node w2 now" in note for note in notes)


async def test_a_missing_prerequisite_is_a_condition_of_the_module(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    config = {"apiVersion": "deckhouse.io/v1alpha1", "kind": "ModuleConfig", "metadata": {"name": MODULE_CONFIG}}
    await client.create(MODULE_CONFIGS, config | {"spec": {"enabled": True}})
    missing = ModulePrerequisiteChanged(met=False, reason="NodeFeatureDiscoveryMissing", message="Enable it.")
    await decided.record((MODULE_CONFIG, missing))
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        (condition,) = (await client.get(MODULE_CONFIGS, MODULE_CONFIG))["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("PrerequisiteNotMet", "True")
        event = await has_event(client, "GPUInventoryConditionChanged")
        assert event["regarding"]["kind"] == "ModuleConfig"


async def test_what_a_module_config_sets_in_vain_is_a_condition_with_its_generation_and_one_warning(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    config = {"apiVersion": "deckhouse.io/v1alpha1", "kind": "ModuleConfig", "metadata": {"name": MODULE_CONFIG}}
    created = await client.create(MODULE_CONFIGS, config | {"spec": {"enabled": True, "settings": {"x": 1}}})
    read = moduleconfig.KIND.read(created)
    await decided.record((MODULE_CONFIG, moduleconfig.KIND.combine([read.content])))
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        (condition,) = (await client.get(MODULE_CONFIGS, MODULE_CONFIG))["status"]["conditions"]
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "Configured", "status": "False", "reason": "SettingsNotInForce",
            "message": "x is no setting. It has no effect.", "observedGeneration": 1,
        }  # fmt: skip
        assert (await has_event(client, "GPUInventoryConditionChanged"))["type"] == "Warning"
        edited = await client.merge_patch(MODULE_CONFIGS, MODULE_CONFIG, {"spec": {"settings": {"x": 2}}})
        await decided.record((MODULE_CONFIG, moduleconfig.KIND.combine([moduleconfig.KIND.read(edited).content])))
        await settled(writer, decided)
        (condition,) = (await client.get(MODULE_CONFIGS, MODULE_CONFIG))["status"]["conditions"]
        assert (condition["status"], condition["observedGeneration"]) == ("False", 2)
        mended = await client.merge_patch(MODULE_CONFIGS, MODULE_CONFIG, {"spec": {"settings": {"x": None}}})
        await decided.record((MODULE_CONFIG, moduleconfig.KIND.combine([moduleconfig.KIND.read(mended).content])))
        await settled(writer, decided)
        (condition,) = (await client.get(MODULE_CONFIGS, MODULE_CONFIG))["status"]["conditions"]
        assert (condition["status"], condition["observedGeneration"]) == ("True", 3)
        await eventually(lambda: events_number(client, 2))
        kinds = [(one["type"], "series" in one) for one in await events(client, "GPUInventoryConditionChanged")]
        assert sorted(kinds) == [("Normal", False), ("Warning", False)]
        assert await events(client, "GPUStatusRestored") == []


async def test_a_replay_of_the_tables_writes_nothing(
    decided: Decided, migrated_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1", 4)
    async with writing(decided, migrated_url, ours) as writer:
        await settled(writer, decided)
        await eventually(lambda: events_number(client, 4))
        ours.written.clear()
        for projection in all_projections():
            await rebuild(projection, decided.ledger, migrated_url)
        await settled(writer, decided)
        assert ours.written == []

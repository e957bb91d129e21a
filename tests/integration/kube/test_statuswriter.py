"""The status writer on real servers: what the ledger decides stands in the API server, and nothing is written twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from gpuledger.clock import system_clock
from gpuledger.events.device import DeviceDescribed, DeviceDetected, DeviceWithdrawn, Hardware
from gpuledger.events.envelope import Decoded, Event
from gpuledger.events.module import ModulePrerequisiteChanged
from gpuledger.events.node import Condition, NodeInventoryChanged, NodeInventoryWithdrawn
from gpuledger.events.payload import Payload
from gpuledger.events.settings import SettingsChanged
from gpuledger.events.source import SourcePositionSkipped
from gpuledger.kube import crds
from gpuledger.kube.client import KubeClient
from gpuledger.kube.errors import NotFoundError
from gpuledger.kube.names import (
    EVENTS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    MODULE_CONFIG,
    MODULE_CONFIGS,
    NODE_FEATURE_RULE,
    NODE_FEATURE_RULES,
)
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.projection.rebuild import rebuild
from gpuledger.statuswriter.main import StatusWriter, StatusWriterSettings, compare
from support.events import event, outgoing
from support.kube_equipped import equip, equipped_client
from support.kube_proxy import KubeProxy, only
from support.kube_server import KubeServer, NewKube
from support.ledgers import eventually
from support.projections import all_projections, execute
from support.scripted_api import refuse
from support.statuswriting import BACKOFF, QUICK, CountingClient, all_written, counting, status_writer

INVENTORY, WATCHER = "/services/inventory", "/watchers/settings"
COMPLETE = Condition(type="InventoryComplete", status="True", reason="AllDevicesDescribed")
INCOMPLETE = Condition(type="InventoryComplete", status="False", reason="NoDevicesDiscovered", message="None.")
MANAGED = Condition(type="ManagedDisabled", status="False", reason="Enabled")


class Decided:
    """Records decisions as the inventory does."""

    def __init__(self, ledger: JetStreamLedger) -> None:
        self.ledger = ledger
        self._numbers: dict[str, int] = {}

    async def record(self, *said: tuple[str, Payload], at: datetime | None = None, **more: Any) -> None:
        made = [self.event(subject, data, at, **more) for subject, data in said]
        await self.ledger.publish_many([outgoing(one) for one in made])

    def event(self, subject: str, data: Payload, at: datetime | None = None, **more: Any) -> Decoded:
        source = WATCHER if isinstance(data, SettingsChanged) else INVENTORY
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        return Event(f"{source}#{number}", source, data.TYPE, subject, at or system_clock(), data, "e1", number, **more)

    async def node(self, name: str, devices: int = 2, **more: Any) -> None:
        """A node with devices is detected."""
        found = [(f"{name}-{index}", device(name, index)) for index in range(devices)]
        conditions = NodeInventoryChanged(present=True, conditions=(COMPLETE, MANAGED))
        await self.record(*found, (name, conditions), **more)


def hardware(index: int, **more: Any) -> Hardware:
    facts: dict[str, Any] = {
        "uuid": f"GPU-{index}", "pci_address": f"0000:{index:02x}:00.0", "pci_vendor": "10de", "pci_device": "20b5",
        "pci_class": "0302", "product": "NVIDIA A100-PCIE-40GB", "memory_mib": 40960, "precision": ("fp32", "bf16"),
    }  # fmt: skip
    return Hardware(**(facts | more))


def device(node: str, index: int) -> DeviceDetected:
    return DeviceDetected(hardware=hardware(index), managed=True, node=node, card=f"GPU-{node}-{index}")


@pytest.fixture
def decided(ledger: JetStreamLedger) -> Decided:
    return Decided(ledger)


@pytest.fixture
async def ours(kube: KubeServer, client: KubeClient) -> AsyncIterator[CountingClient]:
    """What the status writer uses."""
    async with counting(kube.kubeconfig) as ours:
        yield ours


@asynccontextmanager
async def writing(
    decided: Decided, database_url: str, client: KubeClient, settings: StatusWriterSettings = QUICK
) -> AsyncIterator[StatusWriter]:
    async with status_writer(decided.ledger, database_url, client, settings) as writer:
        yield writer


async def settled(writer: StatusWriter, decided: Decided) -> None:
    await all_written(writer, decided.ledger)


async def names(client: KubeClient) -> list[str]:
    return [one["metadata"]["name"] for one in (await client.list(GPU_DEVICES)).items]


async def events(client: KubeClient, reason: str) -> list[dict[str, Any]]:
    return [one for one in (await client.list(EVENTS)).items if one["reason"] == reason]


async def has_event(client: KubeClient, reason: str) -> dict[str, Any]:
    async def there() -> bool:
        return bool(await events(client, reason))

    await eventually(there)
    return (await events(client, reason))[0]


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


async def events_number(client: KubeClient, number: int) -> bool:
    return len((await client.list(EVENTS)).items) == number


async def has_listed(ours: CountingClient, times: int) -> bool:
    return ours.lists >= times


async def has_asked(proxy: KubeProxy, number: int, part: str = "") -> bool:
    return sum(part in one.path for one in proxy.asked) >= number


async def test_what_is_deleted_by_hand_comes_back_and_labels_of_people_stay(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        theirs = {"labels": {"team": "a"}, "annotations": {"gpu.deckhouse.io/assignment": "pool"}}
        await client.merge_patch(GPU_DEVICES, "w1-0", {"metadata": theirs})
        await client.merge_patch(
            GPU_DEVICES,
            "w1-0",
            {"metadata": {"labels": {"gpu.deckhouse.io/product": "x", "gpu.deckhouse.io/vendor": None}}},
        )
        await client.delete(GPU_DEVICES, "w1-1")

        async def is_back() -> bool:
            labels = (await client.get(GPU_DEVICES, "w1-0"))["metadata"]["labels"]
            return (
                labels["gpu.deckhouse.io/product"] == "a100"
                and labels.get("gpu.deckhouse.io/vendor") == "nvidia"
                and await names(client) == ["w1-0", "w1-1"]
            )

        await eventually(is_back)
        await settled(writer, decided)
        metadata = (await client.get(GPU_DEVICES, "w1-0"))["metadata"]
        assert metadata["labels"]["team"] == "a"
        assert metadata["annotations"] == theirs["annotations"]
        assert (await compare(client, decided.ledger)).differences == 0


@pytest.mark.parametrize(
    "change",
    [
        {"state": "Faulted"},
        {"poolRef": {"name": "mine"}},
        {"hardware": None},
        {"conditions": [{"type": "Mine", "status": "True"}]},
    ],
)
async def test_a_status_changed_by_hand_is_undone_once(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient, change: dict[str, Any]
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        right = (await client.get(GPU_DEVICES, "w1-0"))["status"]
        ours.written.clear()
        await client.merge_patch(GPU_DEVICES, "w1-0", {"status": change}, subresource="status")
        event = await has_event(client, "GPUStatusRestored")
        assert (event["type"], event["regarding"]["name"]) == ("Warning", "w1-0")
        await settled(writer, decided)
        assert (await client.get(GPU_DEVICES, "w1-0"))["status"] == right
        assert len(ours.objects_written()) <= 3
        assert writer.health().left == 0


async def test_nobody_is_fought_in_a_loop(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1", 1)
    theirs = {"metadata": {"name": "w1-0"}, "status": {"state": "Faulted"}}
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        ours.written.clear()

        async def is_left() -> bool:
            await client.apply(GPU_DEVICES, theirs, subresource="status", force=True, field_manager="other")
            return writer.health().left == 1

        await eventually(is_left)
        await has_event(client, "GPUFieldConflict")
        ours.written.clear()
        for _ in range(5):
            await client.apply(GPU_DEVICES, theirs, subresource="status", force=True, field_manager="other")
        await settled(writer, decided)
        assert ours.objects_written() == []
        assert (await client.get(GPU_DEVICES, "w1-0"))["status"]["state"] == "Faulted"
        verification = await compare(client, decided.ledger)
        assert [(one.key.name, one.path, one.expected, one.found) for one in verification.first] == [
            ("w1-0", "status.state", "Discovered", "Faulted")
        ]


async def test_a_disabled_module_writes_nothing(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.record((MODULE_CONFIG, SettingsChanged(enabled=False)))
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        assert ours.written == []
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


async def test_the_rule_is_kept_in_place(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        spec = crds.node_feature_rule()["spec"]
        await client.merge_patch(NODE_FEATURE_RULES, NODE_FEATURE_RULE, {"spec": {"rules": []}})

        async def is_back() -> bool:
            return bool((await client.get(NODE_FEATURE_RULES, NODE_FEATURE_RULE))["spec"] == spec)

        await eventually(is_back)
        await settled(writer, decided)
        assert len(ours.objects_written()) == 2
        await client.delete(NODE_FEATURE_RULES, NODE_FEATURE_RULE)

        async def is_there() -> bool:
            try:
                return await is_back()
            except NotFoundError:
                return False

        await eventually(is_there)


async def test_a_server_that_comes_back_empty_is_filled_again(
    decided: Decided, database_url: str, client: KubeClient, proxy: KubeProxy, new_kube: NewKube
) -> None:
    await decided.node("w1", 4)
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        await proxy.away()
        await decided.node("w2", 4)
        another = await new_kube()
        await proxy.lead_to(another)
        async with equipped_client(another) as others:

            async def is_filled() -> bool:
                return len(await names(others)) == 8 and (await compare(others, decided.ledger)).differences == 0

            await eventually(is_filled)
            await settled(writer, decided)


async def test_a_server_that_was_away_gets_only_what_is_new(
    decided: Decided, database_url: str, kube: KubeServer, client: KubeClient, proxy: KubeProxy
) -> None:
    await decided.node("w1", 4)
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        await kube.stop()
        await decided.node("w2", 1)
        proxy.asked.clear()
        await kube.start()
        await eventually(lambda: has_names(ours, 5))
        await settled(writer, decided)
        assert (await compare(ours, decided.ledger)).differences == 0
        devices = [one for one in proxy.written if one.path.startswith(GPU_DEVICES.path())]
        assert {one.path.removeprefix(GPU_DEVICES.path()) for one in devices} == {"/w2-0", "/w2-0/status"}


async def has_names(client: KubeClient, number: int) -> bool:
    return len(await names(client)) == number


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


@pytest.mark.parametrize("code", [429, 500])
async def test_a_failing_server_is_not_stormed(
    decided: Decided, database_url: str, client: KubeClient, proxy: KubeProxy, code: int
) -> None:
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        proxy.fault = refuse(code, "Trouble", headers={"Retry-After": "1"} if code == 429 else None)
        proxy.asked.clear()
        for index in range(10):
            await decided.node(f"w{index}", 4)
        await eventually(lambda: has_asked(proxy, 4))
        assert len(proxy.asked) < 40
        proxy.fault = None
        await settled(writer, decided)
        assert len(await names(ours)) == 40
        assert (await compare(ours, decided.ledger)).differences == 0


@pytest.mark.parametrize(("code", "tries"), [(422, 1), (500, QUICK.events_tried_max)])
async def test_events_that_are_not_taken_hold_nothing_up(
    decided: Decided, database_url: str, client: KubeClient, proxy: KubeProxy, code: int, tries: int
) -> None:
    async with counting(proxy.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        proxy.fault = only("/events", refuse(code, "Trouble"))
        await decided.node("w1", 1)
        await eventually(lambda: has_asked(proxy, tries, "/events"))
        await settled(writer, decided)
        proxy.fault = None
        await decided.node("w2", 1)
        assert (await has_event(client, "GPUDeviceDetected"))["regarding"]["name"] == "w2-0"
        await settled(writer, decided)
        assert await names(client) == ["w1-0", "w2-0"]


async def test_old_and_imported_history_is_no_news(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("old", 2, at=system_clock() - timedelta(days=1))
    await decided.node("imported", 2, imported=True)
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        await decided.record(("old", NodeInventoryChanged(present=False, conditions=(INCOMPLETE, MANAGED))))
        event = await has_event(client, "GPUInventoryConditionChanged")
        assert (event["type"], event["regarding"]["kind"]) == ("Warning", "GPUNodeState")
        assert (await client.list(EVENTS)).items == [event]


async def test_the_same_news_again_is_a_series(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    incomplete = NodeInventoryChanged(present=False, conditions=(INCOMPLETE, MANAGED))
    complete = NodeInventoryChanged(present=True, conditions=(COMPLETE, MANAGED))
    await decided.node("w1", 1)
    await decided.record(("w1", incomplete), ("w1", complete), ("w1", incomplete), ("w1", complete))
    async with writing(decided, database_url, ours):

        async def counted() -> bool:
            found = await events(client, "GPUInventoryConditionChanged")
            return sorted(one.get("series", {}).get("count", 1) for one in found) == [2, 2]

        await eventually(counted)


async def test_a_second_writer_waits_until_the_first_is_gone(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(decided, database_url, ours) as second:
        await settled(second, decided)
        async with writing(decided, database_url, ours) as first:
            await decided.node("w1")
            await settled(second, decided)
            assert first.health().state == "standing-by"
            execute(
                database_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                "gpuledger statuswriter",
            )  # fmt: skip

            async def is_one() -> bool:
                return {first.health().state, second.health().state} == {"writing", "standing-by"}

            await eventually(is_one)


async def test_without_its_kinds_it_waits(decided: Decided, database_url: str, kube: KubeServer) -> None:
    await decided.node("w1")
    async with counting(kube.kubeconfig) as ours, writing(decided, database_url, ours) as writer:
        await eventually(lambda: is_writing(writer))
        assert "GPUDevice" in writer.health().unlisted
        await equip(kube, ours)
        await settled(writer, decided)
        assert await names(ours) == ["w1-0", "w1-1"]


async def is_writing(writer: StatusWriter) -> bool:
    return writer.health().state == "writing"


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


async def test_an_event_that_does_not_fold_stops_it_until_it_is_skipped(
    decided: Decided, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await decided.node("w1")
    async with writing(decided, database_url, ours) as writer:
        await settled(writer, decided)
        bad = outgoing(decided.event("w1-0", DeviceWithdrawn()))
        receipt = await decided.ledger.publish(bad._replace(data=bad.data.replace(b'"data":{', b'"data":7,"x":{')))
        await decided.node("w2")
        await eventually(lambda: is_stopped(writer))
        assert len(await names(client)) == 2
        skip = SourcePositionSkipped(generation=1, sequence=receipt.sequence, reason="it was ours")
        await decided.ledger.publish(outgoing(event(skip, "log", source="/operators/eva")))
        await settled(writer, decided)
        assert await names(client) == ["w1-0", "w1-1", "w2-0", "w2-1"]


async def is_stopped(writer: StatusWriter) -> bool:
    return bool(writer.health().reason)


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

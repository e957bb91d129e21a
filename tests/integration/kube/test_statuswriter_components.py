"""The components' DaemonSets on real servers: they come, follow the module's settings, and go."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.api.kinds import DAEMON_SETS, EVENTS, MODULE_CONFIG, NAMESPACES, NODES, Resource
from gpuledger.api.labels import COMPONENT_BY_APP, LABEL_DETECTED
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.kubeconfig import load_configuration
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.node import Condition, NodeInventoryChanged, NodeInventoryWithdrawn
from gpuledger.events.settings import SettingsChanged
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.settings import COMPONENT_NAMES, ComponentSettings
from support.gpu_states import FactRecorder
from support.kube_fleet import create
from support.kube_server import KubeServer, NewKube
from support.statuswriting import QUICK, CountingClient, all_written, counting, status_writer
from support.waiting import eventually

NAMESPACE = "gpus"
APPS = {app for app, component in COMPONENT_BY_APP.items() if component in COMPONENT_NAMES}
IMAGES = {name: f"registry.example/{name}:1" for name in COMPONENT_NAMES}
KEPT = ComponentSettings(manage=True, namespace=NAMESPACE, images=IMAGES)
THEIRS = {
    "metadata": {"name": "theirs", "namespace": NAMESPACE, "labels": {"app": "nvidia-dcgm"}},
    "spec": {
        "selector": {"matchLabels": {"app": "theirs"}},
        "template": {
            "metadata": {"labels": {"app": "theirs"}},
            "spec": {"containers": [{"name": "one", "image": "registry.example/theirs:1"}]},
        },
    },
}


@pytest.fixture
async def kube(new_kube: NewKube) -> KubeServer:
    """An empty API server that allows the components' privileged containers."""
    return await new_kube(allow_privileged=True)


@pytest.fixture
def facts(ledger: JetStreamLedger) -> FactRecorder:
    return FactRecorder(ledger)


@pytest.fixture
async def ours(kube: KubeServer, client: KubeClient) -> AsyncIterator[CountingClient]:
    await create(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    async with counting(kube.kubeconfig) as ours:
        yield ours


@asynccontextmanager
async def writing(
    facts: FactRecorder, database_url: str, client: KubeClient, components: ComponentSettings = KEPT
) -> AsyncIterator[StatusWriter]:
    settings = replace(QUICK, components=components)
    async with status_writer(facts.ledger, database_url, client, settings) as writer:
        yield writer


async def names(client: KubeClient) -> set[str]:
    return {one["metadata"]["name"] for one in (await client.list(DAEMON_SETS)).items}


async def test_they_come_follow_the_settings_and_go(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await create(client, DAEMON_SETS, THEIRS)
    async with writing(facts, database_url, ours) as writer:

        async def after(settings: SettingsChanged) -> set[str]:
            await facts.record((MODULE_CONFIG, settings))
            await all_written(writer, facts.ledger)
            return await names(client) - {"theirs"}

        await all_written(writer, facts.ledger)
        assert await names(client) == APPS | {"theirs"}
        assert len([one for one in ours.objects_written() if "daemonsets" in one]) == len(APPS)
        assert await after(SettingsChanged(gfd_enabled=False)) == APPS - {"gpu-feature-discovery"}
        assert await after(SettingsChanged()) == APPS
        assert await after(SettingsChanged(managed_label_key="x/managed")) == APPS
        found = await client.get(DAEMON_SETS, "nvidia-dcgm", NAMESPACE)
        assert "x/managed" in str(found["spec"]["template"]["spec"]["affinity"])
        assert await after(SettingsChanged(enabled=False)) == set()
        assert writer.health().state == "disabled"
        assert await after(SettingsChanged()) == APPS
    assert "theirs" in await names(client)


async def test_those_of_a_module_that_was_disabled_meanwhile_go(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        await all_written(writer, facts.ledger)
    await facts.record((MODULE_CONFIG, SettingsChanged(enabled=False)))
    async with writing(facts, database_url, ours) as writer:
        await all_written(writer, facts.ledger)
        assert await names(client) == set()


async def test_changes_by_others_are_reverted_but_their_status_stays(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours) as writer:
        await all_written(writer, facts.ledger)
        ours.written.clear()
        status = {"currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 1}
        await client.merge_patch(DAEMON_SETS, "nvidia-dcgm", {"status": status}, NAMESPACE, subresource="status")
        change = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "other"}]
        await client.json_patch(DAEMON_SETS, "gpu-feature-discovery", change, NAMESPACE)
        await client.delete(DAEMON_SETS, "nvidia-dcgm-exporter", NAMESPACE)

        async def is_as_before() -> bool:
            found = {one["metadata"]["name"]: one for one in (await client.list(DAEMON_SETS)).items}
            image = found["gpu-feature-discovery"]["spec"]["template"]["spec"]["containers"][0]["image"]
            return (set(found), image) == (APPS, IMAGES["gfd"])

        await eventually(is_as_before)
        await all_written(writer, facts.ledger)
        assert not [one for one in ours.objects_written() if "nvidia-dcgm?" in one or one.endswith("/nvidia-dcgm")]
        assert (await client.get(DAEMON_SETS, "nvidia-dcgm", NAMESPACE))["status"]["numberReady"] == 1


async def test_where_somebody_else_runs_them_nothing_is_done(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with writing(facts, database_url, ours, ComponentSettings()) as writer:
        await all_written(writer, facts.ledger)
        await facts.record((MODULE_CONFIG, SettingsChanged(gfd_enabled=False)))
        await all_written(writer, facts.ledger)
        assert await names(client) == set()
        assert "DaemonSet" not in writer.health().unlisted


LABELLING = replace(KEPT, label_nodes=True)
COMPLETE = Condition(type="InventoryComplete", status="True", reason="AllDevicesDescribed")


def gpus(*, present: bool = True) -> NodeInventoryChanged:
    return NodeInventoryChanged(present=present, conditions=(COMPLETE,))


async def labels(client: KubeClient) -> dict[str, dict[str, str]]:
    """The labels of every Node."""
    return {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in (await client.list(NODES)).items}


async def test_nodes_with_gpus_have_our_label_for_as_long_as_they_have_any(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    for node in ("w1", "cpu"):
        await create(client, NODES, {"metadata": {"name": node, "labels": {"theirs": "1"}}})
    async with writing(facts, database_url, ours, LABELLING) as writer:
        await facts.record(("w1", gpus()), ("not-there", gpus()))
        await all_written(writer, facts.ledger)
        assert await labels(client) == {"w1": {"theirs": "1", LABEL_DETECTED: "true"}, "cpu": {"theirs": "1"}}
        await facts.record(("w1", gpus(present=False)))
        await all_written(writer, facts.ledger)
        assert await labels(client) == {"w1": {"theirs": "1"}, "cpu": {"theirs": "1"}}
        await facts.record(("w1", gpus()))
        await all_written(writer, facts.ledger)
        await client.delete(NODES, "w1")
        await facts.record(("w1", NodeInventoryWithdrawn()))
        await all_written(writer, facts.ledger)
        assert await labels(client) == {"cpu": {"theirs": "1"}}, "nothing creates a Node"
        await create(client, NODES, {"metadata": {"name": "w1"}})
        await facts.record(("w1", gpus()))
        await all_written(writer, facts.ledger)
        assert (await labels(client))["w1"] == {LABEL_DETECTED: "true"}


class Late(KubeClient):
    """Each Node goes just before it would be labelled."""

    async def apply(self, resource: Resource, obj: Object, **given: Any) -> Object:
        if resource == NODES:
            await self.delete(NODES, obj["metadata"]["name"])
        return await super().apply(resource, obj, **given)


async def test_a_node_that_goes_before_it_is_labelled_does_not_come_back(
    facts: FactRecorder, database_url: str, kube: KubeServer, client: KubeClient
) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
    await create(client, NODES, {"metadata": {"name": "w1"}})
    await facts.record(("w1", gpus()))
    late = Late(await load_configuration(kube.kubeconfig))
    try:
        async with writing(facts, database_url, late, LABELLING) as writer:
            await all_written(writer, facts.ledger)
            assert await labels(client) == {}
    finally:
        await late.close()


async def test_a_label_that_somebody_removes_is_restored(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await create(client, NODES, {"metadata": {"name": "w1"}})
    await facts.record(("w1", gpus()))
    async with writing(facts, database_url, ours, LABELLING) as writer:
        await all_written(writer, facts.ledger)
        await client.merge_patch(NODES, "w1", {"metadata": {"labels": {LABEL_DETECTED: None}}})

        async def is_restored() -> bool:
            notes = [str(one.get("note")) for one in (await client.list(EVENTS)).items]
            return (await labels(client))["w1"] == {LABEL_DETECTED: "true"} and any("Node w1" in one for one in notes)

        await eventually(is_restored)


async def test_where_node_feature_discovery_labels_nodes_nobody_else_does(
    facts: FactRecorder, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    await create(client, NODES, {"metadata": {"name": "w1"}})
    await facts.record(("w1", gpus()))
    async with writing(facts, database_url, ours) as writer:
        await all_written(writer, facts.ledger)
        assert await labels(client) == {"w1": {}}
        assert not [one for one in ours.written if "/nodes/" in one]

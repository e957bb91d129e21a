"""What Nodes and Devices show of shared devices, on real servers: the label, the decision, and what is written."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gpuledger.api.kinds import NODES, shared_devices
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.edge.statuswriter.reconcile.verify import compare
from gpuledger.edge.statuswriter.service import StatusWriter
from gpuledger.events.envelope import Event
from gpuledger.events.node_sharing import NodeSharingLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.runtime import GpuCheckpoint, NodeGpuCheckpointsObserved
from gpuledger.events.sharing import (
    NodeDevicesShared,
    SharedDevice,
    SharedFunction,
    SharedFunctionGroup,
    SharedTopology,
)
from gpuledger.ledger.jetstream import JetStreamLedger
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.uninstall import uninstall
from support.enforcing import enforce
from support.events import outgoing
from support.statuswriting import CountingClient, all_written, status_writer
from support.waiting import eventually

DEVICES = shared_devices()
NODE, MEMORY_MIB = "w1", 81_559
CORE, MEMORY, RATIO, RDMA = (f"kooperator/{name}" for name in ("gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma"))
SOURCES: dict[type[Payload], str] = {
    NodeDevicesShared: "/services/sharing",
    NodeSharingLabelled: "/watchers/sharingnodes",
    NodeGpuCheckpointsObserved: f"/nodes/{NODE}/agent",
}
CHECKPOINTS = {"node.kooperator/gpu-checkpoints": "[]"}


def gpu(number: int, *, healthy: bool = True) -> SharedDevice:
    return SharedDevice(
        type="gpu",
        minor=number,
        id=f"GPU-{number}",
        healthy=healthy,
        resources={"gpu-core": 100, "gpu-memory": MEMORY_MIB << 20, "gpu-memory-ratio": 100},
        topology=SharedTopology(socket=0, numa=1, pcie="0000:15:00.0", bus_id=f"0000:17:00.{number}"),
        labels={"model": "H100"},
        module_id=number + 1,
    )


NIC = SharedDevice(
    type="rdma",
    minor=0,
    id="0000:0a:00.0",
    healthy=True,
    resources={"rdma": 100},
    function_groups=(SharedFunctionGroup(functions=(SharedFunction(minor=0, bus_id="0000:0a:00.1"),)),),
)


def offer(*devices: SharedDevice, model: str | None = "H100") -> NodeDevicesShared:
    return NodeDevicesShared(devices=devices, model=model)


class Sharing:
    """A Node, and what the ledger has of it."""

    def __init__(self, ledger: JetStreamLedger, client: KubeClient, writer: StatusWriter) -> None:
        self.ledger, self.client, self.writer = ledger, client, writer
        self._numbers: dict[str, int] = {}

    async def begin(self, *devices: SharedDevice) -> str:
        """The Node exists and is labelled, and offers the devices; returns its UID."""
        made = await self.client.create(NODES, {"metadata": {"name": NODE, "labels": {"own": "yes"}}})
        status = {"capacity": {"cpu": "8", "other/gpu-core": "3"}, "allocatable": {"cpu": "7"}}
        await self.client.merge_patch(NODES, NODE, {"status": status}, subresource="status")
        await self.record(NodeSharingLabelled(uid=made["metadata"]["uid"]))
        await self.share(offer(*devices))
        return str(made["metadata"]["uid"])

    async def record(self, data: Payload) -> None:
        source = SOURCES[type(data)]
        number = self._numbers[source] = self._numbers.get(source, 0) + 1
        event = Event(f"{source}#{number}", source, data.TYPE, NODE, system_clock(), data, "e1", number)
        await self.ledger.publish_many([outgoing(event)])

    async def share(self, data: NodeDevicesShared) -> None:
        await self.record(data)
        await all_written(self.writer, self.ledger)

    async def device(self) -> Object:
        return await self.client.get(DEVICES, NODE)

    async def node(self) -> Object:
        return await self.client.get(NODES, NODE)

    async def resources(self) -> dict[str, Any]:
        """The Node's shared resources, as it says they can be allocated."""
        allocatable = (await self.node())["status"].get("allocatable") or {}
        return {name: value for name, value in allocatable.items() if name.startswith("kooperator/")}


@pytest.fixture
async def writer(ledger: JetStreamLedger, database_url: str, ours: CountingClient) -> AsyncIterator[StatusWriter]:
    async with status_writer(ledger, database_url, ours) as running:
        yield running


@pytest.fixture
def sharing(ledger: JetStreamLedger, client: KubeClient, writer: StatusWriter) -> Sharing:
    return Sharing(ledger, client, writer)


async def test_a_sharing_node_has_a_device_as_the_seed_writes_it(sharing: Sharing) -> None:
    uid = await sharing.begin(gpu(0), NIC)
    found = await sharing.device()
    assert found["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}]
    first, second = found["spec"]["devices"]
    assert first == {
        "type": "gpu",
        "id": "GPU-0",
        "minor": 0,
        "moduleID": 1,
        "health": True,
        "labels": {"model": "H100"},
        "resources": {CORE: "100", MEMORY: f"{MEMORY_MIB}Mi", RATIO: "100"},
        "topology": {"socketID": 0, "nodeID": 1, "pcieID": "0000:15:00.0", "busID": "0000:17:00.0"},
    }
    assert second["vfGroups"] == [{"vfs": [{"minor": 0, "busID": "0000:0a:00.1"}]}]
    assert (second["type"], second["resources"]) == ("rdma", {RDMA: "100"})
    assert (await compare(sharing.client, sharing.ledger)).differences == 0


async def test_a_node_shows_what_is_healthy_and_keeps_what_is_others(sharing: Sharing) -> None:
    await sharing.begin(gpu(0), gpu(1), gpu(2, healthy=False), NIC)
    whole = {CORE: "200", MEMORY: str(2 * MEMORY_MIB << 20), RATIO: "200", RDMA: "100"}
    assert await sharing.resources() == whole
    node = await sharing.node()
    with_unhealthy = {CORE: "300", MEMORY: str(3 * MEMORY_MIB << 20), RATIO: "300", RDMA: "100"}
    assert node["status"]["capacity"] == {"cpu": "8", "other/gpu-core": "3"} | with_unhealthy
    assert node["metadata"]["labels"] == {"own": "yes", "node.kooperator/gpu-model": "H100"}
    await sharing.share(offer(gpu(0), gpu(1, healthy=False), model="H200"))
    assert (await sharing.resources())[CORE] == "100"
    assert (await sharing.node())["metadata"]["labels"]["node.kooperator/gpu-model"] == "H200"


async def test_a_kubelet_that_sets_them_to_zero_is_corrected(sharing: Sharing) -> None:
    await sharing.begin(gpu(0))
    zero = dict.fromkeys((CORE, MEMORY, RATIO), "0")
    status = {"status": {"capacity": zero, "allocatable": zero}}
    await sharing.client.merge_patch(NODES, NODE, status, subresource="status")

    async def is_right() -> bool:
        return bool((await sharing.resources())[CORE] == "100")

    await eventually(is_right)
    assert (await sharing.node())["status"]["allocatable"]["cpu"] == "7"


async def test_a_node_that_shares_no_more_loses_all_of_it(sharing: Sharing) -> None:
    await sharing.begin(gpu(0), NIC)
    await sharing.share(NodeDevicesShared(enabled=False))
    assert await sharing.resources() == {}
    assert (await sharing.node())["metadata"]["labels"] == {"own": "yes"}
    assert (await sharing.node())["status"]["capacity"] == {"cpu": "8", "other/gpu-core": "3"}
    with pytest.raises(NotFoundError):
        await sharing.device()
    assert (await compare(sharing.client, sharing.ledger)).differences == 0
    await sharing.share(offer(gpu(0)))
    assert (await sharing.device())["spec"]["devices"][0]["id"] == "GPU-0"


async def test_a_device_that_others_change_is_put_right_and_keeps_their_annotation(sharing: Sharing) -> None:
    await sharing.begin(gpu(0))
    right = (await sharing.device())["spec"]
    await sharing.client.merge_patch(DEVICES, NODE, {"metadata": {"annotations": CHECKPOINTS}, "spec": {"devices": []}})

    async def is_right() -> bool:
        return bool((await sharing.device())["spec"] == right)

    await eventually(is_right)
    assert (await sharing.device())["metadata"]["annotations"] == CHECKPOINTS
    await sharing.client.delete(DEVICES, NODE)

    async def is_back() -> bool:
        try:
            return bool((await sharing.device())["spec"] == right)
        except NotFoundError:
            return False

    await eventually(is_back)


async def test_a_device_shows_what_pods_have_without_an_allocation(
    ledger: JetStreamLedger, migrated_url: str, sharing: Sharing
) -> None:
    await enforce(ledger, migrated_url)
    await sharing.begin(gpu(0))
    assert "annotations" not in (await sharing.device())["metadata"]
    one = GpuCheckpoint(uid="u1", container="main", resource="nvidia.com/gpu", devices=("GPU-0",))
    await sharing.record(NodeGpuCheckpointsObserved(checkpoints=(one,)))
    await all_written(sharing.writer, sharing.ledger)
    text = (await sharing.device())["metadata"]["annotations"]["node.kooperator/gpu-checkpoints"]
    expected = {"podUID": "u1", "containerName": "main", "resourceName": "nvidia.com/gpu", "deviceIDs": ["GPU-0"]}
    assert json.loads(text) == [expected]
    assert (await compare(sharing.client, sharing.ledger)).differences == 0
    await sharing.client.merge_patch(DEVICES, NODE, {"metadata": {"annotations": CHECKPOINTS}})

    async def is_right() -> bool:
        return bool((await sharing.device())["metadata"]["annotations"]["node.kooperator/gpu-checkpoints"] == text)

    await eventually(is_right)
    await sharing.record(NodeGpuCheckpointsObserved())
    await all_written(sharing.writer, sharing.ledger)
    assert (await sharing.device())["metadata"]["annotations"] == CHECKPOINTS


async def test_nothing_remains_after_an_uninstallation(
    ledger: JetStreamLedger, database_url: str, client: KubeClient, ours: CountingClient
) -> None:
    async with status_writer(ledger, database_url, ours) as writer:
        sharing = Sharing(ledger, client, writer)
        await sharing.begin(gpu(0), NIC)
    done = await uninstall(client, "default")
    assert done.sharing == 1
    node = await sharing.node()
    assert (node["metadata"]["labels"], await sharing.resources()) == ({"own": "yes"}, {})
    assert node["status"]["allocatable"] == {"cpu": "7"}
    with pytest.raises(NotFoundError):
        await sharing.device()
    assert (await uninstall(client, "default")).sharing == 0


async def test_a_strange_device_is_a_difference(sharing: Sharing) -> None:
    await sharing.begin(gpu(0))
    strange = {"apiVersion": DEVICES.api_version, "kind": DEVICES.kind, "metadata": {"name": "w9"}}
    await sharing.client.create(DEVICES, strange)
    found = await compare(sharing.client, sharing.ledger)
    assert [one.key.id for one in found.first] == ["w9"]

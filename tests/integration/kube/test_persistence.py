"""What is in an API server is still there after a restart; how the embedded one keeps it."""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.edge.kube.client import open_client
from gpuledger.edge.kube.crds import install
from gpuledger.edge.kube.errors import GoneError
from gpuledger.local.kubeapi.persistence import ObjectsFileError
from gpuledger.local.kubeapi.running import OBJECTS, embedded_kube
from support.kube_equipped import equip, equipped_client
from support.kube_server import KubeServer

DEVICE = {"apiVersion": GPU_DEVICES.api_version, "kind": "GPUDevice", "metadata": {"name": "w1-0"}}


async def test_objects_and_their_types_survive_a_restart(kube: KubeServer) -> None:
    async with equipped_client(kube) as client:
        created = await client.create(GPU_DEVICES, DEVICE)
    await kube.stop()
    await kube.start()
    async with open_client(kube.kubeconfig) as client:
        await equip(kube, client)
        assert await client.get(GPU_DEVICES, "w1-0") == created
        other = await client.create(GPU_DEVICES, {**DEVICE, "metadata": {"name": "w1-1"}})
        assert version(other) > version(created)


async def test_a_watch_from_before_history_was_forgotten_has_to_list_again(kube: KubeServer) -> None:
    async with equipped_client(kube) as client:
        created = await client.create(GPU_DEVICES, DEVICE)
        await client.delete(GPU_DEVICES, "w1-0")
    await kube.forget_history()
    async with equipped_client(kube) as client:
        with pytest.raises(GoneError):
            async for _ in client.watch(GPU_DEVICES, resource_version=str(version(created))):
                pass


OWN_FILE = pytest.mark.embedded_only("it is about the file in which `gpuledger up` keeps its cluster")


@OWN_FILE
async def test_the_cluster_of_a_data_directory_is_kept_in_its_file(tmp_path: Path) -> None:
    async with embedded_kube(tmp_path) as api, open_client(api.kubeconfig) as client:
        await install(client)
        created = await client.create(GPU_DEVICES, DEVICE)
    async with embedded_kube(tmp_path) as api, open_client(api.kubeconfig) as client:
        assert await client.get(GPU_DEVICES, "w1-0") == created


@OWN_FILE
async def test_a_file_that_is_none_of_ours_is_said(tmp_path: Path) -> None:
    path = tmp_path / OBJECTS
    path.parent.mkdir()
    path.write_text("what is this?")
    with pytest.raises(ObjectsFileError, match=r"objects\.jsonl cannot be read .*Move it away and start again\."):
        async with embedded_kube(tmp_path):
            pass
    assert path.read_text() == "what is this?"


def version(obj: dict[str, Any]) -> int:
    """Its resourceVersion as a number."""
    return int(obj["metadata"]["resourceVersion"])

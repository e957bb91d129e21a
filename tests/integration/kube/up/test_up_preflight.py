"""`gpuledger up` with preflight checks: the file that a variable names is enough."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import CONFIG_MAPS, NAMESPACES, PODS
from gpuledger.api.preflight import ANNOTATION_GANG, ANNOTATION_INJECTED, LABEL_PREFLIGHT, gang_config_map
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import NotFoundError
from support.servers import short_directory
from support.up import Up, running_up
from support.waiting import eventually

pytestmark = pytest.mark.embedded_only("`gpuledger up` brings its own API server")

CONFIGURATION = """
checks:
  - {name: dcgm-diag, image: registry.example/gpuledger:1}
  - {name: nccl-allreduce, image: registry.example/gpuledger:1, requiresNetwork: false}
gangDiscovery: {method: labels, labels: {gangIdLabel: job, gangSizeLabel: size}}
namespaces: [training]
"""

Json = dict[str, Any]


def pod(name: str) -> Json:
    container = {"name": "main", "image": "train", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    metadata = {"name": name, "namespace": "training", "labels": {"job": "llama", "size": "2"}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


async def test_pods_get_their_checks_and_gangs_their_config_map(tmp_path: Path) -> None:
    file = tmp_path / "preflight.yaml"
    file.write_text(CONFIGURATION)
    with short_directory() as directory, running_up(directory, GPULEDGER_PREFLIGHT_FILE=str(file)) as up:
        await eventually(lambda: asyncio.to_thread(_answers, up))
        async with open_client(directory / "kubeconfig") as client:
            await _goes_through_its_checks(up, client)


async def _goes_through_its_checks(up: Up, client: KubeClient) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "training"}})
    made = await client.create(PODS, pod("train-0"))
    assert made["metadata"]["labels"][LABEL_PREFLIGHT] == "true"
    assert made["metadata"]["annotations"][ANNOTATION_INJECTED] == "dcgm-diag,nccl-allreduce"
    assert [one["name"] for one in made["spec"]["initContainers"]] == [
        "preflight-dcgm-diag",
        "preflight-nccl-allreduce",
    ]
    name = gang_config_map(made["metadata"]["annotations"][ANNOTATION_GANG])

    async def is_there() -> bool:
        try:
            return bool((await client.get(CONFIG_MAPS, name, "training"))["data"])
        except NotFoundError:
            return False

    await eventually(is_there)
    document = up.health().document["preflight"]
    assert isinstance(document, dict)
    assert document["coordinator"]["state"] == "writing"


def _answers(up: Up) -> bool:
    document = up.health().document["preflight"]
    return isinstance(document, dict) and document["webhook"]["state"] == "answering"


async def test_without_the_file_there_is_no_webhook() -> None:
    with short_directory() as directory, running_up(directory) as up:
        assert (await asyncio.to_thread(up.health)).document["preflight"] is None

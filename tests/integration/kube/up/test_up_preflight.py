"""`gpuledger up` with preflight checks: the file that a variable names is enough."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import CONFIG_MAPS, NAMESPACES, PODS
from gpuledger.api.preflight import ANNOTATION_GANG, ANNOTATION_INJECTED, LABEL_PREFLIGHT, gang_config_map
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.errors import NotFoundError
from support.servers import short_directory
from support.up import Up, gpuledger, running_up
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
    await _means_nothing_elsewhere(up, client)


async def _means_nothing_elsewhere(up: Up, client: KubeClient) -> None:
    """A pod that calls itself one with checks, and of the same gang, in a namespace that gets none."""
    await client.create(NAMESPACES, {"metadata": {"name": "elsewhere"}})
    pretending = pod("train-1")
    pretending["metadata"] |= {
        "namespace": "elsewhere",
        "labels": {LABEL_PREFLIGHT: "true"},
        "annotations": {ANNOTATION_INJECTED: "dcgm-diag", ANNOTATION_GANG: "mine"},
    }
    pretending["spec"]["initContainers"] = [{"name": "preflight-dcgm-diag", "image": "mine"}]
    await client.create(PODS, pretending)
    for name in ("train-2", "train-3"):  # what is recorded of these comes behind what would be of that one
        await client.create(PODS, pod(name))

    async def are_listed() -> bool:
        return {"training/train-2", "training/train-3"} <= set(await asyncio.to_thread(_listed, up))

    await eventually(are_listed)
    assert all(one.startswith("training/") for one in await asyncio.to_thread(_listed, up))
    with pytest.raises(NotFoundError):
        await client.get(CONFIG_MAPS, gang_config_map("mine"), "elsewhere")


def _listed(up: Up) -> list[str]:
    """The pods with checks that the ledger has."""
    return [one["pod"] for one in json.loads(gpuledger(up.data_dir, "preflight", "list", "-A", "-o", "json").stdout)]


def _answers(up: Up) -> bool:
    document = up.health().document["preflight"]
    return isinstance(document, dict) and document["webhook"]["state"] == "answering"


async def test_without_the_file_there_is_no_webhook() -> None:
    with short_directory() as directory, running_up(directory) as up:
        assert (await asyncio.to_thread(up.health)).document["preflight"] is None

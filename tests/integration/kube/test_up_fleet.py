"""`gpuledger up --fleet`: a fleet that Kubernetes clients can look at, all the way through the ledger."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuledger.kube import names
from gpuledger.kube.client import KubeClient, open_client
from support.up import DEADLINE_S, Up, gpuledger, running_up

pytestmark = pytest.mark.embedded_only("`gpuledger up --fleet` brings its own API server and refuses another")

NODES, GPUS = 3, 2
FLEET = ("--fleet", f"nodes={NODES},gpus={GPUS},profile=mixed", "--speed", "600", "--seed", "7")


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gl") as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def up(data_dir: Path) -> Iterator[Up]:
    with running_up(data_dir, *FLEET) as up:
        yield up


@pytest.fixture
async def client(up: Up) -> AsyncIterator[KubeClient]:
    async with open_client(up.data_dir / "kubeconfig") as client:
        yield client


async def becomes(condition: Callable[[], Awaitable[object]]) -> None:
    """Return when the condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not await condition():  # noqa: ASYNC110 - other processes get there
            await asyncio.sleep(0.05)


async def statuses(client: KubeClient) -> list[dict[str, Any]]:
    return [device.get("status", {}) for device in (await client.list(names.GPU_DEVICES)).items]


async def test_every_card_becomes_a_gpudevice_with_a_status(client: KubeClient) -> None:
    async def shown() -> bool:
        return sum("hardware" in status for status in await statuses(client)) == NODES * GPUS

    await becomes(shown)
    told = await statuses(client)
    assert len({status["hardware"]["uuid"] for status in told}) == NODES * GPUS
    assert {status["state"] for status in told} == {"Discovered"}


async def test_a_nodes_label_is_seen_in_the_status_of_its_devices(client: KubeClient) -> None:
    node = (await statuses(client))[0]["nodeName"]
    await client.merge_patch(names.NODES, node, {"metadata": {"labels": {"gpu.deckhouse.io/enabled": "false"}}})

    async def unmanaged() -> bool:
        return {one["managed"] for one in await statuses(client) if one["nodeName"] == node} == {False}

    await becomes(unmanaged)


async def test_the_ledger_answers_for_the_fleet(up: Up, client: KubeClient) -> None:
    async def known() -> bool:
        told = await asyncio.to_thread(gpuledger, up.data_dir, "get", "devices", "-o", "json")
        return len(json.loads(told.stdout)) >= NODES * GPUS

    await becomes(known)
    assert gpuledger(up.data_dir, "verify").returncode == 0


def test_no_fleet_is_made_up_in_a_real_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.up.SERVERS", frozenset({"NATS_URL", "DATABASE_URL"}))
    monkeypatch.setenv("KUBECONFIG", "/somewhere/config")
    told = gpuledger(tmp_path, "up", "--fleet", "nodes=1,gpus=1,profile=t4")
    assert told.returncode == 2
    assert told.stderr.decode() == (
        "Error: --fleet would make up Nodes in the cluster that KUBECONFIG names. "
        "Unset KUBECONFIG to use the embedded API server.\n"
    )


def test_a_fleet_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    told = gpuledger(tmp_path, "up", "--fleet", "nodes=many")
    assert (told.returncode, told.stdout) == (2, b"")
    assert b"--fleet" in told.stderr
    assert b"Traceback" not in told.stderr

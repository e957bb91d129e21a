"""What the commands that read Kubernetes print, to the letter, on a fleet that is always the same.

After an intended change: `GPULEDGER_UPDATE_GOLDEN=1 make test`, and read the difference.
"""

import asyncio
import os
from pathlib import Path

import pytest

from gpuledger.api.kinds import GPU_NODE_STATES
from gpuledger.api.labels import device_label
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.kube.crds import foreign, install, shipped
from support import servers
from support.cli import Cli
from support.kube import kube_api
from support.kube_fleet import (
    FACTS,
    NAME,
    SERIAL,
    UUID,
    create,
    create_device,
    create_event,
    label_like_nfd,
    publish,
)

TRANSCRIPT = Path(__file__).with_name("kube_transcript.txt")
UPDATE = "GPULEDGER_UPDATE_GOLDEN"

COMMANDS = (
    f"describe device {NAME}",
    f"describe device {UUID} --no-kube",
    "describe device nobody",
    "describe node w1",
    f"timeline device {SERIAL}",
    f"timeline device {UUID} --no-kube -o name",
    "timeline node w1",
    "get gpudevices -o name",
    f"get gpudev {NAME} nobody -o name",
    "get gpunodestates --selector rack=none",
    "get gpunodestates --at 2026-01-01",
    "get nodes --kube -o name",
    "get nodes -o name",
    "nfd coverage",
)


async def test_transcript(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    cli = Cli(capsys)
    with servers.nats_server() as nats:
        monkeypatch.setenv("NATS_URL", nats.url)
        monkeypatch.setenv("DATABASE_URL", database_url)
        await publish(nats.url, FACTS)
        async with kube_api(tmp_path) as api, open_client(api.kubeconfig) as client:
            monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig))
            await populate(client)
            assert (await asyncio.to_thread(cli, "migrate")).code == 0
            transcript = "".join([await shown(cli, command) for command in COMMANDS])
    if os.environ.get(UPDATE):
        TRANSCRIPT.write_text(transcript)
    assert transcript == TRANSCRIPT.read_text()


async def populate(client: KubeClient) -> None:
    """The same card in Kubernetes, and a node beside it whose labels are wrong."""
    await install(client, (*shipped(), *foreign()))
    since = "2026-01-01T01:00:00Z"
    condition = {"type": "InventoryComplete", "status": "True", "reason": "AllDevicesDescribed"}
    managed = {"type": "ManagedDisabled", "status": "False", "reason": "Enabled", "lastTransitionTime": since}
    hardware = {
        "uuid": UUID,
        "product": "NVIDIA H200",
        "pci": {"vendor": "10de", "device": "2335", "class": "0302", "address": "0000:17:00.0"},
        "memoryMiB": 144384,
        "computeCapability": {"major": 9, "minor": 0},
        "mig": {"capable": True, "strategy": "none", "profilesSupported": ["1g.18gb", "7g.141gb"]},
    }
    await create_device(client, NAME, hardware=hardware, conditions=[managed])
    await create(client, GPU_NODE_STATES, {"metadata": {"name": "w1"}, "spec": {"nodeName": "w1"}})
    status = {"hw": {"present": True}, "conditions": [{**condition, "lastTransitionTime": since}]}
    await client.merge_patch(GPU_NODE_STATES, "w1", {"status": status}, subresource="status")
    await label_like_nfd(client, "w1")
    await label_like_nfd(client, "w2", **{device_label(0, "device"): "2336", device_label(1, "class"): "0302"})
    await create_event(client, "GPUDevice", NAME, "GPUDeviceDetected", "2026-01-01T01:00:05Z")
    await create_event(client, "Node", "w1", "Rebooted", "2026-01-01T02:30:00Z")


async def shown(cli: Cli, command: str) -> str:
    """The command and what came of it."""
    result = await asyncio.to_thread(cli, *command.split())
    code = f"[exit code {result.code}]\n" if result.code else ""
    return f"$ gpuledger {command}\n{result.out}{result.err}{code}\n"

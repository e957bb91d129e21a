"""MachineConfigs, their pools and the Nodes that get them, on an API server: the ledger ends up true."""

from functools import partial
from typing import Any

from gpuledger.api.kinds import CRDS, MACHINE_CONFIG_POOLS, MACHINE_CONFIGS, NODES
from gpuledger.api.machine_config import (
    ANNOTATION_CURRENT,
    ANNOTATION_DESIRED,
    ANNOTATION_PINNED,
    ANNOTATION_STATE,
)
from gpuledger.domain.machineconfig.canonical_files import checked_content
from gpuledger.edge.kube.client import KubeClient, open_client
from gpuledger.edge.watchers.resources import machineconfigpools, machineconfigs, nodemachines
from gpuledger.events.envelope import decode
from gpuledger.events.machine_config import MachineConfigDefined, MachineConfigPoolDefined, NodeMachineObserved
from gpuledger.ledger.api import Ledger
from gpuledger.ledger.jetstream import JetStreamLedger
from support.kube_equipped import equip
from support.kube_fleet import create
from support.kube_server import NewKube
from support.ledgers import everything
from support.watching import comes_of, watching

comes = partial(comes_of, (machineconfigs.KIND, machineconfigpools.KIND, nodemachines.KIND))


async def payloads(ledger: Ledger, kind: type[Any]) -> list[Any]:
    found = [decode(message.data).data for message in await everything(ledger)]
    return [one for one in found if isinstance(one, kind)]


async def put(client: KubeClient, content: str) -> None:
    spec = {"files": [{"path": "/etc/a", "content": content}]}
    await client.apply(MACHINE_CONFIGS, {"metadata": {"name": "a"}, "spec": spec})


async def test_configs_and_pools_are_defined_changed_and_gone(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await put(client, "one")
    config, pool = "machineconfig a defined", "machineconfigpool worker defined"
    async with watching(client, ledger, database_url):
        await comes(ledger, config)
        await put(client, "two")
        await comes(ledger, config, config)
        await client.apply(MACHINE_CONFIG_POOLS, {"metadata": {"name": "worker"}, "spec": {"nodeSelector": {}}})
        await comes(ledger, config, config, pool)
        await client.merge_patch(MACHINE_CONFIG_POOLS, "worker", {"status": {"machineCount": 3}}, subresource="status")
        annotations = {"annotations": {ANNOTATION_PINNED: "rendered-worker-a1b2c3d4e5"}}
        await client.merge_patch(MACHINE_CONFIG_POOLS, "worker", {"metadata": annotations})
        await comes(ledger, config, config, pool, pool)
        await client.delete(MACHINE_CONFIGS, "a")
        await client.delete(MACHINE_CONFIG_POOLS, "worker")
        gone = ("machineconfig a gone", "machineconfigpool worker gone")
        await comes(ledger, config, config, pool, pool, *gone)
    defined = await payloads(ledger, MachineConfigDefined)
    assert [checked_content(one.files[0]) for one in defined] == ["one", "two"]
    pinned = [one.pinned_revision for one in await payloads(ledger, MachineConfigPoolDefined)]
    assert pinned == [None, "rendered-worker-a1b2c3d4e5"]


async def test_nodes_are_observed_as_their_agents_say(
    client: KubeClient, ledger: JetStreamLedger, database_url: str
) -> None:
    await create(client, NODES, {"metadata": {"name": "w1"}})
    line = "node w1 machine-observed"
    async with watching(client, ledger, database_url):
        await comes(ledger, line)
        await client.merge_patch(NODES, "w1", {"metadata": {"annotations": {ANNOTATION_DESIRED: "r"}}})
        reported = {ANNOTATION_CURRENT: "r", ANNOTATION_STATE: "done"}
        await client.merge_patch(NODES, "w1", {"metadata": {"annotations": reported}})
        await comes(ledger, line, line)
        await client.merge_patch(NODES, "w1", {"spec": {"unschedulable": True}})
        await comes(ledger, line, line, line)
        await client.delete(NODES, "w1")
        await comes(ledger, line, line, line, "node w1 machine-gone")
    observed = await payloads(ledger, NodeMachineObserved)
    assert [(one.current_revision, one.agent_state, one.unschedulable) for one in observed] == [
        (None, None, False), ("r", "done", False), ("r", "done", True),
    ]  # fmt: skip
    assert len({one.created for one in observed}) == 1


async def test_kinds_that_are_not_installed_are_waited_for(
    new_kube: NewKube, ledger: JetStreamLedger, database_url: str
) -> None:
    """Clusters without machine configuration are served as before, and followed once they have it."""
    bare = await new_kube()
    async with open_client(bare.kubeconfig) as client, watching(client, ledger, database_url):
        await create(client, NODES, {"metadata": {"name": "w1"}})
        await comes(ledger, "node w1 machine-observed")
        await equip(bare, client)
        await put(client, "one")
        await comes(ledger, "node w1 machine-observed", "machineconfig a defined")
        await client.delete(CRDS, MACHINE_CONFIGS.full_name)
        await comes(ledger, "node w1 machine-observed", "machineconfig a defined", "machineconfig a gone")

"""What the process of an agent of machine configuration asks of an API server, held against the role of the chart.

The role is proved both ways: whatever is asked is allowed, and nothing is allowed that nothing asked needs.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuledger.api.kinds import NODES, RENDERED_MACHINE_CONFIGS
from gpuledger.api.machine_config import ANNOTATION_CURRENT, ANNOTATION_DESIRED, ANNOTATION_STATE
from gpuledger.domain.machineconfig.rendered_object import document_of
from gpuledger.edge.kube.client import KubeClient
from support.chart import NAMESPACE, needs_helm, render
from support.chart_cluster import Cluster
from support.config_agent import config, file
from support.kube_accounts import config_file
from support.kube_fleet import create
from support.rights import beyond, granted, unused
from support.up import DEADLINE_S
from support.waiting import eventually

pytestmark = needs_helm

AGENT = "machine-config-agent"
OWN, OTHER = "w1", "w2"
COMMAND = (sys.executable, "-m", "gpuledger.configagent")


@asynccontextmanager
async def agent(cluster: Cluster, directory: Path, node: str, token_node: str) -> AsyncIterator[Path]:
    """The agent of a node, with a token of a pod that runs on `token_node`; the node's root is a folder."""
    root = directory / "host"
    (root / "etc").mkdir(parents=True)
    kubeconfig = config_file(directory, cluster.client.url, f"{NAMESPACE}:{AGENT}@{token_node}")
    environ = {"NODE_NAME": node, "GPULEDGER_HOST_ROOT": str(root), "KUBECONFIG": str(kubeconfig)}
    process = await asyncio.create_subprocess_exec(*COMMAND, env=environ)
    try:
        yield root
        assert process.returncode is None
    finally:
        process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            await process.wait()


async def annotations(client: KubeClient, node: str) -> dict[str, str]:
    found: dict[str, str] = (await client.get(NODES, node))["metadata"].get("annotations") or {}
    return found


async def installed(cluster: Cluster, values: dict[str, Any]) -> str:
    """The release with agents, two nodes, and a configuration that both are to have."""
    result = await cluster.helm("install", values)
    assert result.code == 0, result
    desired = config([file("/etc/gpuledger.conf", "one\n")])
    await create(cluster.client, RENDERED_MACHINE_CONFIGS, document_of(desired))
    for node in (OWN, OTHER):
        metadata = {"name": node, "annotations": {ANNOTATION_DESIRED: desired.name}}
        await create(cluster.client, NODES, {"metadata": metadata})
    return desired.name


async def is_done(client: KubeClient, name: str) -> bool:
    found = await annotations(client, OWN)
    return (found.get(ANNOTATION_STATE), found.get(ANNOTATION_CURRENT)) == ("done", name)


@pytest.mark.long
async def test_an_agent_needs_just_the_rights_of_its_role(
    cluster: Cluster, values: dict[str, Any], tmp_path: Path
) -> None:
    values |= {"machineConfig": {"enabled": True}}
    name = await installed(cluster, values)
    async with agent(cluster, tmp_path, OWN, OWN) as root:
        await eventually(partial(is_done, cluster.client, name))
        assert (root / "etc" / "gpuledger.conf").read_text() == "one\n"
    requested, rules = cluster.requested_by(AGENT), granted(render(values), AGENT)
    assert (beyond(requested, rules), unused(requested, rules)) == (set(), set())
    assert cluster.server.refused == []


@pytest.mark.long
async def test_an_agent_that_says_it_is_another_node_writes_nothing_there(
    cluster: Cluster, values: dict[str, Any], tmp_path: Path
) -> None:
    await installed(cluster, values | {"machineConfig": {"enabled": True}})
    before = await annotations(cluster.client, OTHER)

    async def is_refused() -> bool:
        return any("NotItsOwnNode" in one for one in cluster.server.refused)

    async with agent(cluster, tmp_path, OTHER, OWN):
        await eventually(is_refused)
    assert await annotations(cluster.client, OTHER) == before

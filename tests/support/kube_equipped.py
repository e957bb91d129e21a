"""Clients of API servers that serve every kind that the product uses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpuledger.api.kinds import (
    CLUSTER_GPU_POOLS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MACHINE_CONFIG_POOLS,
    MACHINE_CONFIGS,
    MODULE_CONFIGS,
    NODE_FEATURE_RULES,
    NODE_FEATURES,
    RENDERED_MACHINE_CONFIGS,
    RESOURCE_SLICE_STATUSES,
    shared_devices,
)
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.client import KubeClient, open_client
from support.kube_http import api_of
from support.kube_server import KubeServer
from support.waiting import eventually

KINDS = (
    GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, CLUSTER_GPU_POOLS, RESOURCE_SLICE_STATUSES, NODE_FEATURES,
    NODE_FEATURE_RULES, MODULE_CONFIGS, MACHINE_CONFIGS, MACHINE_CONFIG_POOLS, RENDERED_MACHINE_CONFIGS,
    shared_devices(),
)  # fmt: skip


@asynccontextmanager
async def equipped_client(server: KubeServer) -> AsyncIterator[KubeClient]:
    """A client of a server that has every CRD."""
    async with open_client(server.kubeconfig) as client:
        await equip(server, client)
        yield client


async def equip(server: KubeServer, client: KubeClient) -> None:
    """Install every CRD, and wait until each kind can be watched."""
    await crds.install(client, crds.shipped() + crds.foreign())
    async with api_of(server) as api:

        async def is_served() -> bool:
            return all([await api.is_watched(kind.path()) for kind in KINDS])

        await eventually(is_served)

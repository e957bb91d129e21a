"""Removes from a cluster what gpuledger keeps there and nobody else would remove, once its services have ended.

What people made stays: their pools can be deleted from then on, because nothing waits for gpuledger to let go of them.
The ledger, the CRDs and the objects of their kinds stay as well. Services that still run in the cluster would put
everything back.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple

from gpuledger.api.bundled import PARTS, BundledServers
from gpuledger.api.kinds import (
    CA_SECRET,
    CLUSTER_GPU_POOLS,
    CONTROLLER_TLS_SECRET,
    DAEMON_SETS,
    FIELD_MANAGER,
    GPU_POOLS,
    MANAGED_BY,
    NODES,
    PREFLIGHT_TLS_SECRET,
    SECRETS,
    Resource,
    shared_devices,
)
from gpuledger.api.labels import LABEL_DETECTED, POOL_FINALIZER
from gpuledger.api.machine_config import DESIRED_ANNOTATIONS, OBSERVED_ANNOTATIONS
from gpuledger.api.sharing import SharingNames
from gpuledger.edge.admission.webhook_configuration import CONFIGURATIONS as ADMISSION
from gpuledger.edge.kube.client import ALL, KubeClient, Object, Selection
from gpuledger.edge.kube.errors import ConflictError, InvalidError, KubeError, NotFoundError
from gpuledger.edge.preflight.webhook_configuration import CONFIGURATIONS as PREFLIGHT
from gpuledger.edge.statuswriter.fields import owned_annotations
from gpuledger.edge.statuswriter.node_resources import ALWAYS_OURS
from gpuledger.edge.statuswriter.objects import NAMES
from gpuledger.edge.webhooks.certificates.rotation import remove_webhooks

OUR_DAEMON_SETS: Final = f"app.kubernetes.io/managed-by={MANAGED_BY}"
OUR_SECRETS: Final = (CA_SECRET, CONTROLLER_TLS_SECRET, PREFLIGHT_TLS_SECRET)
CONFIGURING: Final = (*DESIRED_ANNOTATIONS, *OBSERVED_ANNOTATIONS)
OBJECTS_AT_ONCE: Final = 16
"""How many pools or Nodes are changed at a time."""


class WebhookService(StrEnum):
    """The services that have webhooks."""

    ADMISSION = "admission"
    PREFLIGHT = "preflight"


_CONFIGURATIONS: Final = {WebhookService.ADMISSION: ADMISSION, WebhookService.PREFLIGHT: PREFLIGHT}

RELEASE_TRIES_MAX: Final = 5
"""How often a pool is read again because somebody else changed it meanwhile."""


class Uninstalled(NamedTuple):
    """What was removed, the pools whose finalizer was, and how many pools remain; pools as `NAMESPACE/NAME`.

    `servers` are those that the release brought, if any, and `nodes` counts those that lost our label. `sharing` counts
    those that share nothing any more, `configured` those that are configured no more; their files stay as they are.
    """

    removed: tuple[str, ...]
    released: tuple[str, ...]
    pools: int
    servers: BundledServers | None = None
    nodes: int = 0
    sharing: int = 0
    configured: int = 0


async def uninstall(
    client: KubeClient, namespace: str, servers: BundledServers | None = None, sharing: SharingNames = NAMES
) -> Uninstalled:
    """Remove what gpuledger keeps in a cluster; `namespace` is the one that it ran in. It can be repeated.

    The logins of `servers` that the release brought go as well; their data stay.

    Raises:
        KubeError: the API server cannot be used, or does not let us.
    """
    removed = await remove_hooks(client)
    removed += [f"DaemonSet {name}" for name in await _remove_daemon_sets(client, namespace)]
    secrets = (*OUR_SECRETS, *(servers.secret(part) for part in PARTS)) if servers else OUR_SECRETS
    removed += [f"Secret {name}" for name in secrets if await _removed(client, SECRETS, name, namespace)]
    found = [(kind, pool) for kind in (GPU_POOLS, CLUSTER_GPU_POOLS) for pool in await _pools(client, kind)]
    at_once = asyncio.Semaphore(OBJECTS_AT_ONCE)
    released = await asyncio.gather(*(_release(client, kind, pool, at_once) for kind, pool in found))
    names = [_name(pool) for (_, pool), was_released in zip(found, released, strict=True) if was_released]
    unlabelled = await _unlabel(client, at_once)
    shared = await _unshare(client, at_once, sharing)
    configured = await _release_configured(client, at_once)
    return Uninstalled(tuple(removed), tuple(names), len(found), servers, unlabelled, shared, configured)


async def remove_hooks(client: KubeClient, services: Iterable[WebhookService] = WebhookService) -> list[str]:
    """Delete the webhook configurations of services; returns the kinds of those that existed.

    Raises:
        KubeError: the API server cannot be used, or does not let us.
    """
    return await remove_webhooks(client, [one for service in services for one in _CONFIGURATIONS[service]])


def report(done: Uninstalled) -> Iterator[str]:
    """What to say about it, in lines: what was removed, and what remains."""
    yield f"Removed: {', '.join(done.removed) or 'nothing'}."
    if done.nodes:
        yield f"Removed from {done.nodes} Nodes: the label {LABEL_DETECTED}."
    if done.sharing:
        yield f"Removed from {done.sharing} Nodes: the resources and the model of shared devices; and their Devices."
    if done.configured:
        yield f"Removed from {done.configured} Nodes: the annotations of their configuration; what it made there stays."
    if done.released:
        yield f"Released, so that they can be deleted: {', '.join(done.released)}."
    yield f"Remaining in Kubernetes: {done.pools} pools, the CRDs with all objects of their kinds, the NodeFeatureRule,"
    yield "and the ConfigMap that names the cluster's ledger; docs/installing.md has the commands that remove them."
    if done.servers is None:
        yield "Remaining elsewhere: the ledger in NATS, the database, and the partitions that agents made on nodes."
        return
    yield f"Remaining in namespace {done.servers.namespace}: the PersistentVolumeClaims that begin with"
    yield f"data-{done.servers.name}-, which hold the ledger and the database; a release of the same name goes on with"
    yield f"them. Three PostgreSQL servers have the ConfigMaps that begin with {done.servers.name}-postgres- as well."
    yield "Remaining elsewhere: the partitions that agents made on nodes."


async def _remove_daemon_sets(client: KubeClient, namespace: str) -> list[str]:
    found = (await client.list(DAEMON_SETS, Selection(namespace, OUR_DAEMON_SETS))).items
    names = [one["metadata"]["name"] for one in found]
    return [name for name in names if await _removed(client, DAEMON_SETS, name, namespace)]


async def _unlabel(client: KubeClient, at_once: asyncio.Semaphore) -> int:
    """Remove our label from all Nodes; returns how many had it."""
    nodes = (await client.list(NODES, Selection(labels=LABEL_DETECTED))).items

    async def unlabel(node: Object) -> None:
        async with at_once:
            with suppress(NotFoundError):  # the Node is gone, and its label with it
                await client.merge_patch(
                    NODES, node["metadata"]["name"], {"metadata": {"labels": {LABEL_DETECTED: None}}}
                )

    await asyncio.gather(*map(unlabel, nodes))
    return len(nodes)


async def _release_configured(client: KubeClient, at_once: asyncio.Semaphore) -> int:
    """Remove the annotations of machine configuration from Nodes that have some of ours; returns how many had.

    Those that the agents wrote go as well: nobody is left to keep them true.
    """
    names = await client.collect(NODES, _configured)
    nothing = {"metadata": {"annotations": dict.fromkeys(CONFIGURING)}}

    async def release(name: str) -> None:
        async with at_once:
            with suppress(NotFoundError):  # the Node is gone, and its annotations with it
                await client.merge_patch(NODES, name, nothing)

    found = [name for name in names.items if name is not None]
    await asyncio.gather(*map(release, found))
    return len(found)


def _configured(node: Object) -> str | None:
    """The Node's name; None where no service or agent of ours wrote an annotation about its configuration."""
    metadata = node["metadata"]
    is_ours = not owned_annotations(metadata, FIELD_MANAGER).keys().isdisjoint(CONFIGURING)
    return str(metadata["name"]) if is_ours else None


async def _unshare(client: KubeClient, at_once: asyncio.Semaphore, sharing: SharingNames) -> int:
    """Remove from Nodes what they show of shared devices, and the Devices; returns how many Nodes had any."""
    kind = shared_devices(sharing.group)
    devices = {one["metadata"]["name"]: one for one in await _pools(client, kind)}
    nodes = {
        one["metadata"]["name"]: one for one in (await client.list(NODES, Selection(labels=sharing.gpu_model))).items
    }
    await asyncio.gather(
        *(_unshare_node(client, at_once, sharing, name, devices.get(name)) for name in devices.keys() | nodes.keys())
    )
    for name in devices:
        await _removed(client, kind, name, None)
    return len(devices.keys() | nodes.keys())


async def _unshare_node(
    client: KubeClient, at_once: asyncio.Semaphore, sharing: SharingNames, name: str, device: Object | None
) -> None:
    listed = ((device or {}).get("spec") or {}).get("devices") or ()
    ours = {sharing.resource(short) for short in ALWAYS_OURS} | {key for one in listed for key in one["resources"]}
    nothing = dict.fromkeys(sorted(ours))
    async with at_once:
        with suppress(NotFoundError):  # the Node is gone, and all that it showed with it
            await client.merge_patch(NODES, name, {"metadata": {"labels": {sharing.gpu_model: None}}})
            status = {"status": {"capacity": nothing, "allocatable": nothing}}
            await client.merge_patch(NODES, name, status, subresource="status")


async def _removed(client: KubeClient, resource: Resource, name: str, namespace: str | None) -> bool:
    try:
        await client.delete(resource, name, namespace)
    except NotFoundError:
        return False
    return True


async def _pools(client: KubeClient, resource: Resource, selection: Selection = ALL) -> list[Object]:
    try:
        return (await client.list(resource, selection)).items
    except NotFoundError:  # the CRD is gone, and its objects with it
        return []


async def _release(client: KubeClient, resource: Resource, pool: Object, at_once: asyncio.Semaphore) -> bool:
    """Remove our finalizer from a pool, and nothing else; false where it has none."""
    metadata = pool["metadata"]
    same = Selection(metadata.get("namespace"), fields=f"metadata.name={metadata['name']}")
    async with at_once:
        now = [pool]
        for _ in range(RELEASE_TRIES_MAX):
            finalizers = now[0]["metadata"].get("finalizers") or [] if now else []
            if POOL_FINALIZER not in finalizers:
                return False
            operations = _without(finalizers.index(POOL_FINALIZER))
            with suppress(ConflictError, InvalidError, NotFoundError):
                await client.json_patch(resource, metadata["name"], operations, same.namespace)
                return True
            now = await _pools(client, resource, same)
    raise KubeError(f"Others changed the pool {_name(pool)} {RELEASE_TRIES_MAX} times meanwhile. Try again.")


def _without(place: int) -> list[Object]:
    path = f"/metadata/finalizers/{place}"
    return [{"op": "test", "path": path, "value": POOL_FINALIZER}, {"op": "remove", "path": path}]


def _name(pool: Object) -> str:
    metadata = pool["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))

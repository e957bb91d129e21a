"""`gpuledger describe`: one page about one device, node, slice or pool of any kind, from the ledger and Kubernetes.

The ledger's part needs no API server; where Kubernetes could not be asked, the page says why. Nodes and slices need no
ledger either.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.cli.backend import open_backend
from gpuledger.cli.commands.timeline import KINDS, NoKube
from gpuledger.cli.describe.config_pool import config_pool_page, read_config_pool, read_config_pool_events
from gpuledger.cli.describe.device import device_page, read_device, read_device_objects
from gpuledger.cli.describe.node import (
    NodeDescription,
    node_page,
    read_node,
    read_node_objects,
    unrecorded_node,
)
from gpuledger.cli.describe.pool import PoolObjects, pool_page, read_pool, read_pool_objects
from gpuledger.cli.describe.slice import (
    SliceObjects,
    read_node_resources,
    read_slice,
    read_slice_objects,
    resources_tree,
    slice_page,
    status_of,
)
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.config_nouns import MACHINE_CONFIG_POOLS
from gpuledger.cli.get.nouns import DEVICES, NODES, noun_of, pool_name
from gpuledger.cli.options import At, Context, DataDir, Kubeconfig
from gpuledger.cli.render.page import Page
from gpuledger.cli.run import run
from gpuledger.cli.state_source import open_source, show_notes
from gpuledger.cli.times import format_time, parse_time
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.runtime.clock import system_clock
from gpuledger.tools.cluster import KubeAccess, KubeReply, if_reachable, object_or_none
from gpuledger.tools.explain.access import namespaces_in, readable
from gpuledger.tools.queries.backend import bring_current
from gpuledger.tools.queries.pool_name import PoolName
from gpuledger.tools.queries.source import LedgerSource, StateSource

T = TypeVar("T")

NO_KUBE = "--no-kube leaves it out."
PAST = "Kubernetes has no past."
SLICE_KIND = "slice"
POOL_KIND = "pool"
CONFIG_POOL_KIND = MACHINE_CONFIG_POOLS.view.kind
CONFIG_POOL_NAMES = (MACHINE_CONFIG_POOLS.view.kinds, *MACHINE_CONFIG_POOLS.aliases)
DESCRIBED = (*KINDS, SLICE_KIND, POOL_KIND, CONFIG_POOL_KIND)
SLICE_NAMES = (SLICE_KIND, "slices", *(f"resourceslice{end}" for end in ("", "s", "s.resource.k8s.io")))

Kind = Annotated[
    str,
    typer.Argument(
        help=f"One of {', '.join(DESCRIBED)}.",
        autocompletion=lambda: list(DESCRIBED),
        show_default=False,
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        help="A device by serial number, UUID or GPUDevice; a node, slice or pool of any kind by name.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace of a GPUPool.", show_default="any that has the name"),
]


def describe(
    kind: Kind,
    name: Name,
    namespace: Namespace = None,
    at: At = None,
    no_kube: NoKube = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Show one device, node, slice or pool of any kind on one page: its facts, its state, and what happened to it.

    --at shows a slice as it was in the past, from the ledger alone.
    """
    access = None if no_kube else KubeAccess(kubeconfig, context, data_dir)
    if kind.lower() in SLICE_NAMES:
        when = None if at is None else parse_time(at, system_clock())
        _show(run(_slice(name.removeprefix(f"{SLICE_KIND}/"), when, data_dir, access)), SLICE_KIND, name)
        return
    if at is not None:
        raise CliError("--at is for slices", "Ask `gpuledger timeline` for the past of others", ExitCode.USAGE)
    pool = pool_name(kind, name, namespace)
    if pool is not None:
        _show(run(_pool(pool, data_dir, access)), POOL_KIND, name)
        return
    if namespace is not None:
        raise CliError("--namespace is for pools", "Leave it out", ExitCode.USAGE)
    if kind.lower() in CONFIG_POOL_NAMES:
        _show(run(_config_pool(name.removeprefix(f"{CONFIG_POOL_KIND}/"), data_dir, access)), CONFIG_POOL_KIND, name)
        return
    noun = noun_of(kind, DESCRIBED)
    if noun not in (DEVICES, NODES):
        hint = f"Ask for a {', '.join(DESCRIBED[:-1])} or {DESCRIBED[-1]}"
        raise CliError(f"{noun.view.kinds.capitalize()} have no page", hint, ExitCode.USAGE)
    page = run(_device(name, data_dir, access) if noun is DEVICES else _node(name, data_dir, access))
    _show(page, noun.view.kind, name)


def _show(page: Page | None, kind: str, name: str) -> None:
    if page is None:
        raise CliError(f"{kind} {name!r} was not found", f"List them with `gpuledger get {kind}s`")
    page.show()


async def _device(name: str, data_dir: DataDir, access: KubeAccess | None) -> Page | None:
    async with open_backend(data_dir, "describe", asks=True) as backend:
        await bring_current(backend)
        facts = await read_device(backend, name)
        if facts is None:
            uuid = await _uuid_of(name, access)
            facts = await read_device(backend, uuid) if uuid else None
    if facts is None:
        return None
    found = facts
    return device_page(found, await _reply(access, lambda client: read_device_objects(client, found)))


async def _node(name: str, data_dir: DataDir, access: KubeAccess | None) -> Page | None:
    async with open_source(data_dir, "describe", access) as source:
        facts = await _recorded_node(source, name)
        resources = await read_node_resources(source, name)
        show_notes(source)
    reply = await _reply(access, lambda client: read_node_objects(client, name))
    if not facts.exists and not resources.pools and not (reply.value and reply.value.exists):
        return None
    return node_page(facts, reply, resources_tree(resources, await readable(access, resources.namespaces)))


async def _recorded_node(source: StateSource, name: str) -> NodeDescription:
    if not isinstance(source, LedgerSource):
        return unrecorded_node(name)
    await bring_current(source.backend)
    return await read_node(source.backend, name)


async def _slice(name: str, at: datetime | None, data_dir: DataDir, access: KubeAccess | None) -> Page | None:
    past = None if at is None else format_time(at)
    async with open_source(data_dir, "describe", access, at=past) as source:
        facts = await read_slice(source, name, at)
        show_notes(source)
    if facts is None:
        return None
    reply: KubeReply[SliceObjects] = KubeReply(None, PAST)
    if at is None:
        reply = await _reply(access, lambda client: read_slice_objects(client, name))
    namespaces = namespaces_in(status_of(facts, reply)[1])
    return slice_page(facts, reply, await readable(access, namespaces))


async def _pool(name: PoolName, data_dir: DataDir, access: KubeAccess | None) -> Page | None:
    async with open_backend(data_dir, "describe", asks=True) as backend:
        facts = await read_pool(backend, name)
    if facts is None:
        return None
    pool = facts.row.subject
    reply: KubeReply[PoolObjects] = await _reply(access, lambda client: read_pool_objects(client, pool))
    return pool_page(facts, reply)


async def _config_pool(name: str, data_dir: DataDir, access: KubeAccess | None) -> Page | None:
    async with open_backend(data_dir, "describe", asks=True) as backend:
        facts = await read_config_pool(backend, name)
    if facts is None:
        return None
    return config_pool_page(facts, await _reply(access, lambda client: read_config_pool_events(client, name)))


async def _uuid_of(name: str, access: KubeAccess | None) -> str | None:
    """The UUID of a GPUDevice that Kubernetes has, and the ledger under another name."""
    reply: KubeReply[Object | None] = await _reply(access, lambda client: object_or_none(client, GPU_DEVICES, name))
    status = (reply.value or {}).get("status") or {}
    return (status.get("hardware") or {}).get("uuid")


async def _reply(access: KubeAccess | None, request: Callable[[KubeClient], Awaitable[T]]) -> KubeReply[T]:
    return KubeReply(None, NO_KUBE) if access is None else await if_reachable(access, request)

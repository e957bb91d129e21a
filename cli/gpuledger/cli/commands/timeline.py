"""`gpuledger timeline`: everything that happened to one device, node or pool of any kind, in the order of its times.

Events of the ledger and Events of Kubernetes stand in one table; the source tells which is which.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.config_nouns import MACHINE_CONFIG_POOLS
from gpuledger.cli.get.noun import Noun
from gpuledger.cli.get.nouns import DEVICES, NODES, noun_of, pool_name
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.render.values import cell
from gpuledger.cli.run import run
from gpuledger.tools.cluster import KubeAccess, KubeEvent, KubeReply, events_about, if_reachable
from gpuledger.tools.queries.pool_name import PoolName
from gpuledger.tools.timeline import (
    Timeline,
    config_pool_timeline,
    device_timeline,
    in_order,
    kube_row,
    node_timeline,
    pool_timeline,
)

KINDS = (DEVICES.view.kind, NODES.view.kind)
POOL_KIND = "pool"

FIELDS_SHOWN = 8
"""Entries of a mapping within an event that a table shows; the other formats show all."""


def _detail(detail: object) -> str:
    """An event's data on one line, without empty values.

    A list of mappings and a large mapping appear as the number of their entries, conditions as type and status. An
    event that has a sentence shows that.
    """
    assert isinstance(detail, Mapping)
    if (summary := detail.get("summary")) is not None:
        return cell(summary, Column("detail"))
    return cell({key: _brief(value) for key, value in _non_empty(detail).items()}, Column("detail"))


def _non_empty(data: Mapping[str, object]) -> dict[str, object]:
    """The values that are not empty, and do not only hold empty ones."""
    kept = {key: _non_empty(value) if isinstance(value, Mapping) else value for key, value in data.items()}
    return {key: value for key, value in kept.items() if value not in ("", [], {})}


def _brief(value: object) -> object:
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "status" in item for item in value):
        return [f"{item.get('type')}={item['status']}" for item in value]
    is_list_of_things = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
    is_large = isinstance(value, Mapping) and len(value) > FIELDS_SHOWN
    return f"({len(value)})" if (is_list_of_things or is_large) and isinstance(value, list | Mapping) else value


_TIME, _EVENT, _ABOUT = Column("time"), Column("event"), Column("about")
_REST = (
    Column("slot"),
    Column("detail", format=_detail, wraps=True),
    Column("source"),
    Column("position"),
    Column("recorded", "recorded_at", wide=True),
    Column("id", "event_id", wide=True),
)
DEVICE_VIEW = View("event", (_TIME, _EVENT, *_REST), "event_id")
NODE_VIEW = View("event", (_TIME, _EVENT, _ABOUT, *_REST), "event_id")

Kind = Annotated[
    str,
    typer.Argument(
        help="One of device, node, pool, machineconfigpool.",
        autocompletion=lambda: [*KINDS, POOL_KIND, MACHINE_CONFIG_POOLS.view.kind],
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace of a GPUPool.", show_default="any that has the name"),
]
NoKube = Annotated[bool, typer.Option("--no-kube", help="Do not read from Kubernetes.")]


def timeline(
    kind: Kind,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A device by serial number, UUID or GPUDevice; a node or MachineConfigPool by name; a pool by "
            "NAMESPACE/NAME or NAME.",
            show_default=False,
        ),
    ],
    namespace: Namespace = None,
    no_kube: NoKube = False,
    output: OutputFormat = Output.TABLE,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    data_dir: DataDir = None,
) -> None:
    """Show everything that happened to a device, node or pool of any kind, in order, with the Events of Kubernetes."""
    pool = pool_name(kind, name, namespace)
    is_config_pool = kind.lower() in (MACHINE_CONFIG_POOLS.view.kinds, *MACHINE_CONFIG_POOLS.aliases)
    if pool is None and namespace is not None:
        raise CliError("--namespace is for pools", "Leave it out", ExitCode.USAGE)
    noun = None if pool is not None else MACHINE_CONFIG_POOLS if is_config_pool else _noun(kind)
    rows, objects = run(_timeline(noun, name, pool, data_dir))
    events: KubeReply[list[KubeEvent]] = KubeReply([])
    if objects and not no_kube:
        access = KubeAccess(kubeconfig, context, data_dir)
        events = run(if_reachable(access, lambda client: events_about(client, objects)))
    rows = [*rows, *map(kube_row, events.value or ())]
    if not rows:
        listed = POOL_KIND if noun is None else noun.view.kind
        raise CliError(f"{listed} {name!r} was not found", f"List them with `gpuledger get {listed}s`")
    if events.value is None:
        message(f"Without Kubernetes' Events: {events.problem} (--no-kube leaves them out.)")
    render(in_order(rows), DEVICE_VIEW if noun is DEVICES else NODE_VIEW, output, headers=not no_headers)


def _noun(kind: str) -> Noun:
    noun = noun_of(kind, (*KINDS, POOL_KIND, MACHINE_CONFIG_POOLS.view.kind))
    if noun not in (DEVICES, NODES):
        hint = "Ask for a device, node, pool or machineconfigpool"
        raise CliError(f"There is no timeline of {noun.view.kinds}", hint, ExitCode.USAGE)
    return noun


async def _timeline(noun: Noun | None, name: str, pool: PoolName | None, data_dir: Path | None) -> Timeline:
    async with open_backend(data_dir, "timeline", asks=True) as backend:
        if pool is not None:
            return await pool_timeline(backend, pool)
        if noun is MACHINE_CONFIG_POOLS:
            return await config_pool_timeline(backend, name)
        return await (device_timeline if noun is DEVICES else node_timeline)(backend, name)

"""`gpuledger timeline`: everything that happened to one device, node or pool, in the order in which it happened.

What the ledger says and what Kubernetes' Events say stand in one table; the source tells which is which.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated

import typer

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES
from gpuledger.api.kinds import NODES as KUBE_NODES
from gpuledger.api.pool_ref import PoolRef
from gpuledger.cli.backend import open_backend
from gpuledger.cli.errors import CliError, ExitCode
from gpuledger.cli.get.nouns import CONTRADICTIONS, DEVICES, NODES, noun_of, pool_name
from gpuledger.cli.options import Context, DataDir, Kubeconfig, NoHeaders, OutputFormat
from gpuledger.cli.render import Column, Output, View, message, render
from gpuledger.cli.render.values import cell
from gpuledger.cli.run import run
from gpuledger.cli.times import format_time
from gpuledger.db.readonly import read_only
from gpuledger.domain.devices.fold import INSTALLATION
from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.inventory.state import GPU_DEVICE
from gpuledger.events.device import DeviceAssignmentChanged, DeviceStateChanged
from gpuledger.tools.cluster import KubeAccess, KubeEvent, KubeReply, events_about, if_reachable
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections
from gpuledger.tools.queries.devices import RecordedEvent, identify, recorded_events, registered_as
from gpuledger.tools.queries.pools import PoolName, assignments_of, current_pools, find_pool
from gpuledger.tools.queries.rows import RowDict, current_rows, rows_where, slots_of

DEVICES_MAX = 256
"""Devices whose events a node's timeline holds."""

KINDS = (DEVICES.view.kind, NODES.view.kind)
POOL_KIND = "pool"
DECIDED = (DeviceStateChanged, DeviceAssignmentChanged)
"""What is decided of a GPUDevice, which a node's timeline tells of all its devices."""

FIELDS_SHOWN = 8
"""Entries of a mapping within an event that a table shows; the other formats show all."""


def _detail(detail: object) -> str:
    """An event's data on one line, without what is empty.

    Of lists of things and large mappings it says how many entries there are, of conditions each one's type and status.
    """
    assert isinstance(detail, Mapping)
    return cell({key: _brief(value) for key, value in _said(detail).items()}, Column("detail"))


def _said(given: Mapping[str, object]) -> dict[str, object]:
    """What is not empty, nor holds only what is."""
    told = {key: _said(value) if isinstance(value, Mapping) else value for key, value in given.items()}
    return {key: value for key, value in told.items() if value not in ("", [], {})}


def _brief(value: object) -> object:
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "status" in item for item in value):
        return [f"{item.get('type')}={item['status']}" for item in value]
    is_list_of_things = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
    is_large = isinstance(value, Mapping) and len(value) > FIELDS_SHOWN
    return f"({len(value)})" if (is_list_of_things or is_large) and isinstance(value, list | Mapping) else value


_TIME, _EVENT, _ABOUT = Column("time"), Column("event"), Column("about")
_REST = (
    Column("slot"),
    Column("detail", format=_detail),
    Column("source"),
    Column("position"),
    Column("recorded", "recorded_at", wide=True),
    Column("id", "event_id", wide=True),
)
_OF_DEVICE = View("event", (_TIME, _EVENT, *_REST), "event_id")
_OF_NODE = View("event", (_TIME, _EVENT, _ABOUT, *_REST), "event_id")

Objects = Sequence[tuple[str, str]]
"""Kubernetes objects: each a kind and a name."""

Kind = Annotated[
    str,
    typer.Argument(
        help="What it is: device, node or pool.",
        autocompletion=lambda: [*KINDS, POOL_KIND],
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="That of a GPUPool.", show_default="any that has the name"),
]
NoKube = Annotated[bool, typer.Option("--no-kube", help="Leave out the Events of Kubernetes.")]


def timeline(
    kind: Kind,
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Serial number, UUID or GPUDevice; or the node's name; or the pool's, as NAMESPACE/NAME or NAME.",
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
    """Show the whole life of a device, node or pool: the ledger, contradictions, and Kubernetes' own Events."""
    pool = pool_name(kind, name, namespace)
    if pool is None and namespace is not None:
        raise CliError("--namespace is for pools", "Leave it out", ExitCode.USAGE)
    view, listed = (_OF_NODE, POOL_KIND) if pool is not None else _view_of(kind)
    rows, objects = run(_told(kind, name, pool, data_dir))
    events: KubeReply[list[KubeEvent]] = KubeReply([])
    if objects and not no_kube:
        access = KubeAccess(kubeconfig, context, data_dir)
        events = run(if_reachable(access, lambda client: events_about(client, objects)))
    rows = [*rows, *map(event_row, events.value or ())]
    if not rows:
        raise CliError(f"{listed} {name!r} was not found", f"List them with `gpuledger get {listed}s`")
    if events.value is None:
        message(f"Without Kubernetes' Events: {events.problem} (--no-kube leaves them out.)")
    render(in_order(rows), view, output, headers=not no_headers)


def _view_of(kind: str) -> tuple[View, str]:
    """How the timeline of a kind of the ledger is shown, and what the kind is called."""
    noun = noun_of(kind, (*KINDS, POOL_KIND))
    if noun not in (DEVICES, NODES):
        raise CliError(f"There is no timeline of {noun.view.kinds}", "Ask for a device, node or pool", ExitCode.USAGE)
    return _OF_DEVICE if noun is DEVICES else _OF_NODE, noun.view.kind


async def _told(kind: str, name: str, pool: PoolName | None, data_dir: DataDir) -> tuple[list[RowDict], Objects]:
    """What the ledger tells, and the Kubernetes objects whose Events belong to it."""
    if pool is not None:
        return await _of_pool(pool, data_dir)
    return await (_of_device if noun_of(kind) is DEVICES else _of_node)(name, data_dir)


async def _of_device(name: str, data_dir: DataDir) -> tuple[list[RowDict], Objects]:
    async with open_backend(data_dir, "timeline") as backend:
        await bring_current(backend, named_projections(["devices"]))
        found = await identify(backend, name)
        if found is None:
            return [], [(GPU_DEVICES.kind, name)]
        rows = event_rows(backend, found.events)
        rows += await _contradictions(backend, found.cards or [name])
    return rows, [(GPU_DEVICES.kind, obj) for obj in found.objects]


async def _of_node(name: str, data_dir: DataDir) -> tuple[list[RowDict], Objects]:
    async with open_backend(data_dir, "timeline") as backend:
        await bring_current(backend, named_projections(["devices", "inventory"]))
        rows = event_rows(backend, await recorded_events(backend, "node", name))
        slots, devices = await slots_and_devices(backend, name)
        here: list[RecordedEvent] = []
        for device in devices[:DEVICES_MAX]:
            here += [one for one in await recorded_events(backend, "device", device) if slot_of(one) in slots]
        rows += event_rows(backend, here)
        gpus = sorted({*registered_as(here), *await _gpu_devices(backend, name)})
        rows += event_rows(backend, await _decided(backend, gpus[:DEVICES_MAX]))
    if len(devices) > DEVICES_MAX:
        message(f"{len(devices)} devices sat in this node; the events of {DEVICES_MAX} are shown.")
    objects = [(GPU_DEVICES.kind, obj) for obj in registered_as(here)]
    return rows, [(KUBE_NODES.kind, name), (GPU_NODE_STATES.kind, name), *objects]


async def _gpu_devices(backend: Backend, node: str) -> list[str]:
    """The GPUDevices that a node has now."""
    async with read_only(backend.database_url, application_name="gpuledger timeline") as connection:
        return [str(row["name"]) for row in await rows_where(connection, GPU_DEVICE, {"node": node})]


async def _decided(backend: Backend, gpu_devices: Sequence[str]) -> list[RecordedEvent]:
    """How the states of GPUDevices changed, and which pools they belonged to."""
    told: list[RecordedEvent] = []
    for name in gpu_devices:
        told += [one for one in await recorded_events(backend, "device", name) if isinstance(one.event.data, DECIDED)]
    return told


async def _of_pool(wanted: PoolName, data_dir: DataDir) -> tuple[list[RowDict], Objects]:
    async with open_backend(data_dir, "timeline") as backend:
        row = find_pool(await current_pools(backend), wanted)
        pool = wanted.id if row is None else row.subject
        events = [*await recorded_events(backend, "pool", pool), *await assignments_of(backend, pool)]
        rows = event_rows(backend, events)
    return rows, [(PoolRef.parse(pool).kind, wanted.name)]


def slot_of(one: RecordedEvent) -> str | None:
    """The slot that an event is about, where it is about one."""
    slot = getattr(one.event.data, "slot", None)
    return slot if isinstance(slot, str) else None


async def slots_and_devices(backend: Backend, node: str) -> tuple[set[str], list[str]]:
    """The slots of a node, and the devices that ever sat in one of them."""
    async with read_only(backend.database_url, application_name="gpuledger timeline") as connection:
        slots = {str(row["slot"]) for row in await slots_of(connection, node)}
        installations = await rows_where(connection, INSTALLATION, {"slot": sorted(slots)})
    return slots, sorted({str(row["device"]) for row in installations})


def event_row(event: KubeEvent) -> dict[str, object]:
    """An Event of Kubernetes as a row of a timeline."""
    repeats = {"count": event.times, "first": format_time(event.first_at)} if event.times > 1 else {}
    return {
        "time": event.time,
        "event": event.reason,
        "about": event.about,
        "slot": None,
        "detail": {"type": event.type, "message": event.message, **repeats},
        "source": f"kubernetes/{event.reporter}",
        "position": None,
        "recorded_at": None,
        "event_id": None,
    }


def in_order(rows: Iterable[RowDict]) -> list[RowDict]:
    """By time; what happened at one time by position, behind what is not of the log."""
    return sorted(rows, key=_when)


def _when(row: RowDict) -> tuple[datetime, int]:
    time, position = row["time"], row["position"]
    assert isinstance(time, datetime)
    return time, 0 if position is None else int(str(position).rpartition("/")[2])


def event_rows(backend: Backend, events: Iterable[RecordedEvent]) -> list[RowDict]:
    """Events of the log as rows."""
    return [_event_row(one, backend.ledger.generation) for one in events]


def _event_row(one: RecordedEvent, generation: int) -> RowDict:
    event = one.event
    data = event.data.model_dump(mode="json", exclude_none=True)
    return {
        "time": event.time,
        "event": event.data.EVENT,
        "about": f"{event.data.AGGREGATE}/{event.subject}",
        "slot": data.pop("slot", None),
        "detail": {key: value for key, value in data.items() if value is not False},
        "source": event.source,
        "position": f"{generation}/{one.sequence}",
        "recorded_at": event.recorded_at or time_of_ns(one.recorded_ns),
        "event_id": event.id,
    }


async def _contradictions(backend: Backend, names: Sequence[str]) -> list[RowDict]:
    async with read_only(backend.database_url, application_name="gpuledger timeline") as connection:
        found = await current_rows(connection, CONTRADICTIONS.source)
    rows = []
    for name in names:
        rows += [
            _contradiction_row(row, name) for row in found if name in (row["subject"], row["first"], row["second"])
        ]
    return rows


def _contradiction_row(row: RowDict, name: str) -> RowDict:
    in_slot = row["kind"] == "two-devices-in-slot"
    other = row["second"] if row["first"] == name else row["first"]
    detail = {"with": other} if in_slot else {"first": row["first"], "second": row["second"]}
    return {
        "time": row["valid_from"],
        "event": row["kind"],
        "about": f"device/{name}",
        "slot": row["subject"] if in_slot else None,
        "detail": {key: value for key, value in {**detail, "until": row["valid_to"]}.items() if value},
        "source": None,
        "position": None,
        "recorded_at": None,
        "event_id": None,
    }

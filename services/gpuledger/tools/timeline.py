"""The timeline of a device, node or pool of any kind: its events, contradictions, and the Events of Kubernetes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES, MACHINE_CONFIG_POOLS, NODES
from gpuledger.api.pool_ref import PoolRef
from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.devices.fold import CONTRADICTION, INSTALLATION
from gpuledger.domain.fact import time_of_ns
from gpuledger.domain.inventory.state import GPU_DEVICE
from gpuledger.domain.machineconfig.history_rows import UPDATE
from gpuledger.events.device import DeviceAssignmentChanged, DeviceBreakGlassUsed, DeviceStateChanged
from gpuledger.events.machine_config import MachineConfigPoolChanged, NodeConfigChanged, NodeConfigDrainFailed
from gpuledger.events.position import ORIGIN, Generations, Position, order
from gpuledger.tools.cluster import KubeEvent
from gpuledger.tools.machineconfig.sentences import with_sentence
from gpuledger.tools.queries.backend import Backend, bring_current, named_projections, one_session, read
from gpuledger.tools.queries.devices import (
    RecordedEvent,
    identify,
    recorded_events,
    recorded_events_of_each,
    registered_as,
)
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.pool_name import PoolName
from gpuledger.tools.queries.pools import assignments_of, current_pools, find_pool
from gpuledger.tools.queries.rows import rows_where, slots_of

SESSION = "gpuledger timeline"
"""What PostgreSQL calls the session of a timeline."""

DEVICES_MAX = 256
"""Devices whose events a node's timeline holds."""

OF_GPU_DEVICES = (DeviceStateChanged, DeviceAssignmentChanged, DeviceBreakGlassUsed)
"""What a node's timeline holds of all its GPUDevices: decisions about them, and uses of the break-glass group."""


class Timeline(NamedTuple):
    """Rows in no order, and the objects of Kubernetes, each a kind and a name, whose Events belong to them."""

    rows: list[RowDict]
    objects: Sequence[tuple[str, str]]


async def device_timeline(backend: Backend, name: str) -> Timeline:
    """The life of a device that is identified by serial number, UUID or the name of a GPUDevice."""
    async with one_session(backend, SESSION) as shared:
        return await _device_timeline(shared, name)


async def node_timeline(backend: Backend, name: str) -> Timeline:
    """The events of a node, of the devices while they were in its slots, and decisions about its GPUDevices."""
    async with one_session(backend, SESSION) as shared:
        return await _node_timeline(shared, name)


async def pool_timeline(backend: Backend, name: PoolName) -> Timeline:
    """The events of a pool, and the decisions by which devices came to it and left it."""
    async with one_session(backend, SESSION) as shared:
        return await _pool_timeline(shared, name)


async def config_pool_timeline(backend: Backend, name: str) -> Timeline:
    """The events of a MachineConfigPool, and what was decided about the nodes that it updated."""
    async with one_session(backend, SESSION) as shared:
        return await _config_pool_timeline(shared, name)


async def _device_timeline(backend: Backend, name: str) -> Timeline:
    await bring_current(backend, named_projections(["devices"]))
    found = await identify(backend, name)
    if found is None:
        return Timeline([], [(GPU_DEVICES.kind, name)])
    rows = event_rows(backend, found.events) + await _contradictions(backend, found.cards or [name])
    return Timeline(rows, [(GPU_DEVICES.kind, obj) for obj in found.objects])


async def _node_timeline(backend: Backend, name: str) -> Timeline:
    await bring_current(backend, named_projections(["devices", "inventory"]))
    rows = event_rows(backend, await recorded_events(backend, "node", name))

    async def ask(connection: AsyncConnection) -> tuple[set[str], list[RowDict], list[RowDict]]:
        slots = {str(row["slot"]) for row in await slots_of(connection, name)}
        installed = await rows_where(connection, INSTALLATION, {"slot": sorted(slots)})
        return slots, installed, await rows_where(connection, GPU_DEVICE, {"node": name})

    slots, installed, registered = await read(backend, ask, application_name=SESSION)
    devices = sorted({str(row["device"]) for row in installed})
    of_devices = await recorded_events_of_each(backend, "device", devices[:DEVICES_MAX])
    here = [one for events in of_devices.values() for one in events if _slot_of(one) in slots]
    rows += event_rows(backend, here)
    gpus = sorted({*registered_as(here), *(str(row["name"]) for row in registered)})[:DEVICES_MAX]
    for events in (await recorded_events_of_each(backend, "device", gpus)).values():
        rows += event_rows(backend, (one for one in events if isinstance(one.event.data, OF_GPU_DEVICES)))
    if len(devices) > DEVICES_MAX:
        backend.reporter.message(f"{len(devices)} devices sat in this node; the events of {DEVICES_MAX} are shown.")
    objects = [(GPU_DEVICES.kind, obj) for obj in registered_as(here)]
    return Timeline(rows, [(NODES.kind, name), (GPU_NODE_STATES.kind, name), *objects])


async def _pool_timeline(backend: Backend, name: PoolName) -> Timeline:
    row = find_pool(await current_pools(backend), name)
    pool = name.id if row is None else row.subject
    events = [*await recorded_events(backend, "pool", pool), *await assignments_of(backend, pool)]
    return Timeline(event_rows(backend, events), [(PoolRef.parse(pool).kind, name.name)])


async def _config_pool_timeline(backend: Backend, name: str) -> Timeline:
    await bring_current(backend, named_projections(["updates"]))

    async def ask(connection: AsyncConnection) -> list[RowDict]:
        return await rows_where(connection, UPDATE, {"pool": name}, newest=["begun_at"])

    updates = await read(backend, ask, application_name=SESSION)
    nodes = list(dict.fromkeys(str(row["node"]) for row in updates))
    rows = event_rows(backend, await recorded_events(backend, MachineConfigPoolChanged.AGGREGATE, name))
    of_nodes = await recorded_events_of_each(backend, "node", nodes[:DEVICES_MAX])
    for events in of_nodes.values():
        rows += event_rows(backend, (one for one in events if _is_of_config_pool(one, name)))
    if len(nodes) > DEVICES_MAX:
        backend.reporter.message(f"It updated {len(nodes)} nodes; the events of {DEVICES_MAX} are shown.")
    return Timeline(rows, [(MACHINE_CONFIG_POOLS.kind, name)])


def _is_of_config_pool(one: RecordedEvent, pool: str) -> bool:
    data = one.event.data
    return isinstance(data, NodeConfigChanged | NodeConfigDrainFailed) and data.pool == pool


def in_order(rows: Iterable[RowDict]) -> list[RowDict]:
    """By time; rows with the same time by position, after those that are not in the log."""
    return sorted(rows, key=_when)


def event_rows(backend: Backend, events: Iterable[RecordedEvent]) -> list[RowDict]:
    """Events of the log as rows."""
    return [_event_row(one, backend.ledger.generations) for one in events]


def kube_row(event: KubeEvent) -> RowDict:
    """An Event of Kubernetes as a row."""
    repeats = {"count": event.times, "first": event.first_at} if event.times > 1 else {}
    detail = {"type": event.type, "message": event.message, **repeats}
    return _row(event.time, event.reason, event.about, detail, source=f"kubernetes/{event.reporter}")


def _event_row(one: RecordedEvent, generations: Generations) -> RowDict:
    event, payload = one.event, one.event.data
    data = payload.model_dump(mode="json", exclude_none=True)
    slot = data.pop("slot", None)
    detail = with_sentence(payload, {key: value for key, value in data.items() if value is not False})
    return _row(event.time, payload.EVENT, f"{payload.AGGREGATE}/{event.subject}", detail, slot, event.source) | {
        "position": str(generations.position(one.sequence)),
        "recorded_at": event.recorded_at or time_of_ns(one.recorded_ns),
        "event_id": event.id,
    }


def _contradiction_row(row: RowDict, device: str) -> RowDict:
    in_slot = row["kind"] == "two-devices-in-slot"
    other = row["second"] if row["first"] == device else row["first"]
    detail = {"with": other} if in_slot else {"first": row["first"], "second": row["second"]}
    detail = {key: value for key, value in {**detail, "until": row["valid_to"]}.items() if value}
    return _row(row["valid_from"], row["kind"], f"device/{device}", detail, row["subject"] if in_slot else None)


def _row(
    time: object,
    event: object,
    about: str,
    detail: Mapping[str, object],
    slot: object = None,
    source: str | None = None,
) -> dict[str, Any]:
    return {
        "time": time,
        "event": event,
        "about": about,
        "slot": slot,
        "detail": detail,
        "source": source or None,
        "position": None,
        "recorded_at": None,
        "event_id": None,
    }


async def _contradictions(backend: Backend, devices: Sequence[str]) -> list[RowDict]:
    async def ask(connection: AsyncConnection) -> dict[tuple[object, ...], RowDict]:
        rows: dict[tuple[object, ...], RowDict] = {}
        for column in ("subject", "first", "second"):
            for row in await rows_where(connection, CONTRADICTION, {column: list(devices)}):
                rows[tuple(row.values())] = row
        return rows

    found = await read(backend, ask, application_name=SESSION)
    return [
        _contradiction_row(row, device)
        for device in devices
        for row in found.values()
        if device in (row["subject"], row["first"], row["second"])
    ]


def _slot_of(one: RecordedEvent) -> str | None:
    slot = getattr(one.event.data, "slot", None)
    return slot if isinstance(slot, str) else None


def _when(row: RowDict) -> tuple[datetime, int]:
    time, position = row["time"], row["position"]
    assert isinstance(time, datetime)
    return time, order(ORIGIN if position is None else Position.parse(str(position)).sequence)

"""The page of a node: its slots and the devices in them, its workloads, and its GPUNodeState."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuledger.api.kinds import GPU_DEVICES, GPU_NODE_STATES, NODES
from gpuledger.api.labels import LABELS_OF_HARDWARE
from gpuledger.cli.describe.sections import (
    CONDITIONS,
    FAILURES,
    HOLDERS,
    INCIDENTS,
    ROWS_SHOWN,
    UNDECIDED,
    Decided,
    conditions_of,
    counted,
    decisions_on,
    events_section,
    phase_of,
    pool_of_status,
    present,
)
from gpuledger.cli.get.nouns import INCIDENTS as INCIDENT_NOUN
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page, Tree
from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.bootstrap.state import GPU_NODE_PREPARATION, NodePhase
from gpuledger.domain.devices.fold import DEVICE, FAILURE
from gpuledger.domain.devices.nodes import NODE
from gpuledger.domain.inventory.state import GPU_DEVICE, GPU_NODE, GPU_NODE_CONDITION, GpuDevice
from gpuledger.domain.inventory.status import device_status, node_status
from gpuledger.domain.workloads.allocations import ALLOCATION
from gpuledger.domain.workloads.fold import RUNNING, WORKLOAD
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import NotFoundError
from gpuledger.tools.cluster import KubeEvent, KubeReply, events_about, object_or_none
from gpuledger.tools.maintenance import maintenance_of
from gpuledger.tools.present.devices import decisions_of
from gpuledger.tools.queries.backend import Backend, read
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import Lasting, RowFilter, current_rows, has_table, row_of, rows_where, slots_of

INCIDENT_ROWS, OPEN = INCIDENT_NOUN.source, Lasting("ended_at")

SLOTS = (
    Column("Slot", "slot"),
    Column("Device", "device"),
    Column("State", "state"),
    Column("Since", "in_service_since"),
    Column("Model", "model"),
    Column("Failures", "failures"),
)
DEVICES = (
    Column("Name", "name"),
    Column("State", "state"),
    Column("Product", "product"),
    Column("Managed", "managed"),
    Column("Pool", "pool"),
    Column("Phase", "phase"),
    Column("Why", "why"),
)
WORKLOADS = (
    Column("Workload", "workload"),
    Column("Owner", "owner"),
    Column("Class", "workload_class"),
    Column("Milli-GPUs", "gpu_milli"),
    Column("Scheduled", "scheduled_at"),
)


MAINTENANCE = (
    Column("Owner", "owner"),
    Column("Reason", "reason"),
    Column("Requested", "requested_at"),
    Column("Expires", "expires_at"),
    Column("Cordon", "cordon"),
    Column("State", "state"),
    Column("Since", "settled_at"),
    Column("Drain", "drain"),
    Column("Pods left", "pods_left"),
    Column("Drain since", "drain_since"),
    Column("Detail", "detail"),
)


class NodeDescription(NamedTuple):
    """What the ledger has about a node; `gpu_node` and the fields after it come from the inventory.

    Where there is no ledger, it is not `is_recorded`, and has nothing.
    """

    name: str
    row: RowDict | None
    slots: list[RowDict]
    failures: list[RowDict]
    incidents: Sequence[RowDict]
    workloads: list[RowDict]
    gpu_node: RowDict | None
    phase: NodePhase | None
    conditions: list[RowDict]
    gpu_devices: list[GpuDevice]
    decided: Mapping[str, Decided]
    holders: list[RowDict]
    maintenance: list[RowDict]
    is_recorded: bool = True

    @property
    def exists(self) -> bool:
        """Whether the ledger has anything about the node."""
        found = (self.row, self.slots, self.gpu_node, self.gpu_devices, self.workloads, self.holders, self.incidents)
        return any(found) or bool(self.maintenance)


class NodeObjects(NamedTuple):
    """What Kubernetes has about a node."""

    node: Object | None
    state: Object | None
    devices: list[Object]
    events: list[KubeEvent]

    @property
    def exists(self) -> bool:
        """Whether Kubernetes has anything about the node."""
        return bool(self.node or self.state or self.devices)


async def read_node(backend: Backend, name: str) -> NodeDescription:
    """What the ledger has about a node."""

    async def ask(connection: AsyncConnection) -> NodeDescription:
        here = {"node": name}
        row = await rows_where(connection, NODE, here)
        slots = await slots_of(connection, name)
        names = [slot["slot"] for slot in slots]
        devices = await rows_where(connection, DEVICE, {"device": [one["device"] for one in slots if one["device"]]})
        gpu_node = await rows_where(connection, GPU_NODE, here) if await has_table(connection, GPU_NODE) else []
        conditions = await rows_where(connection, GPU_NODE_CONDITION, here) if gpu_node else []
        conditions += await rows_where(connection, GPU_NODE_PREPARATION, here) if gpu_node else []
        gpu_devices = await rows_where(connection, GPU_DEVICE, here) if gpu_node else []
        return NodeDescription(
            name,
            row[0] if row else None,
            _occupied(slots, devices),
            await rows_where(connection, FAILURE, {"slot": names}, newest=["failed_at"]),
            await current_rows(connection, INCIDENT_ROWS, RowFilter(where=here, lasting=OPEN)),
            await rows_where(connection, WORKLOAD, here | {"phase": RUNNING}, newest=["scheduled_at"]),
            gpu_node[0] if gpu_node else None,
            await phase_of(connection, name) if gpu_node else None,
            conditions,
            [row_of(GPU_DEVICE, one) for one in gpu_devices],
            await decisions_on(connection, [str(one["name"]) for one in gpu_devices]),
            await rows_where(connection, ALLOCATION, here),
            await maintenance_of(connection, name),
        )

    return await read(backend, ask, application_name="gpuledger describe")


def unrecorded_node(name: str) -> NodeDescription:
    """A node where there is no ledger."""
    return NodeDescription(name, None, [], [], [], [], None, None, [], [], {}, [], [], is_recorded=False)


async def read_node_objects(client: KubeClient, name: str) -> NodeObjects:
    """The Node, its GPUNodeState and GPUDevices, and the Events about the first two."""
    return NodeObjects(
        await object_or_none(client, NODES, name),
        await object_or_none(client, GPU_NODE_STATES, name),
        await _gpu_devices(client, name),
        await events_about(client, [(NODES.kind, name), (GPU_NODE_STATES.kind, name)]),
    )


async def _gpu_devices(client: KubeClient, node: str) -> list[Object]:
    try:
        return (await client.list(GPU_DEVICES, Selection(fields=f"status.nodeName={node}"))).items
    except NotFoundError:
        return []


def node_page(facts: NodeDescription, reply: KubeReply[NodeObjects], resources: Tree) -> Page:
    """Lay out the page; `resources` is the section about dynamic resource allocation."""
    page, objects = Page(), reply.value
    row = facts.row or {}
    registered = {
        "In the fleet": row.get("present"),
        "GPUs": row.get("gpu_count"),
        "Model": row.get("gpu_model"),
        "First seen": row.get("first_seen_at"),
    }
    page.fields({"Name": facts.name, **present(registered)})
    if objects and objects.node:
        page.fields(_labels(objects.node), title="Labels")
    status = (objects.state or {}).get("status") if objects else None
    status = status or _status(facts)
    page.fields(_state(facts, reply), title="GPUNodeState")
    page.table("Conditions", conditions_of(status), CONDITIONS)
    page.table("GPUDevices", _devices(facts, reply), DEVICES)
    page.tree(resources)
    if facts.is_recorded:
        _recorded_sections(page, facts)
    events_section(page, objects.events if objects else None, reply.problem)
    return page


def _recorded_sections(page: Page, facts: NodeDescription) -> None:
    """The sections that only a ledger can fill."""
    page.table("Maintenance", facts.maintenance, MAINTENANCE)
    page.table("Slots", facts.slots, SLOTS)
    page.table(f"Failures{counted(facts.failures)}", facts.failures[:ROWS_SHOWN], FAILURES)
    page.table(f"Open incidents{counted(facts.incidents)}", facts.incidents[:ROWS_SHOWN], INCIDENTS)
    page.table(f"Workloads{counted(facts.workloads)}", facts.workloads[:ROWS_SHOWN], WORKLOADS)
    page.table(f"Containers with GPUs{counted(facts.holders)}", facts.holders[:ROWS_SHOWN], HOLDERS)


def _state(facts: NodeDescription, reply: KubeReply[NodeObjects]) -> dict[str, object]:
    state = reply.value.state if reply.value else None
    if state is None and facts.gpu_node is None:
        return {}
    shown: dict[str, object] = {"Status from": "the ledger", "Has GPUs": (facts.gpu_node or {}).get("present")}
    if state is not None:
        present = ((state.get("status") or {}).get("hw") or {}).get("present")
        shown = {"Status from": "Kubernetes", "Has GPUs": present}
    if facts.phase is not None:
        shown |= {"Phase": facts.phase.phase, "Since": facts.phase.changed_at}
    return shown


def _labels(node: Object) -> dict[str, object]:
    labels = node["metadata"].get("labels") or {}
    return {key: value for key, value in sorted(labels.items()) if key.startswith(LABELS_OF_HARDWARE)}


def _devices(facts: NodeDescription, reply: KubeReply[NodeObjects]) -> list[RowDict]:
    if reply.value is None:
        devices = ((row.name, device_status(row, *facts.decided.get(row.name, UNDECIDED))) for row in facts.gpu_devices)
    else:
        devices = ((obj["metadata"]["name"], obj.get("status") or {}) for obj in reply.value.devices)
    decided = facts.decided if facts.is_recorded else _shown_decisions(reply)
    return [_device_row(name, status, decided.get(name, UNDECIDED)) for name, status in devices]


def _shown_decisions(reply: KubeReply[NodeObjects]) -> dict[str, Decided]:
    """The decisions that the statuses of the GPUDevices show."""
    devices = reply.value.devices if reply.value else []
    return {str(obj["metadata"]["name"]): Decided(*decisions_of(obj)) for obj in devices}


def _device_row(name: str, status: Mapping[str, Any], decided: Decided) -> RowDict:
    return {
        "name": name,
        "state": status.get("state"),
        "product": (status.get("hardware") or {}).get("product"),
        "managed": status.get("managed"),
        "pool": pool_of_status(status),
        "phase": decided.phase,
        "why": decided.why,
    }


def _occupied(slots: list[RowDict], devices: list[RowDict]) -> list[RowDict]:
    """The slots, each with the facts about the device in it."""
    by_name = {row["device"]: row for row in devices}
    columns = ("state", "in_service_since", "model", "failures")
    return [{**slot, **{name: by_name.get(slot["device"], {}).get(name) for name in columns}} for slot in slots]


def _status(facts: NodeDescription) -> dict[str, Any]:
    if facts.gpu_node is None:
        return {}
    conditions = [row_of(GPU_NODE_CONDITION, row) for row in facts.conditions]
    return node_status(row_of(GPU_NODE, facts.gpu_node), conditions)

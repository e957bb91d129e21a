"""The page of a device: card, installations, failures, incidents, allocations and holders, and its GPUDevice."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuledger.api.kinds import GPU_DEVICES
from gpuledger.cli.describe.sections import (
    CONDITIONS,
    FAILURES,
    INCIDENTS,
    ROWS_SHOWN,
    UNDECIDED,
    Decided,
    Holders,
    assignment_section,
    conditions_of,
    counted,
    decisions_on,
    events_section,
    holders_of,
    holders_section,
    pool_of_status,
    preparation_section,
    present,
)
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.db.engine import AsyncConnection
from gpuledger.domain.devices.fold import FAILURE, INSTALLATION, SLOT
from gpuledger.domain.health.rows import INCIDENT
from gpuledger.domain.inventory.state import GPU_DEVICE, GpuDevice
from gpuledger.domain.inventory.status import device_status
from gpuledger.domain.workloads.fold import ALLOCATION
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.tools.cluster import KubeEvent, KubeReply, events_about, object_or_none
from gpuledger.tools.queries.backend import Backend, read
from gpuledger.tools.queries.devices import DeviceIdentity, identify
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.rows import has_table, row_of, rows_where

LIVES = (Column("Slot", "slot"), Column("From", "valid_from"), Column("To", "valid_to"), Column("Retired", "retired"))
ALLOCATIONS = (
    Column("Workload", "workload"),
    Column("Milli-GPUs", "gpu_milli"),
    Column("From", "valid_from"),
    Column("To", "valid_to"),
)


class DeviceDescription(NamedTuple):
    """What the ledger has about a device; `inventory` is the row of its GPUDevice, `decided` the decisions about it."""

    identity: DeviceIdentity
    inventory: GpuDevice | None
    decided: Decided
    node: str | None
    lives: list[RowDict]
    failures: list[RowDict]
    incidents: list[RowDict]
    allocations: list[RowDict]
    holders: Holders

    @property
    def gpu_device(self) -> str | None:
        """The name of the GPUDevice that the device is registered as, or was registered as last."""
        if self.inventory is not None:
            return self.inventory.name
        return self.identity.objects[-1] if self.identity.objects else None


class DeviceObjects(NamedTuple):
    """What Kubernetes has about a device."""

    object: Object | None
    events: list[KubeEvent]


async def read_device(backend: Backend, name: str) -> DeviceDescription | None:
    """What the ledger has about a device; None where it has no such device."""
    identity = await identify(backend, name)
    if identity is None:
        return None

    async def ask(connection: AsyncConnection) -> DeviceDescription:
        inventory: list[RowDict] = []
        if await has_table(connection, GPU_DEVICE):
            inventory += await rows_where(connection, GPU_DEVICE, {"name": identity.objects})
            inventory = inventory or await rows_where(connection, GPU_DEVICE, {"card": identity.cards})
        gpu_device = row_of(GPU_DEVICE, inventory[-1]) if inventory else None
        decided = await decisions_on(connection, [gpu_device.name]) if gpu_device else {}
        cards = {"device": identity.cards}
        row = identity.row or {}
        ids = [*identity.cards, *([str(row["uuid"])] if row.get("uuid") else [])]
        slots = await rows_where(connection, SLOT, {"slot": [row.get("slot") or ""]})
        return DeviceDescription(
            identity,
            gpu_device,
            next(iter(decided.values()), UNDECIDED),
            next((str(slot["node"]) for slot in slots if slot["node"]), None),
            await rows_where(connection, INSTALLATION, cards, newest=["valid_from"]),
            await rows_where(connection, FAILURE, cards, newest=["failed_at"]),
            await rows_where(connection, INCIDENT, cards, newest=["opened_at"]),
            await rows_where(connection, ALLOCATION, cards, newest=["valid_from"], limit=ROWS_SHOWN),
            await holders_of(connection, ids),
        )

    return await read(backend, ask, application_name="gpuledger describe")


async def read_device_objects(client: KubeClient, facts: DeviceDescription) -> DeviceObjects:
    """The GPUDevice, if it still exists, and the Events about all that the device has been registered as."""
    name = facts.gpu_device
    if name is None:
        return DeviceObjects(None, [])
    events = await events_about(client, [(GPU_DEVICES.kind, one) for one in (*facts.identity.objects, name)])
    return DeviceObjects(await object_or_none(client, GPU_DEVICES, name), events)


def device_page(facts: DeviceDescription, reply: KubeReply[DeviceObjects]) -> Page:
    """Lay out the page."""
    page = Page()
    obj = reply.value.object if reply.value else None
    status = obj.get("status") or {} if obj is not None else _status(facts)
    page.fields(_head(facts, status))
    _gpu_device(page, facts, status, obj, reply)
    page.table("Conditions", conditions_of(status), CONDITIONS)
    page.table(f"Lives{counted(facts.lives)}", facts.lives[:ROWS_SHOWN], LIVES)
    page.table(f"Failures{counted(facts.failures)}", facts.failures[:ROWS_SHOWN], FAILURES)
    page.table(f"Incidents{counted(facts.incidents)}", facts.incidents[:ROWS_SHOWN], INCIDENTS)
    page.table("Allocations", facts.allocations, ALLOCATIONS)
    holders_section(page, facts.holders)
    events_section(page, reply.value.events if reply.value else None, reply.problem)
    return page


def _head(facts: DeviceDescription, status: Mapping[str, Any]) -> dict[str, object]:
    row, hardware = facts.identity.row or {}, status.get("hardware") or {}
    return {
        "Name": row.get("device") or facts.gpu_device or facts.identity.requested,
        "Serial": row.get("serial") or hardware.get("serial"),
        "UUID": row.get("uuid") or hardware.get("uuid"),
        "Model": row.get("model") or hardware.get("product"),
        "State": row.get("state"),
        "Node": facts.node or status.get("nodeName"),
        "Slot": row.get("slot"),
        "PCI": (hardware.get("pci") or {}).get("address"),
        "In service since": row.get("in_service_since"),
        "First seen": row.get("first_seen_at"),
        "Removed": row.get("removed_at"),
    }


def _gpu_device(
    page: Page,
    facts: DeviceDescription,
    status: Mapping[str, Any],
    obj: Object | None,
    reply: KubeReply[DeviceObjects],
) -> None:
    name = facts.gpu_device
    if name is None:
        page.line("GPUDevice", "<none>")
        return
    fields: dict[str, object] = {
        "Name": name,
        "Status from": _origin(obj, reply),
        "State": status.get("state"),
        "Managed": status.get("managed"),
        "Pool": pool_of_status(status),
    }
    if obj is not None:
        metadata = obj["metadata"]
        fields |= {"Labels": metadata.get("labels") or {}, "Annotations": metadata.get("annotations") or {}}
    page.fields(fields, title="GPUDevice")
    page.fields(_hardware(status), title="Hardware")
    if facts.inventory is not None:
        preparation_section(page, facts.inventory, facts.decided)
        assignment_section(page, facts.decided.assignment)


def _origin(obj: Object | None, reply: KubeReply[DeviceObjects]) -> str:
    if obj is not None:
        return "Kubernetes"
    return "the ledger; Kubernetes has no such object" if reply.value else "the ledger"


def _hardware(status: Mapping[str, Any]) -> dict[str, object]:
    hardware = status.get("hardware") or {}
    pci, mig = hardware.get("pci") or {}, hardware.get("mig") or {}
    compute = hardware.get("computeCapability")
    return present(
        {
            "Product": hardware.get("product"),
            "PCI id": ":".join(filter(None, (pci.get("vendor"), pci.get("device")))) or None,
            "PCI class": pci.get("class"),
            "Memory MiB": hardware.get("memoryMiB"),
            "Compute capability": f"{compute['major']}.{compute['minor']}" if compute else None,
            "Precisions": (hardware.get("precision") or {}).get("supported"),
            "MIG capable": mig.get("capable"),
            "MIG strategy": mig.get("strategy"),
            "MIG profiles": mig.get("profilesSupported"),
        }
    )


def _status(facts: DeviceDescription) -> Mapping[str, Any]:
    return {} if facts.inventory is None else device_status(facts.inventory, *facts.decided)

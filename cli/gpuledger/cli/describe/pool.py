"""The page of a pool: its spec, capacity, devices and users, and the matching devices that it does not have.

All of it comes from the ledger, except for quotas, which only Kubernetes has.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpuledger.api.pool_ref import PoolRef
from gpuledger.cli.describe.sections import CONDITIONS, ROWS_SHOWN, conditions_of, counted, events_section
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page, Tree
from gpuledger.domain.inventory.status import held_state
from gpuledger.domain.pools.pools import Assignment, Pool
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.status import pool_status
from gpuledger.domain.pools.validation import unsupported, warning_of
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.events.pool import DeviceFilter, LabelSelector, PoolDefined, PoolTaint
from gpuledger.events.reach import NodeRequirement
from gpuledger.tools.cluster import KubeEvent, KubeReply, events_about, object_or_none, quotas_on
from gpuledger.tools.explain.excluded_devices import ExcludedDevice, excluded_devices
from gpuledger.tools.explain.pools import PodUse, uses_of
from gpuledger.tools.queries.backend import Backend
from gpuledger.tools.queries.found_rows import RowDict
from gpuledger.tools.queries.pool_name import PoolName
from gpuledger.tools.queries.pools import current_pools, find_pool

DEVICES = (
    Column("Name", "name"),
    Column("Node", "node"),
    Column("Product", "product"),
    Column("State", "state"),
    Column("Phase", "phase"),
    Column("Why", "why"),
    Column("Since", "since"),
)
PODS = (Column("Pod", "pod"), Column("Node", "node"), Column("Units", "units"))
NOT_IN_IT = (
    Column("Name", "name"),
    Column("Node", "node"),
    Column("State", "state"),
    Column("Why", "why"),
    Column("Message", "message"),
)
LIMITS = (Column("Namespace", "namespace"), Column("Name", "name"), Column("Used", "used"), Column("Hard", "hard"))


class PoolDescription(NamedTuple):
    """What the ledger has about a pool."""

    row: Pool
    status: Mapping[str, Any]
    devices: list[RowDict]
    pods: list[PodUse]
    excluded_devices: list[ExcludedDevice]


class PoolObjects(NamedTuple):
    """What Kubernetes has about a pool; `quotas_problem` says why its quotas could not be read."""

    object: Object | None
    quotas: list[dict[str, Any]]
    quotas_problem: str
    events: list[KubeEvent]


async def read_pool(backend: Backend, name: PoolName) -> PoolDescription | None:
    """What the ledger has about a pool; None where it has no such pool."""
    state = await current_pools(backend)
    row = find_pool(state, name)
    if row is None:
        return None
    pods = uses_of(state.pod.rows, row.subject)
    used = sum(one.units for one in pods if one.node is not None)
    total, conditions = state.total.get(row.subject), state.condition.where("pool", row.subject)
    status = pool_status(total, conditions, used, warning_of(row.spec.definition))
    held = sorted(state.assignment.where("pool", row.subject))
    return PoolDescription(row, status, [_device(state, one) for one in held], pods, list(excluded_devices(state, row)))


async def read_pool_objects(client: KubeClient, pool: str) -> PoolObjects:
    """The pool's object, the quotas on its resource, and the Events about it."""
    ref = PoolRef.parse(pool)
    quotas, problem = await quotas_on(client, ref.resource_name, ref.namespace or None)
    events = await events_about(client, [(ref.kind, ref.name)])
    obj = await object_or_none(client, ref.api_resource, ref.name, ref.namespace or None)
    return PoolObjects(obj, quotas, problem, events)


def pool_page(facts: PoolDescription, reply: KubeReply[PoolObjects]) -> Page:
    """Lay out the page."""
    page, objects, row = Page(), reply.value, facts.row
    obj = objects.object if objects else None
    status = (obj or {}).get("status") or facts.status
    ref = PoolRef.parse(row.subject)
    page.tree(
        {
            "Name": row.name,
            "Namespace": ref.namespace or None,
            "Kind": ref.kind,
            "UID": row.uid,
            "Resource": ref.resource_name,
            "Being deleted": True if row.deleting else None,
            "Defined": row.defined_at,
            "Status from": _origin(obj, reply),
            "Warning": warning_of(row.spec.definition) or None,
            "Spec": spec_tree(row.spec.definition),
            "Capacity": _capacity(status.get("capacity") or {}),
        }
    )
    page.table("Conditions", conditions_of(status), CONDITIONS)
    page.table(f"Devices{counted(facts.devices)}", facts.devices[:ROWS_SHOWN], DEVICES)
    page.table(
        f"Pods that request its units{counted(facts.pods)}", [one._asdict() for one in facts.pods[:ROWS_SHOWN]], PODS
    )
    others = [_excluded_row(one) for one in facts.excluded_devices[:ROWS_SHOWN]]
    page.table(f"Matching devices that are not in it{counted(facts.excluded_devices)}", others, NOT_IN_IT)
    _quotas_section(page, reply)
    events_section(page, objects.events if objects else None, reply.problem)
    return page


def _origin(obj: Object | None, reply: KubeReply[PoolObjects]) -> str:
    if obj is not None and obj.get("status"):
        return "Kubernetes"
    return "the ledger; Kubernetes has none" if reply.value else "the ledger"


def _capacity(capacity: Mapping[str, Any]) -> dict[str, object]:
    total = capacity.get("total")
    return {
        "Total": "unknown" if total is None else total,
        "Used": capacity.get("used"),
        "Available": capacity.get("available"),
    }


def _quotas_section(page: Page, reply: KubeReply[PoolObjects]) -> None:
    if reply.value is None:
        page.line("Resource quotas", f"Kubernetes was not asked: {reply.problem}")
    elif reply.value.quotas_problem:
        page.line("Resource quotas", f"They could not be read: {reply.value.quotas_problem}")
    else:
        quotas = reply.value.quotas
        page.table(f"Resource quotas{counted(quotas)}", quotas[:ROWS_SHOWN], LIMITS)


def _device(state: PoolFacts, held: Assignment) -> RowDict:
    device = state.device.get(held.device)
    return {
        "name": held.device,
        "node": None if device is None else device.node,
        "product": None if device is None else device.product,
        "state": None if device is None else held_state(device.prepared, held),
        "phase": held.phase,
        "why": held.reason,
        "since": held.changed_at,
    }


def _excluded_row(one: ExcludedDevice) -> RowDict:
    return {
        "name": one.device,
        "node": one.node,
        "state": one.state,
        "why": ", ".join(obstacle.reason for obstacle in one.obstacles) or None,
        "message": " ".join(obstacle.message for obstacle in one.obstacles if obstacle.message) or None,
    }


EVERYTHING = "everything"


def spec_tree(pool: PoolDefined) -> Tree:
    """The spec by the fields of its manifest; parts that are not set are left out."""
    problem = unsupported(pool)
    return {
        "Provider": pool.provider,
        "Backend": pool.backend,
        "Not supported": None if problem is None else problem.message,
        "Resource": {
            "Unit": pool.unit,
            "MIG Profile": pool.mig_profile,
            "Slices Per Unit": pool.slices_per_unit,
            "Max Devices Per Node": pool.devices_per_node_max,
        },
        "Node Selector": selector_text(pool.node_selector),
        "Device Selector": _non_empty(
            {"Include": _filter(pool.include), "Exclude": pool.exclude and _filter(pool.exclude)}
        )
        or EVERYTHING,
        "Device Assignment": {
            "Require Annotation": pool.requires_annotation,
            "Auto Approve Selector": None if pool.auto_approve is None else selector_text(pool.auto_approve),
        },
        "Scheduling": {
            "Strategy": pool.strategy or "the default of the module",
            "Topology Key": pool.topology_key,
            "Taints Enabled": pool.taints_enabled,
            "Taints": [_taint(one) for one in pool.taints] or None,
        },
        "Maintenance": pool.maintenance,
    }


def selector_text(selector: LabelSelector) -> str:
    """A selector on one line, as `kubectl get -l` takes it."""
    labels = (f"{key}={value}" for key, value in sorted(selector.labels.items()))
    return ", ".join((*labels, *_expressions(selector.requirements))) or EVERYTHING


def _expressions(requirements: Iterable[NodeRequirement]) -> Iterable[str]:
    for one in requirements:
        values = f" ({', '.join(one.values)})" if one.values else ""
        yield f"{one.key} {one.operator}{values}"


def _filter(devices: DeviceFilter) -> Tree:
    return _non_empty(
        {
            "Inventory IDs": ", ".join(devices.inventory_ids),
            "Products": ", ".join(devices.products),
            "PCI Vendors": ", ".join(devices.pci_vendors),
            "PCI Devices": ", ".join(devices.pci_devices),
            "MIG Capable": devices.mig_capable,
            "MIG Profiles": ", ".join(devices.mig_profiles),
        }
    )


def _non_empty(fields: Tree) -> Tree:
    """The fields that are set: neither absent nor empty, though a `false` counts."""
    return {name: value for name, value in fields.items() if value is False or value}


def _taint(taint: PoolTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"

"""What the page of a pool says: its spec, what it offers, its devices, who uses it, and which devices it does not have.

The ledger tells all of it but for quotas, which only Kubernetes knows.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, Resource
from gpuledger.cli.backend import Backend
from gpuledger.cli.cluster import Answer, KubeEvent, events_about
from gpuledger.cli.describe.sections import CONDITIONS, ROWS_SHOWN, conditions_of, counted, events_section
from gpuledger.cli.pool_pods import uses_of
from gpuledger.cli.pool_state import PoolName, current_pools, pool_named
from gpuledger.cli.render import Column
from gpuledger.cli.render.page import Page
from gpuledger.cli.render.pool_spec import spec_tree
from gpuledger.cli.rows import RowDict
from gpuledger.domain.inventory.status import held_state
from gpuledger.domain.pools.decisions import Assignment
from gpuledger.domain.pools.spec import Pool, is_namespaced, read_spec, resource_name
from gpuledger.domain.pools.state import PoolFacts
from gpuledger.domain.pools.status import pool_status
from gpuledger.edge.kube.client import KubeClient, Object, Selection
from gpuledger.edge.kube.errors import NotFoundError, RefusedError
from gpuledger.tools.explain.pool_outsiders import Outsider, outsiders
from gpuledger.tools.explain.pools import PodUse

QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)

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


class PoolPage(NamedTuple):
    """What the ledger knows of a pool."""

    row: Pool
    status: Mapping[str, Any]
    devices: list[RowDict]
    pods: list[PodUse]
    outsiders: list[Outsider]


class PoolObjects(NamedTuple):
    """What Kubernetes knows of a pool; `quotas_problem` says why its quotas are not known."""

    object: Object | None
    quotas: list[RowDict]
    quotas_problem: str
    events: list[KubeEvent]


async def pool_facts(place: Backend, wanted: PoolName) -> PoolPage | None:
    """Everything that the ledger knows; None where it has no such pool."""
    state = await current_pools(place)
    row = pool_named(state, wanted)
    if row is None:
        return None
    pods = uses_of(state.pod.rows, row.subject)
    used = sum(one.units for one in pods if one.node is not None)
    status = pool_status(state.total.get(row.subject), state.condition.where("pool", row.subject), used)
    held = sorted(state.assignment.where("pool", row.subject))
    return PoolPage(row, status, [_device(state, one) for one in held], pods, list(outsiders(state, row)))


async def pool_objects(client: KubeClient, pool: str) -> PoolObjects:
    """The pool's object, the quotas on its resource, and the Events about it."""
    resource = GPU_POOLS if is_namespaced(pool) else CLUSTER_GPU_POOLS
    namespace, _, name = pool.rpartition("/")
    quotas, problem = await quotas_on(client, resource_name(pool), namespace or None)
    events = await events_about(client, [(resource.kind, name)])
    try:
        obj = await client.get(resource, name, namespace or None)
    except NotFoundError:
        obj = None
    return PoolObjects(obj, quotas, problem, events)


async def quotas_on(client: KubeClient, resource: str, namespace: str | None) -> tuple[list[RowDict], str]:
    """The quotas on a resource in one namespace or in all; or why they are not known."""
    key = f"requests.{resource}"
    try:
        found = (await client.list(QUOTAS, Selection(namespace))).items
    except RefusedError as error:
        return [], str(error)
    return [_quota(one, key) for one in found if key in _hard(one)], ""


def _hard(quota: Object) -> Mapping[str, Any]:
    """What a quota limits, also where nobody has reckoned it up yet."""
    return {**((quota.get("spec") or {}).get("hard") or {}), **((quota.get("status") or {}).get("hard") or {})}


def _quota(quota: Object, key: str) -> RowDict:
    metadata, used = quota["metadata"], (quota.get("status") or {}).get("used") or {}
    return {
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "used": used.get(key),
        "hard": _hard(quota)[key],
    }


def pool_page(facts: PoolPage, answer: Answer[PoolObjects]) -> Page:
    """The page."""
    page, objects, row = Page(), answer.value, facts.row
    obj = objects.object if objects else None
    status = (obj or {}).get("status") or facts.status
    kind = GPU_POOLS if is_namespaced(row.subject) else CLUSTER_GPU_POOLS
    page.tree(
        {
            "Name": row.name,
            "Namespace": row.subject.rpartition("/")[0] or None,
            "Kind": kind.kind,
            "UID": row.uid,
            "Resource": resource_name(row.subject),
            "Being deleted": True if row.deleting else None,
            "Defined": row.defined_at,
            "Status from": _origin(obj, answer),
            "Spec": spec_tree(read_spec(row.said).said),
            "Capacity": _capacity(status.get("capacity") or {}),
        }
    )
    page.table("Conditions", conditions_of(status), CONDITIONS)
    page.table(f"Devices{counted(facts.devices)}", facts.devices[:ROWS_SHOWN], DEVICES)
    page.table(
        f"Pods that ask for its units{counted(facts.pods)}", [one._asdict() for one in facts.pods[:ROWS_SHOWN]], PODS
    )
    others = [_outsider_row(one) for one in facts.outsiders[:ROWS_SHOWN]]
    page.table(f"Matching devices that are not in it{counted(facts.outsiders)}", others, NOT_IN_IT)
    _quotas_section(page, answer)
    events_section(page, objects.events if objects else None, answer.problem)
    return page


def _origin(obj: Object | None, answer: Answer[PoolObjects]) -> str:
    if obj is not None and obj.get("status"):
        return "Kubernetes"
    return "the ledger; Kubernetes has none" if answer.value else "the ledger"


def _capacity(capacity: Mapping[str, Any]) -> dict[str, object]:
    total = capacity.get("total")
    return {
        "Total": "not known" if total is None else total,
        "Used": capacity.get("used"),
        "Available": capacity.get("available"),
    }


def _quotas_section(page: Page, answer: Answer[PoolObjects]) -> None:
    if answer.value is None:
        page.line("Resource quotas", f"Kubernetes was not asked: {answer.problem}")
    elif answer.value.quotas_problem:
        page.line("Resource quotas", f"They could not be read: {answer.value.quotas_problem}")
    else:
        quotas = answer.value.quotas
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


def _outsider_row(one: Outsider) -> RowDict:
    return {
        "name": one.device,
        "node": one.node,
        "state": one.state,
        "why": ", ".join(obstacle.reason for obstacle in one.obstacles) or None,
        "message": " ".join(obstacle.message for obstacle in one.obstacles if obstacle.message) or None,
    }

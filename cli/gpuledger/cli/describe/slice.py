"""The page of a ResourceSlice: what its driver publishes, and the state and holders of every device.

A node's page has a section about the slices of the node, which is here, too.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from gpuledger.api.kinds import RESOURCE_SLICE_STATUSES, RESOURCE_SLICES
from gpuledger.cli.describe.sections import events_section
from gpuledger.cli.render.page import Page, Tree, field_name, named_tree
from gpuledger.cli.times import format_time
from gpuledger.domain.dra import rows
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.dra.status import Document
from gpuledger.domain.quantities import Quantity, parse_quantity
from gpuledger.edge.kube.client import KubeClient, Object
from gpuledger.events.reach import NodeReach
from gpuledger.events.slice import SliceDevice, SlicePublished
from gpuledger.tools.cluster import KubeEvent, KubeReply, events_about, object_or_none
from gpuledger.tools.explain.access import Readable, elided, names_and_count, namespaces_in, with_claims
from gpuledger.tools.queries.moments import PointInTime
from gpuledger.tools.queries.slice_statuses import Staleness
from gpuledger.tools.queries.source import StateSource

NOT_FOR_STATUS = (rows.CLAIM.name, rows.AVAILABILITY.name, rows.DEVICE_CLASS.name)
"""Tables that no status depends on."""


class SliceDescription(NamedTuple):
    """A slice now or `at` a time; `is_present_only` without a ledger.

    `stale` is set while gpuledger does not write the status in Kubernetes.
    """

    row: rows.ResourceSlice
    published: SlicePublished
    status: Document
    is_present_only: bool = False
    at: datetime | None = None
    stale: Staleness | None = None


class SliceObjects(NamedTuple):
    """What Kubernetes has about a slice."""

    status: Object | None
    events: list[KubeEvent]


async def read_slice(source: StateSource, name: str, at: datetime | None) -> SliceDescription | None:
    """What the source has about a slice; None where it has no such slice."""
    state = await source.availability(PointInTime(at), without=NOT_FOR_STATUS)
    status = state.status(name)
    if status is None:
        return None
    row = state.slice.rows[name]
    stale = await source.staleness() if at is None else None
    return SliceDescription(row, published_slice(state, name), status, source.is_present_only, at, stale)


async def read_slice_objects(client: KubeClient, name: str) -> SliceObjects:
    """The slice's ResourceSliceStatus, and the Events about both."""
    about = [(RESOURCE_SLICES.kind, name), (RESOURCE_SLICE_STATUSES.kind, name)]
    return SliceObjects(await object_or_none(client, RESOURCE_SLICE_STATUSES, name), await events_about(client, about))


def status_of(facts: SliceDescription, reply: KubeReply[SliceObjects]) -> tuple[str, Mapping[str, Any]]:
    """Where the status of the page comes from, and the status; one that is stale in Kubernetes is not shown."""
    obj = reply.value.status if reply.value else None
    if obj is not None and obj.get("status"):
        if facts.stale is not None:
            return "the ledger", facts.status
        return "Kubernetes", with_claims(obj["status"], facts.status)
    if facts.at is not None:
        return f"the ledger, at {format_time(facts.at)}", facts.status
    if facts.is_present_only:
        return "the slices and claims of Kubernetes, which has no such ResourceSliceStatus", facts.status
    return "the ledger; Kubernetes has no such object" if reply.value else "the ledger", facts.status


def slice_page(facts: SliceDescription, reply: KubeReply[SliceObjects], readable: Readable) -> Page:
    """Lay out the page."""
    page = Page()
    origin, status = status_of(facts, reply)
    page.tree(
        {
            "Name": facts.row.name,
            "API Version": RESOURCE_SLICES.api_version,
            "Kind": RESOURCE_SLICES.kind,
            "UID": facts.row.uid,
            "Published": facts.row.published_at,
            "Status from": origin,
            "Status in Kubernetes": _stale_text(facts.stale) if _may_have_status(reply) else None,
            "Claims shown": readable.basis,
            "Spec": _spec(facts.published),
            "Status": status_tree(elided(status, readable.may_name)),
        }
    )
    if facts.at is None:
        events_section(page, reply.value.events if reply.value else None, reply.problem)
    return page


def published_slice(state: Availability, name: str) -> SlicePublished:
    """The slice as its driver published it."""
    return SlicePublished.model_validate(orjson.loads(state.slice.rows[name].payload))


def status_tree(status: Mapping[str, Any]) -> Tree:
    """A status as a page shows it; amounts keep the names that drivers give them."""
    found: dict[str, object] = {"Observed Generation": status.get("observedGeneration")}
    found["Summary"] = summary_tree(status.get("summary") or {})
    found["Devices"] = [_device_status(one) for one in status.get("devices") or ()]
    if pool := status.get("poolStatus"):
        found["Pool Status"] = named_tree(dict(pool))
    return found


def summary_tree(summary: Mapping[str, Any]) -> Tree:
    """A summary as a page shows it."""
    return {field_name(key): value for key, value in summary.items()}


def state_words(device: Mapping[str, Any]) -> str:
    """A device's state, its reason, and how many claims have it where they are not all named."""
    allocations = device.get("allocations") or ()
    words = " ".join(filter(None, (device.get("state"), device.get("stateReason") and f"({device['stateReason']})")))
    if all(one.get("claimName") for one in allocations):
        return words
    return f"{words} ({len(allocations)} claim{'' if len(allocations) == 1 else 's'})"


def attributes_tree(device: SliceDevice) -> Tree:
    """A device's attributes."""
    return {name: getattr(value, "version", value) for name, value in device.attributes.items()}


def _may_have_status(reply: KubeReply[SliceObjects]) -> bool:
    """Whether Kubernetes has a status of the slice, or was not asked."""
    return reply.value is None or reply.value.status is not None


def _stale_text(stale: Staleness | None) -> str | None:
    return str(stale) if stale else None


def _device_status(device: Mapping[str, Any]) -> Tree:
    named = [one for one in device.get("allocations") or () if one.get("claimName") or one.get("capacity")]
    return {
        "Name": device.get("name"),
        "State": state_words({**device, "stateReason": None}),
        "State Reason": device.get("stateReason"),
        "Allocations": [_allocation(one) for one in named] or None,
        "Capacity": device.get("capacity"),
        "Available Capacity": device.get("availableCapacity"),
    }


def _allocation(allocation: Mapping[str, Any]) -> Tree:
    return {field_name(key): value for key, value in allocation.items() if value != ""}


def _spec(published: SlicePublished) -> Tree:
    counters = [{"Name": one.name, "Counters": one.counters} for one in published.counter_sets]
    return {
        "Driver": published.driver,
        "Pool": {
            "Name": published.pool,
            "Generation": published.pool_generation,
            "Resource Slice Count": published.slice_count,
        },
        **_reach(published.reach),
        "Per Device Node Selection": True if published.reach is None else None,
        "Shared Counters": counters or None,
        "Devices": [_device(one) for one in published.devices],
    }


def _device(device: SliceDevice) -> Tree:
    taints = [
        f"{one.key}={one.value}:{one.effect}" if one.value else f"{one.key}:{one.effect}" for one in device.taints
    ]
    return {
        "Name": device.name,
        "Allow Multiple Allocations": True if device.shareable else None,
        "Attributes": attributes_tree(device) or None,
        "Capacity": {name: one.value for name, one in device.capacity.items()} or None,
        "Consumes Counters": device.consumes or None,
        "Taints": taints or None,
        **(_reach(device.reach) if device.reach else {}),
    }


def _reach(reach: NodeReach | None) -> Tree:
    if reach is None:
        return {}
    terms = list(_terms(reach))
    return {
        "Node Name": reach.node,
        "All Nodes": True if reach.all_nodes else None,
        "Node Selector": " or ".join(terms) or None,
    }


def _terms(reach: NodeReach) -> Iterator[str]:
    for term in reach.terms:
        yield " and ".join(f"{one.key} {one.operator} {','.join(one.values)}".rstrip() for one in term)


class SliceOfNode(NamedTuple):
    """One of a node's own slices, and its status."""

    name: str
    published: SlicePublished
    status: Document


class NodeResources(NamedTuple):
    """A node's own slices, by pool; `stale` as of a slice."""

    pools: Mapping[PoolId, list[SliceOfNode]]
    stale: Staleness | None = None

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of the claims that have devices."""
        return {name for slices in self.pools.values() for one in slices for name in namespaces_in(one.status)}


async def read_node_resources(source: StateSource, node: str) -> NodeResources:
    """The slices that the source has for a node."""
    state = await source.availability(without=NOT_FOR_STATUS)
    pools: dict[PoolId, list[SliceOfNode]] = {}
    for row in sorted(state.slice.where("node", node), key=lambda row: (row.driver, row.pool, row.name)):
        status = state.status(row.name) or {}
        slices = pools.setdefault(PoolId(row.driver, row.pool), [])
        slices.append(SliceOfNode(row.name, published_slice(state, row.name), status))
    return NodeResources(pools, await source.staleness() if pools else None)


def resources_tree(resources: NodeResources, readable: Readable) -> Tree:
    """Lay out the section of a node's page."""
    pools = [_pool(pool, slices, readable) for pool, slices in resources.pools.items()]
    basis = {"Statuses in Kubernetes": _stale_text(resources.stale), "Claims shown": readable.basis}
    return {"DRA Resources": [basis, *pools] if pools else []}


def _pool(pool: PoolId, slices: list[SliceOfNode], readable: Readable) -> Tree:
    statuses = [elided(one.status, readable.may_name) for one in slices]
    status: Mapping[str, Any] = next((one["poolStatus"] for one in statuses if "poolStatus" in one), {})
    return {
        "Driver": pool.driver,
        "Pool": pool.name,
        "Slices": ",".join(one.name for one in slices),
        "Summary": summary_tree(_total_summary(one.get("summary") or {} for one in statuses)),
        "Pool Status": named_tree(dict(status)) or None,
        "Devices": {
            name: found
            for one, of_slice in zip(slices, statuses, strict=True)
            for name, found in _node_devices(one.published, of_slice).items()
        },
    }


def _node_devices(published: SlicePublished, status: Mapping[str, Any]) -> dict[str, Tree]:
    by_name = {device.name: device for device in published.devices}
    return {
        one["name"]: _node_device(one, attributes_tree(by_name[one["name"]])) for one in status.get("devices") or ()
    }


def _node_device(device: Mapping[str, Any], attributes: Tree) -> Tree:
    allocations = device.get("allocations") or ()
    named = [f"{one['claimNamespace']}/{one['claimName']}" for one in allocations if one.get("claimName")]
    return {
        "Status": state_words(device),
        "Allocated To": names_and_count(named, len(allocations) - len(named)) if named else None,
        "Capacity": device.get("capacity"),
        "Available": device.get("availableCapacity"),
        "Attributes": attributes or None,
    }


def _total_summary(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of several slices' summaries."""
    found: dict[str, Any] = {}
    for summary in summaries:
        for key, value in summary.items():
            found[key] = _added(found[key], value) if key in found else value
    return found


def _added(total: Any, value: Any) -> Any:  # noqa: ANN401 - a count, or amounts by name
    if isinstance(total, int):
        return total + value
    return {name: _sum(total.get(name), value.get(name)) for name in {**total, **value}}


def _sum(one: str | None, other: str | None) -> str:
    first, second = parse_quantity(one or "0"), parse_quantity(other or "0")
    return str(Quantity(first.nanos + second.nanos, first.form if one else second.form))

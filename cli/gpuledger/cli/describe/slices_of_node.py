"""The section of a node's page about dynamic resource allocation: its own slices, by driver and pool."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpuledger.cli.describe.slice import NOT_FOR_STATUS, attributes_tree, said_of, state_words, summary_tree
from gpuledger.cli.render.tree import Tree, spelt_tree
from gpuledger.domain.dra.objects import PoolId
from gpuledger.domain.dra.status import Document
from gpuledger.domain.quantities import Quantity, parse_quantity
from gpuledger.events.slice import SlicePublished
from gpuledger.tools.explain.access import Readable, elided, is_redacted, names_and_count, namespaces_in
from gpuledger.tools.queries.availability import current_availability
from gpuledger.tools.queries.backend import Backend


class SliceOfNode(NamedTuple):
    """One of a node's own slices, and its status."""

    name: str
    said: SlicePublished
    status: Document


class NodeResources(NamedTuple):
    """A node's own slices, by pool; `is_redacted` where claims are named to nobody."""

    pools: Mapping[PoolId, list[SliceOfNode]]
    is_redacted: bool

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of the claims that have devices."""
        return {name for slices in self.pools.values() for one in slices for name in namespaces_in(one.status)}


async def node_resources(backend: Backend, node: str) -> NodeResources:
    """The slices that the ledger knows of a node."""
    state = await current_availability(backend, without=NOT_FOR_STATUS)
    redacted = await is_redacted(backend)
    pools: dict[PoolId, list[SliceOfNode]] = {}
    for row in sorted(state.slice.where("node", node), key=lambda row: (row.driver, row.pool, row.name)):
        status = state.status(row.name, redacted=redacted) or {}
        slices = pools.setdefault(PoolId(row.driver, row.pool), [])
        slices.append(SliceOfNode(row.name, said_of(state, row.name), status))
    return NodeResources(pools, redacted)


def resources_tree(resources: NodeResources, readable: Readable) -> Tree:
    """The section."""
    pools = [_pool(pool, slices, readable) for pool, slices in resources.pools.items()]
    return {"DRA Resources": [{"Claims named": readable.basis}, *pools] if pools else []}


def _pool(pool: PoolId, slices: list[SliceOfNode], readable: Readable) -> Tree:
    statuses = [elided(one.status, readable.may_name) for one in slices]
    told: Mapping[str, Any] = next((one["poolStatus"] for one in statuses if "poolStatus" in one), {})
    return {
        "Driver": pool.driver,
        "Pool": pool.name,
        "Slices": ",".join(one.name for one in slices),
        "Summary": summary_tree(_summary(one.get("summary") or {} for one in statuses)),
        "Pool Status": spelt_tree(dict(told)) or None,
        "Devices": {
            name: found
            for one, status in zip(slices, statuses, strict=True)
            for name, found in _devices(one.said, status).items()
        },
    }


def _devices(said: SlicePublished, status: Mapping[str, Any]) -> dict[str, Tree]:
    published = {device.name: device for device in said.devices}
    return {one["name"]: _device(one, attributes_tree(published[one["name"]])) for one in status.get("devices") or ()}


def _device(device: Mapping[str, Any], attributes: Tree) -> Tree:
    allocations = device.get("allocations") or ()
    named = [f"{one['claimNamespace']}/{one['claimName']}" for one in allocations if one.get("claimName")]
    return {
        "Status": state_words(device),
        "Allocated To": names_and_count(named, len(allocations) - len(named)) if named else None,
        "Capacity": device.get("capacity"),
        "Available": device.get("availableCapacity"),
        "Attributes": attributes or None,
    }


def _summary(summaries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sums of several slices' summaries."""
    found: dict[str, Any] = {}
    for summary in summaries:
        for key, value in summary.items():
            known = found.get(key)
            found[key] = value if known is None else _added(known, value)
    return found


def _added(known: Any, value: Any) -> Any:  # noqa: ANN401 - a count, or amounts by name
    if isinstance(known, int):
        return known + value
    return {name: _sum(known.get(name), value.get(name)) for name in {**known, **value}}


def _sum(one: str | None, other: str | None) -> str:
    first, second = parse_quantity(one or "0"), parse_quantity(other or "0")
    return str(Quantity(first.nanos + second.nanos, first.form if one else second.form))

"""Which pods of a node hold a device, folded from the ledger. Pure.

Agents report which units each container has, in the words of device plugins and of DRA drivers. Which card a unit is
follows from its id, from the MIG instances that the agent finds on its cards, and from what a ResourceSlice says of its
device. Nothing is guessed: where it does not follow, nobody knows who holds the device. What followed once stays for as
long as the container has the unit: a card that fails is the one that agents and drivers list no longer.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from gpuledger.api.sharing import SharingNames
from gpuledger.domain.fact import Fact, Handlers, TableState, is_late
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.table import Table, TableSpec
from gpuledger.edge.kube.objects import items, mapping, time_of
from gpuledger.edge.nodewriter.held_shares import held_shares
from gpuledger.events.allocation import RESOURCE_GROUPS, AllocationEnded, AllocationObserved
from gpuledger.events.node import NodeDevicesObserved, NodeGone
from gpuledger.events.slice import SlicePublished, SliceWithdrawn

_NOTHING: Final = json_text({})
_SLICE_MARK: Final = "::"
_CARD: Final = "GPU-"
_CONTRADICTED: Final[frozenset[str]] = frozenset()
_UUIDS: Final = ("uuid", "parentUUID")
"""The attributes by which a driver names a device's own UUID, and that of the card that an instance is on."""


class NodeCards(NamedTuple):
    """The MIG instances that the agent of a node finds, a JSON object of UUIDs to those of their cards."""

    node: str
    instances: str


class ContainerUnits(NamedTuple):
    """What a container has since a report: a JSON array of ids of units, and one of `[driver, pool, device]`.

    `resolved` is a JSON object of the UUIDs that followed from these last, where an id does not say it by itself.
    """

    allocation: str
    node: str
    namespace: str
    pod: str
    units: str
    claims: str
    reported_at: datetime
    resolved: str


class SliceUuids(NamedTuple):
    """The UUIDs that a ResourceSlice says of its devices, a JSON object of lists by name."""

    slice: str
    driver: str
    pool: str
    devices: str


NODE_CARDS: Final = TableSpec("node_cards", NodeCards, ("node",))
CONTAINER_UNITS: Final = TableSpec("container_units", ContainerUnits, ("allocation",))
SLICE_UUIDS: Final = TableSpec("slice_uuids", SliceUuids, ("slice",))


class Holders(TableState):
    """What the containers of all nodes have, and what says which cards that is; `names` are those of shared devices."""

    def __init__(self, names: SharingNames | None = None) -> None:
        self._names = names or SharingNames()
        self.node_cards = Table(NODE_CARDS)
        self.container_units = Table(CONTAINER_UNITS, "node")
        self.slice_uuids = Table(SLICE_UUIDS, "pool")
        for table in (self.node_cards, self.container_units, self.slice_uuids):
            table.never_written()

    def holds(self, pod: Mapping[str, Any], node: str, devices: Collection[str]) -> bool | None:
        """Whether a pod of a node holds one of these devices; None: nobody knows.

        A report that is older than the pod is about one of its name before it, and says nothing.
        """
        metadata = mapping(pod, "metadata")
        name = (metadata.get("namespace"), metadata.get("name"))
        created_at = time_of(metadata.get("creationTimestamp"))
        rows = [
            row
            for row in self.container_units.where("node", node)
            if (row.namespace, row.pod) == name and (created_at is None or row.reported_at >= created_at)
        ]
        shares = held_shares(pod, self._names)
        found = [*(one for row in rows for one in self.uuids(row)), frozenset() if shares is None and rows else shares]
        if any(one is not None and not one.isdisjoint(devices) for one in found):
            return True
        is_unclear = None in found or (not rows and not shares and requests_devices(pod))
        return None if is_unclear else False

    def resolved(self, row: ContainerUnits) -> ContainerUnits:
        """The row with the UUIDs that follow by now, and those that followed before."""
        kept: dict[str, list[str]] = orjson.loads(row.resolved)
        found = {
            name: kept.get(name) if uuids is None else sorted(uuids)
            for name, uuids in self._resolved_now(row)
            if not name.startswith(_CARD)
        }
        return row._replace(resolved=json_text({name: uuids for name, uuids in found.items() if uuids}))

    def uuids(self, row: ContainerUnits) -> Iterator[frozenset[str] | None]:
        """The UUIDs of each unit, its own and its card's; None where they never followed from the ledger."""
        kept: dict[str, list[str]] = orjson.loads(row.resolved)
        for name, uuids in self._resolved_now(row):
            found = frozenset(kept.get(name, ())) if uuids is None else uuids
            yield found or None

    def _resolved_now(self, row: ContainerUnits) -> Iterator[tuple[str, frozenset[str] | None]]:
        """Each unit by name, with its UUIDs; None where they do not follow from what is listed now.

        None at all where two slices contradict each other: then what followed before counts no more either.
        """
        cards = self.node_cards.get(row.node)
        instances: Mapping[str, str] = {} if cards is None else orjson.loads(cards.instances)
        for unit in orjson.loads(row.units):
            uuid = unit.partition(_SLICE_MARK)[0]
            if uuid.startswith(_CARD) or uuid in instances:
                yield unit, frozenset(filter(None, (uuid, instances.get(uuid))))
            else:
                yield unit, None
        for driver, pool, device in orjson.loads(row.claims):
            yield "/".join((driver, pool, device)), self._of_claim(driver, pool, device, instances)

    def _of_claim(self, driver: str, pool: str, device: str, instances: Mapping[str, str]) -> frozenset[str] | None:
        slices = [row for row in self.slice_uuids.where("pool", pool) if row.driver == driver]
        named = {tuple(uuids) for row in slices if (uuids := orjson.loads(row.devices).get(device))}
        if len(named) > 1:
            return _CONTRADICTED
        if not named:
            return None
        (uuids,) = named
        whole = {*uuids, *(instances[one] for one in uuids if one in instances)}
        return frozenset(whole) if any(one.startswith(_CARD) for one in whole) else None


def requests_devices(pod: Mapping[str, Any]) -> bool:
    """Whether a pod requests GPUs or claims, so that it may hold some."""
    spec = mapping(pod, "spec")
    containers = (*items(spec, "containers"), *items(spec, "initContainers"))
    names = (name for one in containers for part in ("limits", "requests") for name in mapping(one, "resources", part))
    return bool(items(spec, "resourceClaims")) or any(name.startswith(RESOURCE_GROUPS) for name in names)


def _observed(state: Holders, fact: Fact, data: AllocationObserved) -> None:
    before = state.container_units.get(fact.event.subject)
    if fact.event.imported or (before is not None and is_late(before.reported_at, fact.event.time)):
        return
    units = sorted({unit for held in data.resources for unit in held.devices})
    claims = sorted({(one.driver, one.pool, one.device) for one in data.claims})
    row = ContainerUnits(
        fact.event.subject, intern(data.node), intern(data.namespace), data.pod, json_text(units), json_text(claims),
        fact.event.time, _NOTHING if before is None else before.resolved,
    )  # fmt: skip
    state.container_units.put(state.resolved(row))


def _ended(state: Holders, fact: Fact, _data: AllocationEnded) -> None:
    before = state.container_units.get(fact.event.subject)
    if before is not None and not is_late(before.reported_at, fact.event.time):
        state.container_units.delete(fact.event.subject)


def _cards(state: Holders, fact: Fact, data: NodeDevicesObserved) -> None:
    if fact.event.imported:
        return
    found = {
        instance.uuid: card.uuid for card in data.cards for instance in card.mig_instances if card.uuid is not None
    }
    for row in state.container_units.where("node", fact.event.subject):
        state.container_units.put(state.resolved(row))
    state.node_cards.put(NodeCards(intern(fact.event.subject), json_text(found)))


def _node_gone(state: Holders, fact: Fact, _data: NodeGone) -> None:
    state.node_cards.delete(fact.event.subject)
    for row in state.container_units.where("node", fact.event.subject):
        if row.reported_at <= fact.event.time:
            state.container_units.delete(row.allocation)


def _published(state: Holders, fact: Fact, data: SlicePublished) -> None:
    devices = {one.name: uuids for one in data.devices if (uuids := list(_named_uuids(one.attributes.items())))}
    state.slice_uuids.put(SliceUuids(fact.event.subject, intern(data.driver), intern(data.pool), json_text(devices)))


def _named_uuids(attributes: Iterable[tuple[str, object]]) -> Iterator[str]:
    """The UUIDs among attributes, whose names a slice may write with or without the driver's domain."""
    for name, value in sorted(attributes, key=lambda one: one[0]):
        if name.rpartition("/")[2] in _UUIDS and isinstance(value, str):
            yield value


def _withdrawn(state: Holders, fact: Fact, _data: SliceWithdrawn) -> None:
    state.slice_uuids.delete(fact.event.subject)


HOLDER_HANDLERS: Handlers = {
    AllocationObserved: _observed,
    AllocationEnded: _ended,
    NodeDevicesObserved: _cards,
    NodeGone: _node_gone,
    SlicePublished: _published,
    SliceWithdrawn: _withdrawn,
}

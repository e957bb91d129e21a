"""Desired Devices, and what Nodes show of shared devices, from the offers that were decided. Pure.

A node whose label is gone keeps its row for a while, so that its Node loses what it showed.
"""

from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple

import orjson

from gpuledger.api.kinds import NODES
from gpuledger.api.sharing import GPU_MEMORY, SharingNames
from gpuledger.domain.fact import Fact, Handlers, TableState
from gpuledger.domain.inventory.state import json_text
from gpuledger.domain.quantities import UNIT, Quantity
from gpuledger.domain.sharing.checkpoints import checkpoints_of, checkpoints_text
from gpuledger.domain.sharing.offered import totals
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.tombstones import RowEnds
from gpuledger.edge.statuswriter.node_resources import resources_of
from gpuledger.edge.statuswriter.objects import DesiredObject, Document
from gpuledger.events.node_sharing import NodeSharingLabelled
from gpuledger.events.payload import Payload
from gpuledger.events.runtime import NodeGpuCheckpointsObserved
from gpuledger.events.sharing import NodeDevicesShared, SharedDevice, SharedFunctionGroup, SharedTopology


class NodeOffer(NamedTuple):
    """What a node offers, as JSON, and the UID of its Node; without an offer it has only got its label.

    `ended_at` is since when it offers nothing any more. `checkpoints` is the text of the annotation with what pods have
    without an allocation, where the node's runtime proxy reports that.
    """

    node: str
    uid: str | None
    offer: str
    ended_at: datetime | None
    checkpoints: str | None = None

    @property
    def payload(self) -> NodeDevicesShared | None:
        """The offer; None where the node offers nothing."""
        found = _read(self.offer) if self.offer else None
        return found if found is not None and found.enabled else None


OFFERS_MEMOIZED_MAX: Final = 4_096
"""How many offers are kept ready to read: metrics and writes read each several times."""


@lru_cache(maxsize=OFFERS_MEMOIZED_MAX)
def _read(offer: str) -> NodeDevicesShared:
    return NodeDevicesShared.model_validate(orjson.loads(offer))


NODE_OFFER: Final = TableSpec("node_offer", NodeOffer, ("node",))


class SharedNodes(TableState):
    """The offers of nodes."""

    def __init__(self) -> None:
        self.node = Table(NODE_OFFER)
        self.node.never_written()
        self._ends = RowEnds(self.node, lambda row: row.ended_at)
        self._touched: dict[str, None] = {}

    def take_touched(self) -> dict[str, None]:
        """The nodes whose offers changed since the last call."""
        touched, self._touched = self._touched, {}
        return touched

    def put(self, fact: Fact, row: NodeOffer) -> None:
        """Another offer, or another Node."""
        self.node.put(row)
        self._ends.note(row)
        self._ends.forget(fact)
        self._touched[row.node] = None

    def offer_of(self, node: str) -> NodeDevicesShared | None:
        """What a node offers; None while it shares nothing."""
        row = self.node.get(node)
        return None if row is None else row.payload

    def of(self, node: str) -> NodeOffer:
        """The row of a node, which begins empty."""
        return self.node.get(node) or NodeOffer(intern(node), None, "", None)


def desired_device(state: SharedNodes, node: str, names: SharingNames) -> DesiredObject | None:
    """The Device of a node; None while it offers nothing, or nobody knows the Node that it would be of."""
    row = state.node.get(node)
    offer = None if row is None else row.payload
    if row is None or row.uid is None or offer is None:
        return None
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node, "uid": row.uid}
    main = {
        "labels": model_label(offer, names),
        "annotations": {} if row.checkpoints is None else {names.checkpoints: row.checkpoints},
        "spec": {"devices": [_device(one, names) for one in offer.devices]},
        "ownerReferences": [owner],
    }
    return DesiredObject(main, {}, about=row.uid)


def desired_resources(state: SharedNodes, node: str, names: SharingNames) -> DesiredObject | None:
    """What a Node shows of shared devices; None where nothing was ever offered there.

    Unhealthy devices count as capacity and are not allocatable, as a kubelet counts those of a device plugin: so both
    write the same.
    """
    row = state.node.get(node)
    if row is None or not row.offer:
        return None
    offer = row.payload
    if offer is None:
        return DesiredObject({"labels": {}}, {})
    capacity = totals(offer.devices, with_unhealthy=True)
    allocatable = dict.fromkeys(capacity, 0) | totals(offer.devices)
    return DesiredObject({"labels": model_label(offer, names)}, resources_of(capacity, allocatable, names))


def model_label(offer: NodeDevicesShared, names: SharingNames) -> dict[str, str]:
    """The label with the model of a node's GPUs."""
    return {} if offer.model is None else {names.gpu_model: offer.model}


def _device(one: SharedDevice, names: SharingNames) -> Document:
    """A device as the CRD has it (seed 002, 4.3)."""
    found: Document = {"type": one.type, "minor": one.minor, "health": one.healthy}
    found["resources"] = {names.resource(name): _quantity(name, amount) for name, amount in one.resources.items()}
    if one.id is not None:
        found["id"] = one.id
    if one.module_id is not None:
        found["moduleID"] = one.module_id
    if one.labels:
        found["labels"] = dict(one.labels)
    if one.topology is not None:
        found["topology"] = _topology(one.topology)
    if one.function_groups:
        found["vfGroups"] = [_group(group) for group in one.function_groups]
    return found


def _topology(one: SharedTopology) -> Document:
    bus = {} if one.bus_id is None else {"busID": one.bus_id}
    return {"socketID": one.socket, "nodeID": one.numa, "pcieID": one.pcie, **bus}


def _group(one: SharedFunctionGroup) -> Document:
    labels = {"labels": dict(one.labels)} if one.labels else {}
    return {**labels, "vfs": [{"minor": vf.minor, "busID": vf.bus_id} for vf in one.functions]}


def _quantity(name: str, amount: int) -> str:
    """Memory as Kubernetes writes bytes (`81559Mi`), everything else as a plain number."""
    return str(Quantity(amount * UNIT, "binary")) if name == GPU_MEMORY else str(amount)


def _labelled(state: SharedNodes, fact: Fact, data: NodeSharingLabelled) -> None:
    row = state.of(fact.event.subject)
    if row.uid != data.uid:
        state.put(fact, row._replace(uid=data.uid))


def _shared(state: SharedNodes, fact: Fact, data: NodeDevicesShared) -> None:
    row = state.of(fact.event.subject)
    ended_at = None if data.enabled else fact.event.time
    state.put(fact, row._replace(offer=_text(data), ended_at=ended_at))


def _text(data: Payload) -> str:
    return json_text(data.model_dump(mode="json", exclude_none=True))


def _checkpoints_observed(state: SharedNodes, fact: Fact, data: NodeGpuCheckpointsObserved) -> None:
    row, text = state.of(fact.event.subject), checkpoints_text(checkpoints_of(data))
    if row.checkpoints != text:
        state.put(fact, row._replace(checkpoints=text))


HANDLERS: Handlers = {
    NodeSharingLabelled: _labelled,
    NodeGpuCheckpointsObserved: _checkpoints_observed,
    NodeDevicesShared: _shared,
}

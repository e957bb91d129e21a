"""Folds nodes: the facts about each, now and at any time.

Versions that are over leave memory, and are read back for a late fact.
"""

import re
from datetime import datetime
from typing import NamedTuple

from gpuledger.api.labels import GFD_PRODUCT, LABEL_DEVICE_COUNT
from gpuledger.domain.fact import Fact, Handlers, TableState, Touched
from gpuledger.domain.table import Table, TableSpec
from gpuledger.domain.versions import put_version
from gpuledger.events.node import NodeDecommissioned, NodeGone, NodeObserved, NodeRegistered
from gpuledger.events.position import Offset
from gpuledger.events.slot import SlotDeclared

COUNT = re.compile(r"[0-9]{1,9}").fullmatch
"""Matches a count in a label."""


class Node(NamedTuple):
    """A node as it is now; `slots` counts the slots declared on it."""

    node: str
    first_seen_at: datetime
    present: bool
    gpu_count: int | None
    gpu_model: str | None
    cpu_milli: int | None
    memory_mib: int | None
    slots: int


class NodeVersion(NamedTuple):
    """A version of a node, from when to when. `present` is false after it was decommissioned."""

    node: str
    valid_from: datetime
    valid_to: datetime | None
    position: Offset
    present: bool
    gpu_count: int | None
    gpu_model: str | None
    cpu_milli: int | None
    memory_mib: int | None


class NodeSlot(NamedTuple):
    """A slot declared on a node, and when it first was."""

    node: str
    slot: str
    declared_at: datetime


NODE = TableSpec("node", Node, ("node",))
NODE_HISTORY: TableSpec[NodeVersion] = TableSpec(
    "node_history", NodeVersion, ("node", "valid_from"), retires=("valid_to",), page_by=("node",)
)
NODE_SLOT = TableSpec("node_slot", NodeSlot, ("node", "slot"))
SPECS = (NODE, NODE_HISTORY, NODE_SLOT)


class Nodes(TableState):
    """The state of the nodes projection."""

    def __init__(self) -> None:
        self.node = Table(NODE)
        self.history = Table(NODE_HISTORY, "node")
        self.slot = Table(NODE_SLOT)


def touched(state: Nodes, fact: Fact) -> Touched:
    """The versions of a node, where an event is of a time before the latest.

    One of a later time follows on those that are in memory, whatever comes before it in its batch.
    """
    node = fact.event.subject
    if isinstance(fact.event.data, SlotDeclared):
        return ()
    versions = state.history.where("node", node)
    if all(version.valid_from <= fact.event.time for version in versions):
        return ()
    return [(NODE_HISTORY.name, "node", node)]


def _registered(state: Nodes, fact: Fact, data: NodeRegistered) -> None:
    version = _version(fact, present=True)
    _put(
        state,
        version._replace(
            gpu_count=data.gpu_count,
            gpu_model=data.gpu_model,
            cpu_milli=data.cpu_milli,
            memory_mib=data.memory_mib,
        ),
    )


def _left(state: Nodes, fact: Fact, _data: NodeDecommissioned | NodeGone) -> None:
    _put(state, _version(fact, present=False))


def _observed(state: Nodes, fact: Fact, data: NodeObserved) -> None:
    """The facts about GPUs in a Node's labels; a count that is no number counts as unknown."""
    count = data.labels.get(LABEL_DEVICE_COUNT, "")
    gpu_count = int(count) if COUNT(count) else None
    model = data.labels.get(GFD_PRODUCT) or None
    _put(state, _version(fact, present=True)._replace(gpu_count=gpu_count, gpu_model=model))


def _declared(state: Nodes, fact: Fact, data: SlotDeclared) -> None:
    time, slot = fact.event.time, fact.event.subject
    previous = state.slot.get((data.node, slot))
    if previous is None or time < previous.declared_at:
        state.slot.put(NodeSlot(data.node, slot, time))
    node = state.node.get(data.node) or Node(data.node, time, *_version(fact, present=True)[4:], 0)
    state.node.put(node._replace(first_seen_at=min(node.first_seen_at, time), slots=node.slots + (previous is None)))


def _version(fact: Fact, *, present: bool) -> NodeVersion:
    event = fact.event
    return NodeVersion(event.subject, event.time, None, fact.sequence, present, None, None, None, None)


def _put(state: Nodes, version: NodeVersion) -> None:
    latest = put_version(state.history, state.history.where("node", version.node), version)
    previous = state.node.get(version.node)
    first_seen_at = version.valid_from if previous is None else min(previous.first_seen_at, version.valid_from)
    slots = 0 if previous is None else previous.slots
    state.node.put(Node(version.node, first_seen_at, *latest[4:], slots))


HANDLERS: Handlers = {
    NodeRegistered: _registered,
    NodeDecommissioned: _left,
    NodeObserved: _observed,
    NodeGone: _left,
    SlotDeclared: _declared,
}

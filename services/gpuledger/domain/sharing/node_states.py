"""Keeps a `NodeState` for each node that shares devices, in step with the fold of who holds what. Pure."""

from collections.abc import Mapping

from gpuledger.domain.sharing.checkpoints import held_by_pods
from gpuledger.domain.sharing.model import Allocation, Device, NodeState
from gpuledger.domain.sharing.partition_tables import table_of
from gpuledger.domain.sharing.rows import NO_ALLOCATION
from gpuledger.domain.sharing.state import Sharing, TouchedSharing
from gpuledger.domain.sharing.texts import allocation_of, devices_of


def located(allocation: Allocation, devices: Mapping[str, Mapping[int, Device]]) -> Allocation:
    """The allocation by the present minors of its devices, which drivers may number anew.

    A device is its id: containers go by it too. One without an id, or whose id the node has no more, keeps its minor,
    so that the card that came in its place counts as held as long as the pod is there.
    """
    return {
        kind: tuple(
            one._replace(minor=minors.get(one.id, one.minor)) if one.id is not None else one for one in allocated
        )
        for kind, allocated in allocation.items()
        for minors in [_minors(devices.get(kind, {}))]
    }


def _minors(devices: Mapping[int, Device]) -> dict[str, int]:
    return {one.id: minor for minor, one in devices.items() if one.id is not None}


class NodeStates:
    """The nodes that share devices, by name, as of the last `refresh`.

    It costs as much as there are changes. What a pod holds of a node that is gone or shares nothing is kept aside, and
    counts as soon as the node shares devices again. What pods have without an allocation counts as held by them, all
    of each device; an allocation of such a pod on the node takes its place.
    """

    def __init__(self, state: Sharing) -> None:
        self.nodes: dict[str, NodeState] = {}
        self._state = state
        self._held: dict[str, tuple[str, str]] = {}
        self._holders: dict[str, dict[str, None]] = {}
        self._unallocated: dict[str, dict[str, Allocation]] = {}
        self._apply(state.follow())

    def refresh(self) -> TouchedSharing:
        """Follow what was folded since the last call; returns the nodes whose states changed, and the pods."""
        touched = self._state.take_touched()
        return self._apply(touched)

    def has_without_allocation(self, node: str, uid: str) -> bool:
        """Whether a pod has devices of a node that nobody allocated to it; it runs, and ran before sharing came."""
        return uid in self._unallocated.get(node, ())

    def _apply(self, touched: TouchedSharing) -> TouchedSharing:
        nodes = dict.fromkeys(touched.nodes)
        for node in touched.nodes:
            self._set_node(node)
        for uid in touched.pods:
            nodes.update(dict.fromkeys(self._set_pod(uid)))
        for node in nodes:
            self._set_unallocated(node)
        return TouchedSharing(tuple(nodes), touched.pods)

    def _set_node(self, name: str) -> None:
        row = self._state.shared_node.get(name)
        if row is None or not row.present:
            self.nodes.pop(name, None)
            self._unallocated.pop(name, None)
            return
        node = self.nodes.get(name)
        before = None if node is None else _places(node)
        if node is None:
            node = self.nodes[name] = NodeState(name)
        node.partition_policy, node.partitions = row.partition_policy, table_of(None, row.model)
        node.set_devices(devices_of(row.devices))
        if before != _places(node):
            for uid in self._holders.get(name, ()):
                node.hold(uid, located(allocation_of(self._held[uid][1]), node.devices))

    def _set_unallocated(self, name: str) -> None:
        """Follow what pods of a node have without an allocation."""
        node = self.nodes.get(name)
        if node is None:
            return
        before = self._unallocated.pop(name, {})
        found = held_by_pods(self._state.checkpoints_of(name), node.devices)
        allocated = self._holders.get(name, {})
        now = {uid: allocation for uid, allocation in found.items() if uid not in allocated}
        for uid in before:
            if uid not in now and uid not in allocated:
                node.release(uid)
        for uid, allocation in now.items():
            if node.holders.get(uid) != allocation:
                node.hold(uid, allocation)
        if now:
            self._unallocated[name] = now

    def _set_pod(self, uid: str) -> list[str]:
        """Follow what a pod holds; returns the nodes that this changes."""
        row, before = self._state.shared_pod.get(uid), self._held.get(uid)
        now = None
        if row is not None and row.node is not None and row.allocation != NO_ALLOCATION:
            now = (row.node, row.allocation)
        if now == before:
            return []
        if before is not None:
            self._release(uid, before[0])
        if now is not None:
            self._hold(uid, *now)
        return [one[0] for one in (before, now) if one is not None]

    def _release(self, uid: str, name: str) -> None:
        del self._held[uid]
        holders = self._holders[name]
        del holders[uid]
        if not holders:
            del self._holders[name]
        node = self.nodes.get(name)
        if node is not None:
            node.release(uid)

    def _hold(self, uid: str, name: str, allocation: str) -> None:
        self._held[uid] = (name, allocation)
        self._holders.setdefault(name, {})[uid] = None
        node = self.nodes.get(name)
        if node is not None:
            node.hold(uid, located(allocation_of(allocation), node.devices))


def _places(node: NodeState) -> dict[str, dict[str, int]]:
    """By type the minor of each id."""
    return {kind: _minors(devices) for kind, devices in node.devices.items()}

"""Nodes as placements see them: their state in one number, which equal nodes share, and what is free of GPUs. Pure.

A cluster has many nodes that are alike. Whether a request fits, and its score, depend on no more than a node's devices
and what is used of them, so a result that was computed of one node holds for all nodes in the same state.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, count
from operator import is_not, ne
from typing import Final, NamedTuple

from gpuledger.api.sharing import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from gpuledger.domain.sharing.model import Amounts, Device, NodeState

STATES_MAX: Final = 8_192
"""So many states have a number; then they are numbered anew, and what was remembered of the old numbers is lost."""

GONE_MAX: Final = 1_000
"""So many nodes that are gone may be remembered."""

SHARES: Final = (GPU_CORE, GPU_MEMORY_RATIO)
"""The resources that are percentages of a GPU."""


class FreeGpu(NamedTuple):
    """A GPU, the first one of those of its node that have the same free; `place` is its place among the shares."""

    place: int
    device: Device
    free: Amounts


class NodeView:
    """A node, and what was derived of it at `version`. `state` is equal for equal nodes; `stamp` is never reused."""

    __slots__ = ("_shaped", "gpus", "node", "shape", "shares", "stamp", "state", "version")

    def __init__(self, node: NodeState) -> None:
        self.node = node
        self.version = -1
        self.state = -1
        self.stamp = -1
        self.shape: Hashable = None
        self._shaped: tuple[object, ...] | None = None
        self.shares: tuple[int, ...] = ()
        self.gpus: list[FreeGpu] = []

    def refresh(self) -> None:
        """Derive everything of the node as it is now."""
        node = self.node
        parts = (node.devices, node.partitions, node.partition_policy, node.labels)
        if self._shaped is None or any(map(is_not, parts, self._shaped)):
            self._shaped, self.shape = parts, _shape(node)
        free = [node.free(GPU, minor) for minor in node.devices.get(GPU, ())]
        self.shares = tuple(map(share_of, free))
        self.gpus = list(_alike(node.devices.get(GPU, {}), free))
        self.version = node.version

    def key(self) -> Hashable:
        """Equal for nodes that are in the same state."""
        node = self.node
        used = [
            (kind, minor, amounts)
            for kind, of_kind in sorted(node.used.items())
            for minor, used in sorted(of_kind.items())
            if (amounts := tuple(sorted((name, amount) for name, amount in used.items() if amount)))
        ]
        held = [(device, tuple(sorted(functions))) for device, functions in node.functions_held.items() if functions]
        return self.shape, tuple(used), tuple(sorted(held))


class OrderedViews:
    """All nodes, in one order: their views, versions and stamps."""

    __slots__ = ("nodes", "stamps", "versions", "views")

    def __init__(self, nodes: list[NodeState], views: list[NodeView]) -> None:
        self.nodes = nodes
        self.views = views
        self.versions = [-1] * len(nodes)
        self.stamps = [-1] * len(nodes)


class NodeViews:
    """The views of all nodes of a mapping, which others change, as do the nodes; every call follows them."""

    def __init__(self, nodes: Mapping[str, NodeState]) -> None:
        self._nodes = nodes
        self._views: dict[str, NodeView] = {}
        self._states: dict[Hashable, int] = {}
        self._numbers = count()
        self._stamps = count()
        self._renumbered = False
        self._ordered = OrderedViews([], [])
        self.gpu_memory = 0
        """The most memory that a GPU has had, in bytes."""

    def of(self, name: str) -> NodeView | None:
        """The node as it is now; None if there is none."""
        node = self._nodes.get(name)
        if node is None:
            self._views.pop(name, None)
            return None
        view = self._views[name] = self._view(name, node)
        if view.version != node.version:
            self._refresh(view)
        return view

    def named(self, names: Iterable[str]) -> list[tuple[str, NodeView | None]]:
        """Nodes as they are now, by name."""
        found = []
        for name in names:
            node, view = self._nodes.get(name), self._views.get(name)
            is_current = view is not None and view.node is node and view.version == view.node.version
            found.append((name, view if is_current else self.of(name)))
        return found

    def all(self) -> "OrderedViews":
        """All nodes as they are now, in the order of the mapping."""
        nodes, ordered = list(self._nodes.values()), self._ordered
        if nodes != ordered.nodes:
            views = [self._view(name, node) for name, node in self._nodes.items()]
            self._views = dict(zip(self._nodes, views, strict=True))
            ordered = self._ordered = OrderedViews(nodes, views)
        versions = [node.version for node in nodes]
        for place in compress(range(len(nodes)), map(ne, versions, ordered.versions)):
            view = ordered.views[place]
            if view.version != versions[place]:
                self._refresh(view)
            ordered.stamps[place] = view.stamp
        ordered.versions = versions
        return ordered

    def take_renumbered(self) -> bool:
        """Whether states were numbered anew since the last call, so that results by older numbers are useless."""
        renumbered, self._renumbered = self._renumbered, False
        return renumbered

    def _view(self, name: str, node: NodeState) -> NodeView:
        view = self._views.get(name)
        if view is not None and view.node is node:
            return view
        if len(self._views) > GONE_MAX + len(self._nodes):
            self._views = {name: view for name, view in self._views.items() if name in self._nodes}
        return NodeView(node)

    def _refresh(self, view: NodeView) -> None:
        view.refresh()
        memory = [one.device.resources.get(GPU_MEMORY, 0) for one in view.gpus]
        self.gpu_memory = max(self.gpu_memory, *memory, 0)
        key = view.key()
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= STATES_MAX:
                self._states.clear()
                self._renumbered = True
            state = self._states[key] = next(self._numbers)
        view.state, view.stamp = state, next(self._stamps)


def share_of(free: Amounts) -> int:
    """How much of a GPU is free for pods, in percent: the least of its percentages; 0 if it has nothing to give."""
    return min([free[name] for name in SHARES if name in free], default=0)


def _alike(devices: Mapping[int, Device], free: Sequence[Amounts]) -> Iterator[FreeGpu]:
    seen = set()
    for place, (device, amounts) in enumerate(zip(devices.values(), free, strict=True)):
        key = (tuple(amounts.items()), device.resources.get(GPU_MEMORY), tuple(device.labels.items()))
        if amounts and key not in seen:
            seen.add(key)
            yield FreeGpu(place, device, amounts)


def _shape(node: NodeState) -> Hashable:
    devices = [_device(one) for of_kind in node.devices.values() for one in of_kind.values()]
    labels = tuple(sorted(node.labels.items()))
    return tuple(devices), tuple(sorted(node.partitions.items())), node.partition_policy, labels


def _device(one: Device) -> Hashable:
    """All of a device but its id and its place on the bus, which decide nothing about whether a request fits."""
    topology = one.topology and one.topology._replace(bus_id=None)
    groups = tuple((tuple(sorted(group.labels.items())), group.functions) for group in one.function_groups)
    amounts, labels = tuple(sorted(one.resources.items())), tuple(sorted(one.labels.items()))
    return one.type, one.minor, one.healthy, amounts, topology, labels, groups

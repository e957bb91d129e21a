"""Lists the devices that a request could have, and for each of the others the constraints that keep it away. Pure.

The rules are the allocator's, applied to one request with its own selectors, tolerations, amounts and administrators'
access. The caller evaluates selectors, so that nothing here knows the expression language.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from gpuledger.domain.dra.constraints import (
    UNSELECTED,
    DeviceConstraint,
    Mismatch,
    in_order,
    of_device,
    of_view,
    outdated,
)
from gpuledger.domain.dra.counters import Left, counters_left, overdrawn_counters
from gpuledger.domain.dra.device_state import taints_of
from gpuledger.domain.dra.objects import DraDevice, LabelledNode, PoolId, Reach, Slice
from gpuledger.domain.dra.pool_index import EVERYWHERE, PoolIndex, view_of
from gpuledger.domain.dra.pools import LocatedDevice, PoolView, seen_everywhere, seen_from
from gpuledger.domain.dra.reach import in_reach, reaches
from gpuledger.domain.dra.state import Availability
from gpuledger.domain.dra.use import Use
from gpuledger.events.claim import Wish
from gpuledger.events.slice import DeviceClassDefined, SliceDevice, SlicePublished


class SelectorInput(NamedTuple):
    """A device as selectors see it."""

    driver: str
    payload: SliceDevice


Selects = Callable[[str, SelectorInput], bool | str]
"""Whether an expression selects a device; a text is the error of an expression that cannot be evaluated."""


class Candidate(NamedTuple):
    """A device with the constraints that keep one request from it, the most important first."""

    pool: PoolId
    slice: str
    device: DraDevice
    payload: SliceDevice
    use: Use
    constraints: tuple[DeviceConstraint, ...]

    @property
    def is_free(self) -> bool:
        """Whether the request can have it."""
        return not self.constraints

    @property
    def matches(self) -> bool:
        """Whether the selectors of the class and of the request select it."""
        return not self.constraints or self.constraints[0].kind not in UNSELECTED


class PublishedDevice(NamedTuple):
    """A device as its slice publishes it, with its position there."""

    located: LocatedDevice
    payload: SliceDevice
    place: int


class VisiblePool(NamedTuple):
    """A pool as a node or the whole cluster sees it: its devices, their uses, and the remaining counters."""

    pool: PoolId
    node: LabelledNode | None
    view: PoolView
    published: tuple[PublishedDevice, ...]
    uses: Mapping[str, Use]
    left: Left
    overdrawn: Sequence[str]


class ClusterDevices:
    """All devices of a cluster, to be matched with requests."""

    def __init__(self, state: Availability, selects: Selects) -> None:
        self.state = state
        self._selects = selects
        self._payloads: dict[str, tuple[SliceDevice, ...]] = {}
        self._selected: dict[tuple[str, str, int], bool | str] = {}
        self._reached: dict[Reach, bool] = {}
        self._nodes = {name: state.node(name) for name in state.node_labels.rows}
        rows = state.slice.rows.values()
        self._without_node = {PoolId(row.driver, row.pool) for row in rows if row.node is None}

    @property
    def nodes(self) -> Mapping[str, LabelledNode]:
        """The nodes whose labels are known."""
        return self._nodes

    def visible_pools(self) -> Iterator[VisiblePool]:
        """Every pool, once for each of its views."""
        for pool in self.state.pools():
            index = self.state.index(pool)
            for name in index.views():
                node = None if name == EVERYWHERE else self.state.node(name)
                every = list(index.slices.values())
                view = seen_everywhere(every) if node is None else seen_from(every, node)
                yield self._visible(pool, node, view, [one for one in every if view_of(one) == name], index)

    def visible_from(self, node: LabelledNode) -> Iterator[VisiblePool]:
        """The pools that a node can reach."""
        own = {PoolId(row.driver, row.pool) for row in self.state.slice.where("node", node.name)}
        for pool in sorted(own | self._without_node):
            index = self.state.index(pool)
            every = list(index.slices.values())
            near = [one for one in every if one.devices and in_reach(one, node)]
            if near:
                yield self._visible(pool, node, seen_from(every, node), near, index)

    def selectors(self, wish: Wish) -> list[tuple[str, str]] | None:
        """Each selector with the place that defines it; None where the DeviceClass does not exist."""
        row = self.state.device_class.get(wish.device_class)
        if row is None:
            return None
        of_class = DeviceClassDefined.model_validate(orjson.loads(row.payload)).selectors
        own = [("the request", expression) for expression in wish.selectors]
        return [(f"DeviceClass {wish.device_class}", expression) for expression in of_class] + own

    def candidates(self, visible: VisiblePool, wish: Wish) -> list[Candidate]:
        """Every visible device with the request's constraints; none where the DeviceClass does not exist."""
        selectors = self.selectors(wish)
        if selectors is None:
            return []
        of_pool = tuple(of_view(visible.view))
        return [
            Candidate(
                visible.pool,
                one.located.slice.name,
                one.located.device,
                one.payload,
                visible.uses[one.located.device.name],
                self._constraints(visible, wish, selectors, of_pool, one),
            )
            for one in visible.published
        ]

    def _constraints(
        self,
        visible: VisiblePool,
        wish: Wish,
        selectors: Sequence[tuple[str, str]],
        of_pool: tuple[DeviceConstraint, ...],
        one: PublishedDevice,
    ) -> tuple[DeviceConstraint, ...]:
        unselected = self._unselected(selectors, one)
        if unselected is not None:
            return (unselected,)
        device, index = one.located.device, self.state.index(visible.pool)
        taints = taints_of(visible.pool, device, self.state.rules.about(visible.pool))
        is_current = one.located.slice in visible.view.slices
        of_slice = of_pool if is_current else (outdated(one.located, visible.view),)
        use, holdings = visible.uses[device.name], index.holdings(device.name)
        own = of_device(wish, device, use, visible.left, visible.overdrawn, holdings, taints)
        return (*self._out_of_reach(visible, one.located), *in_order((*own, *of_slice)))

    def _unselected(self, selectors: Sequence[tuple[str, str]], one: PublishedDevice) -> DeviceConstraint | None:
        source = one.located.slice
        for where, expression in selectors:
            key = (expression, source.name, one.place)
            if key not in self._selected:
                self._selected[key] = self._selects(expression, SelectorInput(source.pool.driver, one.payload))
            found = self._selected[key]
            if isinstance(found, str):
                return DeviceConstraint(Mismatch.SELECTOR_FAILS, f"{where}: {expression}: {found}")
            if not found:
                return DeviceConstraint(Mismatch.SELECTOR, f"{where}: {expression}")
        return None

    def _out_of_reach(self, visible: VisiblePool, located: LocatedDevice) -> Iterator[DeviceConstraint]:
        reach = located.device.reach if located.slice.reach is None else located.slice.reach
        if reach is None:
            yield DeviceConstraint(Mismatch.UNREACHABLE, "it names no node that can use it")
        elif visible.node is not None and not reaches(reach, visible.node):
            yield DeviceConstraint(Mismatch.UNREACHABLE, f"from node {visible.node.name}")
        elif self._nodes and not self._is_reached(reach):
            yield DeviceConstraint(Mismatch.UNREACHABLE, "from any node that is known")

    def _is_reached(self, reach: Reach) -> bool:
        if reach.everywhere or reach.node in self._nodes:
            return True
        if reach not in self._reached:
            self._reached[reach] = any(reaches(reach, node) for node in self._nodes.values())
        return self._reached[reach]

    def _visible(
        self, pool: PoolId, node: LabelledNode | None, view: PoolView, slices: Iterable[Slice], index: PoolIndex
    ) -> VisiblePool:
        published = tuple(published for one in slices for published in self._published(one))
        names = {device.name for one in (*view.slices, *slices) for device in one.devices}
        uses = {name: index.use(name) for name in names}
        left = counters_left(view, uses) if view.gives else {}
        return VisiblePool(pool, node, view, published, uses, left, overdrawn_counters(left))

    def _published(self, one: Slice) -> Iterator[PublishedDevice]:
        cached = self._payloads.get(one.name)
        if cached is None:
            payload = SlicePublished.model_validate(orjson.loads(self.state.slice.rows[one.name].payload))
            cached = self._payloads[one.name] = payload.devices
        pairs = zip(one.devices, cached, strict=False)  # one that defines counters offers no devices, whatever it lists
        return (
            PublishedDevice(LocatedDevice(one, device), payload, index) for index, (device, payload) in enumerate(pairs)
        )

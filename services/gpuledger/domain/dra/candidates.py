"""Which devices a request could have, and what is in the way of each of the others. Pure.

The rules are the allocator's, asked for one request with its own selectors, tolerations, amounts and administrators'
access. What a selector says about a device is asked of whoever calls, so that nothing here evaluates an expression.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from gpuledger.domain.dra.constraints import UNSELECTED, Hindrance, Mismatch, in_order, of_device, of_view, outdated
from gpuledger.domain.dra.counters import Left, counters_left, overdrawn_counters
from gpuledger.domain.dra.fold import Availability
from gpuledger.domain.dra.objects import Device, Node, PoolId, Reach, Slice
from gpuledger.domain.dra.pool_index import EVERYWHERE, Book, view_of
from gpuledger.domain.dra.pools import Placed, PoolView, seen_everywhere, seen_from
from gpuledger.domain.dra.reach import in_reach, reaches
from gpuledger.domain.dra.use import Use
from gpuledger.domain.dra.verdicts import taints_of
from gpuledger.events.claim import Wish
from gpuledger.events.slice import DeviceClassDefined, SliceDevice, SlicePublished


class Offered(NamedTuple):
    """A device as selectors see it."""

    driver: str
    said: SliceDevice


Selects = Callable[[str, Offered], bool | str]
"""Whether an expression selects a device; a text tells why it could not be evaluated."""


class Candidate(NamedTuple):
    """A device as one request meets it; the first hindrance is the most telling."""

    pool: PoolId
    slice: str
    device: Device
    said: SliceDevice
    use: Use
    hindrances: tuple[Hindrance, ...]

    @property
    def is_free(self) -> bool:
        """Whether the request can have it."""
        return not self.hindrances

    @property
    def matches(self) -> bool:
        """Whether the selectors of the class and of the request select it."""
        return not self.hindrances or self.hindrances[0].kind not in UNSELECTED


class Offer(NamedTuple):
    """A device where it is published, with its place in the slice."""

    placed: Placed
    said: SliceDevice
    place: int


class Sight(NamedTuple):
    """A pool as seen from a node, or from the whole cluster: the devices that are looked at, and what is left of it."""

    pool: PoolId
    node: Node | None
    view: PoolView
    offers: tuple[Offer, ...]
    uses: Mapping[str, Use]
    left: Left
    overdrawn: Sequence[str]


class Field:
    """What a cluster offers to requests."""

    def __init__(self, state: Availability, selects: Selects) -> None:
        self.state = state
        self._selects = selects
        self._said: dict[str, tuple[SliceDevice, ...]] = {}
        self._selected: dict[tuple[str, str, int], bool | str] = {}
        self._reached: dict[Reach, bool] = {}
        self._nodes = {name: state.node(name) for name in state.node_labels.rows}
        rows = state.slice.rows.values()
        self._without_node = {PoolId(row.driver, row.pool) for row in rows if row.node is None}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes whose labels are known."""
        return self._nodes

    def sights(self) -> Iterator[Sight]:
        """Every pool, once for each view that it is offered in."""
        for pool in self.state.pools():
            book = self.state.book(pool)
            for name in book.views():
                node = None if name == EVERYWHERE else self.state.node(name)
                every = list(book.slices.values())
                view = seen_everywhere(every) if node is None else seen_from(every, node)
                yield self._sight(pool, node, view, [one for one in every if view_of(one) == name], book)

    def sights_from(self, node: Node) -> Iterator[Sight]:
        """The pools that a node can reach."""
        own = {PoolId(row.driver, row.pool) for row in self.state.slice.where("node", node.name)}
        for pool in sorted(own | self._without_node):
            book = self.state.book(pool)
            every = list(book.slices.values())
            near = [one for one in every if one.devices and in_reach(one, node)]
            if near:
                yield self._sight(pool, node, seen_from(every, node), near, book)

    def selectors(self, wish: Wish) -> list[tuple[str, str]] | None:
        """Where each expression stands, and the expression; None where the DeviceClass does not exist."""
        row = self.state.device_class.get(wish.device_class)
        if row is None:
            return None
        of_class = DeviceClassDefined.model_validate(orjson.loads(row.said)).selectors
        own = [("the request", expression) for expression in wish.selectors]
        return [(f"DeviceClass {wish.device_class}", expression) for expression in of_class] + own

    def candidates(self, sight: Sight, wish: Wish) -> list[Candidate]:
        """Every device that is seen, as the request meets it; none where its DeviceClass does not exist."""
        selectors = self.selectors(wish)
        if selectors is None:
            return []
        of_pool = tuple(of_view(sight.view))
        return [
            Candidate(
                sight.pool,
                one.placed.slice.name,
                one.placed.device,
                one.said,
                sight.uses[one.placed.device.name],
                self._hindrances(sight, wish, selectors, of_pool, one),
            )
            for one in sight.offers
        ]

    def _hindrances(
        self,
        sight: Sight,
        wish: Wish,
        selectors: Sequence[tuple[str, str]],
        of_pool: tuple[Hindrance, ...],
        one: Offer,
    ) -> tuple[Hindrance, ...]:
        unselected = self._unselected(selectors, one)
        if unselected is not None:
            return (unselected,)
        device, book = one.placed.device, self.state.book(sight.pool)
        taints = taints_of(sight.pool, device, self.state.rules.about(sight.pool))
        is_current = one.placed.slice in sight.view.slices
        of_slice = of_pool if is_current else (outdated(one.placed, sight.view),)
        use, holdings = sight.uses[device.name], book.holdings(device.name)
        own = of_device(wish, device, use, sight.left, sight.overdrawn, holdings, taints)
        return (*self._out_of_reach(sight, one.placed), *in_order((*own, *of_slice)))

    def _unselected(self, selectors: Sequence[tuple[str, str]], one: Offer) -> Hindrance | None:
        source = one.placed.slice
        for where, expression in selectors:
            key = (expression, source.name, one.place)
            if key not in self._selected:
                self._selected[key] = self._selects(expression, Offered(source.pool.driver, one.said))
            found = self._selected[key]
            if isinstance(found, str):
                return Hindrance(Mismatch.SELECTOR_FAILS, f"{where}: {expression}: {found}")
            if not found:
                return Hindrance(Mismatch.SELECTOR, f"{where}: {expression}")
        return None

    def _out_of_reach(self, sight: Sight, placed: Placed) -> Iterator[Hindrance]:
        reach = placed.device.reach if placed.slice.reach is None else placed.slice.reach
        if reach is None:
            yield Hindrance(Mismatch.UNREACHABLE, "it names no node that can use it")
        elif sight.node is not None and not reaches(reach, sight.node):
            yield Hindrance(Mismatch.UNREACHABLE, f"from node {sight.node.name}")
        elif self._nodes and not self._is_reached(reach):
            yield Hindrance(Mismatch.UNREACHABLE, "from any node that is known")

    def _is_reached(self, reach: Reach) -> bool:
        if reach.everywhere or reach.node in self._nodes:
            return True
        if reach not in self._reached:
            self._reached[reach] = any(reaches(reach, node) for node in self._nodes.values())
        return self._reached[reach]

    def _sight(self, pool: PoolId, node: Node | None, view: PoolView, slices: Iterable[Slice], book: Book) -> Sight:
        offers = tuple(offer for one in slices for offer in self._offers(one))
        names = {device.name for one in (*view.slices, *slices) for device in one.devices}
        uses = {name: book.use(name) for name in names}
        left = counters_left(view, uses) if view.gives else {}
        return Sight(pool, node, view, offers, uses, left, overdrawn_counters(left))

    def _offers(self, one: Slice) -> Iterator[Offer]:
        known = self._said.get(one.name)
        if known is None:
            said = SlicePublished.model_validate(orjson.loads(self.state.slice.rows[one.name].said))
            known = self._said[one.name] = said.devices
        pairs = zip(one.devices, known, strict=False)  # one that defines counters offers no devices, whatever it lists
        return (Offer(Placed(one, device), said, index) for index, (device, said) in enumerate(pairs))

"""What is known of one pool, kept so that a claim costs what it touches and not what the pool holds. Pure.

A book keeps the pool's slices, who holds which device, and each view that was asked for, evaluated. A claim that comes
or goes has only its own devices looked at again; where devices share counters, all those that consume some.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from gpuledger.domain.dra.counters import Left, counters_left
from gpuledger.domain.dra.objects import ClaimId, Device, Holding, Node, PoolId, Slice, TaintRule
from gpuledger.domain.dra.pools import Placed, PoolView, seen_everywhere, seen_from
from gpuledger.domain.dra.use import UNUSED, Use, uses_of
from gpuledger.domain.dra.verdicts import DeviceState, Obstacle, Verdict, placed_verdict, state_of, taints_of

EVERYWHERE: Final = ""
"""The name of the view of the whole cluster; others are named after their node."""


class Standing(NamedTuple):
    """How a device stands in a view."""

    device: Device
    use: Use
    verdict: Verdict
    state: DeviceState
    reason: Obstacle | None


class Evaluated:
    """A view with all its devices: those of its own slices, whatever their generation."""

    def __init__(self, view: PoolView, own: tuple[Slice, ...]) -> None:
        self.view = view
        self.own = own
        self.left: Left = {}
        self.standings: dict[str, dict[str, Standing]] = {one.name: {} for one in own}
        self.counts: Counter[DeviceState] = Counter()
        self.allocated = 0
        self._placed: dict[str, list[Placed]] = {}
        for one in own:
            for device in one.devices:
                self._placed.setdefault(device.name, []).append(Placed(one, device))
        self._consuming = [name for name, placed in self._placed.items() if any(one.device.consumes for one in placed)]

    @property
    def names(self) -> Iterable[str]:
        """The devices of the own slices."""
        return self._placed

    def update(
        self, names: Iterable[str], pool: PoolId, uses: Mapping[str, Use], rules: Iterable[TaintRule]
    ) -> set[str]:
        """Look at some devices again; returns the slices in which something is otherwise now."""
        names, left = dict.fromkeys(names), counters_left(self.view, uses) if self.view.shared() else {}
        if left != self.left:
            self.left = left
            names |= dict.fromkeys(self._consuming)
        return {
            placed.slice.name
            for name in names
            for placed in self._placed.get(name, ())
            if self._put(placed, uses.get(name, UNUSED), taints_of(pool, placed.device, rules))
        }

    def owner(self) -> str:
        """The slice that tells about the pool: the first of those that count, or of all where none does."""
        current = [one.name for one in self.own if one in self.view.slices]
        return min(current or [one.name for one in self.own])

    def _put(self, placed: Placed, use: Use, taints: Iterable[object]) -> bool:
        found = placed_verdict(self.view, placed, use, self.left, taints)  # type: ignore[arg-type]
        standing = Standing(placed.device, use, found, *state_of(use, found))
        known = self.standings[placed.slice.name].get(placed.device.name)
        if known is not None:
            self.counts[known.state] -= 1
            self.allocated -= known.use.is_used
        self.counts[standing.state] += 1
        self.allocated += use.is_used
        self.standings[placed.slice.name][placed.device.name] = standing
        return known != standing


class Book:
    """One pool."""

    def __init__(self, pool: PoolId) -> None:
        self.pool = pool
        self.slices: dict[str, Slice] = {}
        self._held: dict[str, dict[tuple[ClaimId, str, str], Holding]] = {}
        self._uses: dict[str, Use] = {}
        self._views: dict[str, Evaluated] = {}

    def __bool__(self) -> bool:
        return bool(self.slices or self._held)

    def publish(self, one: Slice) -> None:
        """A slice is there, or is another now."""
        self.slices[one.name] = one
        self._views.clear()

    def withdraw(self, name: str) -> None:
        """A slice is gone."""
        self.slices.pop(name, None)
        self._views.clear()

    def retaint(self) -> None:
        """Taint rules or the labels of nodes are others now."""
        self._views.clear()

    def hold(self, holding: Holding, rules: Iterable[TaintRule]) -> set[str]:
        """A claim got a device; returns the slices whose devices are otherwise now."""
        self._held.setdefault(holding.device, {})[_key(holding)] = holding
        return self._moved(holding.device, rules)

    def release(self, holding: Holding, rules: Iterable[TaintRule]) -> set[str]:
        """A claim gave a device back; returns the slices whose devices are otherwise now."""
        held = self._held.get(holding.device, {})
        held.pop(_key(holding), None)
        if not held:
            self._held.pop(holding.device, None)
        return self._moved(holding.device, rules)

    def views(self) -> list[str]:
        """The views that the pool's slices ask for: of each node that has slices of its own, and of the cluster."""
        return list(dict.fromkeys(view_of(one) for one in self.slices.values()))

    def evaluated(self, name: str, node: Node | None, rules: Iterable[TaintRule]) -> Evaluated:
        """A view (EVERYWHERE without a node); it has at least one slice of its own."""
        known = self._views.get(name)
        if known is None:
            every = list(self.slices.values())
            view = seen_everywhere(every) if node is None else seen_from(every, node)
            own = tuple(sorted((one for one in every if view_of(one) == name), key=lambda one: one.name))
            known = self._views[name] = Evaluated(view, own)
            known.update(known.names, self.pool, self._uses, rules)
        return known

    def use(self, device: str) -> Use:
        """How a device is used."""
        return self._uses.get(device, UNUSED)

    def holdings(self, device: str) -> list[Holding]:
        """Who holds a device, administrators left out, ordered by claim and request."""
        held = (one for one in self._held.get(device, {}).values() if one.holds)
        return sorted(held, key=lambda one: (one.claim, one.request, one.share or ""))

    def vanished(self) -> list[Holding]:
        """What claims hold that no slice publishes any more."""
        published = {device.name for one in self.slices.values() for device in one.devices}
        return [one for name in sorted(self._held.keys() - published) for one in self.holdings(name)]

    def _moved(self, device: str, rules: Iterable[TaintRule]) -> set[str]:
        use = uses_of(self._held.get(device, {}).values()).get(device)
        if use is None:
            self._uses.pop(device, None)
        else:
            self._uses[device] = use
        touched: set[str] = set()
        for evaluated in self._views.values():
            touched |= evaluated.update((device,), self.pool, self._uses, rules)
            touched |= set(_publishing(evaluated, device)) or {evaluated.owner()}
        return touched


def view_of(one: Slice) -> str:
    """The view that a slice is shown in: that of its node, or of the cluster where it is not one node's."""
    return (one.reach.node if one.reach is not None else None) or EVERYWHERE


def _publishing(evaluated: Evaluated, device: str) -> Iterator[str]:
    return (name for name, standings in evaluated.standings.items() if device in standings)


def _key(holding: Holding) -> tuple[ClaimId, str, str]:
    return holding.claim, holding.request, holding.share or ""

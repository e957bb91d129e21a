"""An index of one pool, so that an allocation costs what it touches and not what the pool holds. Pure.

It keeps the pool's slices, who holds which device, and an evaluation of each view that was read. It also tracks which
views and which slice statuses changed since they were last taken.
"""

from collections.abc import Iterable
from typing import Final

from gpuledger.domain.dra.evaluation import EvaluationContext, PoolEvaluation
from gpuledger.domain.dra.objects import ClaimId, Holding, LabelledNode, PoolId, Slice, TaintRule
from gpuledger.domain.dra.pools import seen_everywhere, seen_from
from gpuledger.domain.dra.use import UNUSED, Use, uses_of

EVERYWHERE: Final = ""
"""The name of the view of the whole cluster; others are named after their node."""


class PoolIndex:
    """The slices, holdings and evaluated views of one pool."""

    def __init__(self, pool: PoolId) -> None:
        self.pool = pool
        self.slices: dict[str, Slice] = {}
        self._held: dict[str, dict[tuple[ClaimId, str, str], Holding]] = {}
        self._uses: dict[str, Use] = {}
        self._own: dict[str, set[str]] = {}
        self._publishers: dict[str, tuple[str, ...]] = {}
        self._counting: set[str] = set()
        self._views: dict[str, PoolEvaluation] = {}
        self._before: dict[str, PoolEvaluation] = {}
        self._changed: dict[str, None] = {}
        self._touched: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.slices or self._held)

    def publish(self, one: Slice) -> None:
        """Add or replace a slice."""
        self._replace(one.name, one)

    def withdraw(self, name: str) -> None:
        """Remove a slice."""
        self._replace(name, None)

    def retaint(self) -> None:
        """Forget evaluations, because taint rules changed."""
        self._views.clear()
        self._before.clear()
        self._changed |= dict.fromkeys(self._own)

    def relabel(self, node: str) -> None:
        """Forget the node's own view, because the node's labels changed."""
        self._outdate(node)

    def hold(self, holding: Holding, rules: Iterable[TaintRule]) -> None:
        """Record that a claim holds a device."""
        self._held.setdefault(holding.device, {})[_key(holding)] = holding
        self._moved(holding.device, rules)

    def release(self, holding: Holding, rules: Iterable[TaintRule]) -> None:
        """Record that a claim no longer holds a device."""
        held = self._held.get(holding.device, {})
        held.pop(_key(holding), None)
        if not held:
            self._held.pop(holding.device, None)
        self._moved(holding.device, rules)

    def take_changed(self) -> list[str]:
        """The views that changed or disappeared since the last call."""
        changed, self._changed = self._changed, {}
        return list(changed)

    def take_touched(self) -> list[str]:
        """The slices whose status changed since the last call, as far as their views were evaluated."""
        touched, self._touched = self._touched, {}
        return list(touched)

    def has_view(self, name: str) -> bool:
        """Whether some slice belongs to the view."""
        return name in self._own

    def views(self) -> list[str]:
        """The pool's views: one for each node with slices of its own, and one of the cluster for all other slices."""
        return list(self._own)

    def evaluation(self, name: str, node: LabelledNode | None, rules: Iterable[TaintRule]) -> PoolEvaluation:
        """The evaluation of a view (EVERYWHERE without a node) of a pool that has slices."""
        cached = self._views.get(name)
        if cached is not None:
            return cached
        every = list(self.slices.values())
        view = seen_everywhere(every) if node is None else seen_from(every, node)
        own = tuple(self.slices[one] for one in sorted(self._own.get(name, ())))
        before = self._before.pop(name, None)
        found = PoolEvaluation(self.pool, view, own, EvaluationContext(self._uses, rules), before)
        if own:
            self._views[name] = found
            self._touched |= dict.fromkeys((*found.fresh, found.owner(), *([before.owner()] if before else [])))
        return found

    def use(self, device: str) -> Use:
        """How a device is used."""
        return self._uses.get(device, UNUSED)

    def holdings(self, device: str) -> list[Holding]:
        """The holdings of a device without administrators' access, ordered by claim and request."""
        held = (one for one in self._held.get(device, {}).values() if one.holds)
        return sorted(held, key=lambda one: (one.claim, one.request, one.share or ""))

    def vanished(self) -> list[Holding]:
        """Holdings of devices that no slice publishes any more."""
        return [one for name in sorted(self._held.keys() - self._publishers.keys()) for one in self.holdings(name)]

    def _moved(self, device: str, rules: Iterable[TaintRule]) -> None:
        before, use = self.use(device), uses_of(self._held.get(device, {}).values()).get(device)
        if use is None:
            self._uses.pop(device, None)
        else:
            self._uses[device] = use
        self._before.clear()
        offered = self._publishers.get(device)
        if offered is None:
            self._owners_touched()
            return
        shown = dict.fromkeys(view_of(self.slices[one]) for one in offered)
        for name in self._views if self._counting else shown:
            if name in self._views:
                self._touched |= dict.fromkeys(
                    self._views[name].update(device, before, EvaluationContext(self._uses, rules))
                )
                self._changed[name] = None

    def _replace(self, name: str, now: Slice | None) -> None:
        before = self.slices.pop(name, None)
        slices = [one for one in (before, now) if one is not None]
        held = [device.name for one in slices for device in one.devices if device.name in self._held]
        were_there = [device in self._publishers for device in held]
        if before is not None:
            self._leave(before)
        if now is not None:
            self._enter(now)
        self._outdate_around(slices)
        if were_there != [device in self._publishers for device in held]:
            self._owners_touched()

    def _enter(self, one: Slice) -> None:
        self.slices[one.name] = one
        view = view_of(one)
        self._own.setdefault(view, set()).add(one.name)
        if one.has_counters:
            self._counting.add(one.name)
        for device in one.devices:
            self._publishers[device.name] = (*self._publishers.get(device.name, ()), one.name)

    def _leave(self, one: Slice) -> None:
        view = view_of(one)
        self._own[view].discard(one.name)
        if not self._own[view]:
            del self._own[view]
        self._counting.discard(one.name)
        for device in one.devices:
            left = tuple(name for name in self._publishers.pop(device.name, ()) if name != one.name)
            if left:
                self._publishers[device.name] = left

    def _outdate_around(self, slices: Iterable[Slice]) -> None:
        """Outdate the views that the slices belong to, and all others that may include them."""
        views = dict.fromkeys(view_of(one) for one in slices)
        is_seen_elsewhere = EVERYWHERE in views or any(one.has_counters for one in slices)
        others = (name for name, one in self._views.items() if is_seen_elsewhere or not one.view.is_local)
        for name in [*views, *others]:
            self._outdate(name)

    def _outdate(self, view: str) -> None:
        self._changed[view] = None
        cached = self._views.pop(view, None)
        if cached is not None and view in self._own:
            self._before[view] = cached

    def _owners_touched(self) -> None:
        self._touched |= dict.fromkeys(evaluation.owner() for evaluation in self._views.values())


def view_of(one: Slice) -> str:
    """The view that a slice belongs to: its node's, or the cluster's where it names no single node."""
    return (one.reach.node if one.reach is not None else None) or EVERYWHERE


def _key(holding: Holding) -> tuple[ClaimId, str, str]:
    return holding.claim, holding.request, holding.share or ""

"""Plans the next step for each object, from its desired form and the cache of the API server. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gpuledger.edge.statuswriter.cache.objects import ObjectCache
from gpuledger.edge.statuswriter.desired.components import NO_COMPONENTS, Components
from gpuledger.edge.statuswriter.desired.state import DesiredState, desired_object, rule_key
from gpuledger.edge.statuswriter.fields import for_object
from gpuledger.edge.statuswriter.objects import DesiredObject, Document, Key, Kind, ObservedObject
from gpuledger.edge.statuswriter.reconcile.decide import Action, decide

STATUSES_MEMOIZED_MAX: Final = 256
"""How many desired statuses of slices are memoized: each write needs one several times in a row."""


class PlannedStep(NamedTuple):
    """The next step for an object, and what it follows from."""

    action: Action
    desired: DesiredObject | None
    observed: ObservedObject | None


IDLE: Final = PlannedStep(Action.NOTHING, None, None)


class Planner:
    """Compares desired and observed objects."""

    def __init__(self, state: DesiredState, rule: Document, components: Components = NO_COMPONENTS) -> None:
        self.state = state
        self.cache = ObjectCache()
        self.components = components
        self._rule = rule
        self._memoized: dict[Key, DesiredObject | None] = {}

    def desired(self, key: Key) -> DesiredObject | None:
        """How an object should be."""
        if key.kind is Kind.COMPONENT:
            return self.components.desired(self.state.settings_in_force(), key)
        if key.kind is not Kind.SLICE:
            return desired_object(self.state, key, self._rule)
        if key not in self._memoized:
            if len(self._memoized) >= STATUSES_MEMOIZED_MAX:
                del self._memoized[next(iter(self._memoized))]
            self._memoized[key] = desired_object(self.state, key, self._rule)
        return self._memoized[key]

    def desired_changed(self, keys: Iterable[Key]) -> None:
        """The desired form of these objects may have changed."""
        for key in keys:
            self._memoized.pop(key, None)

    def observed(self, key: Key) -> ObservedObject | None:
        """The object as the API server shows it."""
        return self.cache.kinds[key.kind].observed(key.id)

    def is_shown(self, kind: Kind) -> bool:
        """Whether a kind is kept, and was listed, so that an object that the cache does not have is not there."""
        return self.state.keeps(kind) and self.cache.kinds[kind].is_listed

    def step(self, key: Key) -> PlannedStep:
        """The next step; none while the kind is not kept, or before it was listed."""
        if not self.is_shown(key.kind):
            return IDLE
        observed = self.observed(key)
        desired = for_object(key.kind, self.desired(key), observed)
        withdrawn = self.state.is_withdrawn(key) or key.kind is Kind.COMPONENT
        return PlannedStep(decide(key.kind, desired, withdrawn=withdrawn, observed=observed), desired, observed)

    def keys(self, kind: Kind | None = None) -> Iterator[Key]:
        """Every object that is desired or was withdrawn, of one kind or of all."""
        yield from (key for key in (rule_key(self._rule), *self.components.every_key()) if kind in (None, key.kind))
        yield from self.state.keys(kind)

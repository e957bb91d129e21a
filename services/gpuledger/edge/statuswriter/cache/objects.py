"""Both sides of the status writer: what is wanted, what is known of the API server, and the next step between them."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from gpuledger.edge.statuswriter.cache.observed import Known
from gpuledger.edge.statuswriter.desired.components import NO_COMPONENTS, Components
from gpuledger.edge.statuswriter.desired.objects import Wanted, desired, rule_key
from gpuledger.edge.statuswriter.reconcile.decide import Action, Actual, Desired, Document, Key, Kind, decide

RECENT_MAX: Final = 256
"""How many statuses of slices are kept made up: one that is written is asked for several times in a row."""


class Step(NamedTuple):
    """What is to be done with an object, and what that follows from."""

    action: Action
    desired: Desired | None
    actual: Actual | None


IDLE = Step(Action.NOTHING, None, None)


class View:
    """What is wanted and what there is."""

    def __init__(self, wanted: Wanted, rule: Document, components: Components = NO_COMPONENTS) -> None:
        self.wanted = wanted
        self.known = {kind: Known() for kind in Kind}
        self.components = components
        self._rule = rule
        self._recent: dict[Key, Desired | None] = {}

    def desired(self, key: Key) -> Desired | None:
        """How an object has to be."""
        if key.kind is Kind.COMPONENT:
            return self.components.desired(self.wanted.settings_in_force(), key)
        if key.kind is not Kind.SLICE:
            return desired(self.wanted, key, self._rule)
        if key not in self._recent:
            if len(self._recent) >= RECENT_MAX:
                del self._recent[next(iter(self._recent))]
            self._recent[key] = desired(self.wanted, key, self._rule)
        return self._recent[key]

    def changed(self, keys: Iterable[Key]) -> None:
        """These may have to be others than before."""
        for key in keys:
            self._recent.pop(key, None)

    def actual(self, key: Key) -> Actual | None:
        """What is known of an object."""
        return self.known[key.kind].objects.get(key.id)

    def step(self, key: Key) -> Step:
        """The next step; none while the kind is not kept, or before it was listed."""
        if not self.wanted.keeps(key.kind) or not self.known[key.kind].is_listed:
            return IDLE
        wanted, actual = self.desired(key), self.actual(key)
        withdrawn = key in self.wanted.withdrawn or key.kind is Kind.COMPONENT
        return Step(decide(key.kind, wanted, withdrawn=withdrawn, actual=actual), wanted, actual)

    def keys(self, kind: Kind | None = None) -> Iterator[Key]:
        """Every object that is wanted or was withdrawn, of one kind or of all."""
        yield from (key for key in (rule_key(self._rule), *self.components.every()) if kind in (None, key.kind))
        yield from self.wanted.keys(kind)

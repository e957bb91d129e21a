"""Both sides of the status writer: what is wanted, what is known of the API server, and the next step between them."""

from collections.abc import Iterator
from typing import NamedTuple

from gpuledger.statuswriter.decide import Action, Actual, Desired, Document, Key, Kind, decide
from gpuledger.statuswriter.known import Known
from gpuledger.statuswriter.wanted import Wanted, desired, rule_key


class Step(NamedTuple):
    """What is to be done with an object, and what that follows from."""

    action: Action
    desired: Desired | None
    actual: Actual | None


IDLE = Step(Action.NOTHING, None, None)


class View:
    """What is wanted and what there is."""

    def __init__(self, wanted: Wanted, rule: Document) -> None:
        self.wanted = wanted
        self.known = {kind: Known() for kind in Kind}
        self._rule = rule

    def desired(self, key: Key) -> Desired | None:
        """How an object has to be."""
        return desired(self.wanted, key, self._rule)

    def actual(self, key: Key) -> Actual | None:
        """What is known of an object."""
        return self.known[key.kind].objects.get(key.name)

    def step(self, key: Key) -> Step:
        """The next step; none while the module is disabled, or before the kind was listed."""
        if not self.wanted.enabled or not self.known[key.kind].is_listed:
            return IDLE
        wanted, actual = self.desired(key), self.actual(key)
        return Step(decide(key.kind, wanted, withdrawn=key in self.wanted.withdrawn, actual=actual), wanted, actual)

    def keys(self, kind: Kind | None = None) -> Iterator[Key]:
        """Every object that is wanted or was withdrawn, of one kind or of all."""
        for key in (rule_key(self._rule), *self.wanted.keys()):
            if kind in (None, key.kind):
                yield key

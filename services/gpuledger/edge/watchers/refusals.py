"""The facts that the ledger refused for what they are: they are not tried again, and what is around them goes on.

An object whose content no event can hold must stop nobody from recording the others. It is tried again when its content
changes, when the server takes messages of another size, or when the service starts. Pure.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gpuledger.edge.watchers.decide import NewFact, digest_of


class Refusal(NamedTuple):
    """What was refused, and how large a message the server took then."""

    digest: bytes
    message_bytes_max: int


class Refusals:
    """The last refused fact about each subject: one for each object that the ledger does not have as it is."""

    def __init__(self) -> None:
        self._refused: dict[str, Refusal] = {}

    def __len__(self) -> int:
        return len(self._refused)

    @property
    def subjects(self) -> set[str]:
        """What they are about."""
        return set(self._refused)

    def add(self, fact: NewFact, message_bytes_max: int) -> None:
        """Note that a fact was refused."""
        self._refused[fact.subject] = Refusal(digest_of(fact.data), message_bytes_max)

    def acceptable(self, facts: Iterable[NewFact], message_bytes_max: int) -> list[NewFact]:
        """The facts but for those that were refused as they are."""
        return [fact for fact in facts if not self._refuses(fact, message_bytes_max)]

    def settle(self, subjects: Iterable[str]) -> None:
        """The ledger has these subjects as they are by now."""
        for subject in subjects:
            self._refused.pop(subject, None)

    def _refuses(self, fact: NewFact, message_bytes_max: int) -> bool:
        found = self._refused.get(fact.subject)
        return found is not None and found == Refusal(digest_of(fact.data), message_bytes_max)

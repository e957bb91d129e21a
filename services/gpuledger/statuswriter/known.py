"""The API server's side: what is remembered of the objects of one kind, from lists, watches and our own writes.

Pure. The three come in any order, so whatever is older than what is known is passed over: otherwise the echo of an
earlier write would look like a change, and lead to the next write.
"""

from collections.abc import Iterable
from sys import intern
from typing import NamedTuple

from gpuledger.kube.watch import Changed
from gpuledger.statuswriter.decide import Actual, Document, Kind, actual_of


class Seen(NamedTuple):
    """An object as it was seen."""

    name: str
    actual: Actual


def read(kind: Kind, obj: Document) -> Seen:
    """What is kept of an object."""
    actual = actual_of(kind, obj)
    if actual.changed_by is not None:
        actual = actual._replace(changed_by=intern(actual.changed_by))
    return Seen(intern(obj["metadata"]["name"]), actual)


class Change(NamedTuple):
    """What a change did: what was known before, and what is known now."""

    name: str
    before: Actual | None
    after: Actual | None


class Known:
    """The objects of one kind."""

    def __init__(self) -> None:
        self.is_listed = False
        self.objects: dict[str, Actual] = {}
        self._own: dict[str, str] = {}
        self._deleted: dict[str, str] = {}

    def listed(self, found: Iterable[Seen], version: str) -> None:
        """Everything that there is at a version; only our own later writes are newer."""
        objects = {seen.name: self._merged(seen) for seen in found}
        for name, written in self._own.items():
            known = self.objects.get(name)
            if known is not None and _is_older(version, written):
                objects[name] = known
        self.objects = objects
        self._deleted.clear()
        self.is_listed = True

    def interrupted(self) -> None:
        """The server that answers next may be another one, so earlier writes prove nothing."""
        self._own.clear()

    def changed(self, change: Changed[Seen]) -> Change:
        """An object came, changed or went."""
        name, seen = change.object
        before = self.objects.get(name)
        if before is not None and _is_older(seen.version, before.version):
            return Change(name, before, before)
        if not _is_older(seen.version, self._own.get(name, seen.version)):
            self._own.pop(name, None)
        if change.type == "DELETED":
            self._deleted[name] = seen.version
            self.objects.pop(name, None)
            return Change(name, before, None)
        after = self.objects[name] = self._merged(change.object)
        return Change(name, before, after)

    def written(self, name: str, actual: Actual) -> None:
        """The server's answer to a write of ours."""
        before = self.objects.get(name)
        newest = self._deleted.get(name, actual.version) if before is None else before.version
        if not _is_older(actual.version, newest):
            self.objects[name] = actual
            self._own[name] = actual.version

    def gone(self, name: str) -> None:
        """The server says that there is no such object."""
        self.objects.pop(name, None)
        self._own.pop(name, None)

    def _merged(self, seen: Seen) -> Actual:
        """What was seen, with what is known of how the server keeps what was sent."""
        before = self.objects.get(seen.name)
        if before is None or (before.sent_main is None and before.sent_status is None):
            return seen.actual
        return seen.actual._replace(
            sent_main=before.sent_main if before.main == seen.actual.main else None,
            sent_status=before.sent_status if before.status == seen.actual.status else None,
        )


def _is_older(version: str, other: str) -> bool:
    """Whether a resource version is older than another; versions that are no numbers cannot be compared."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)

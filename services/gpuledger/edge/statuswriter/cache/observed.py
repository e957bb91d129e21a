"""The API server's side: what is remembered of the objects of one kind, from lists, watches and our own writes.

Pure. The three come in any order, so whatever is older than what is known is passed over: otherwise the echo of an
earlier write would look like a change, and lead to the next write.
"""

from collections.abc import Iterable
from sys import intern
from typing import NamedTuple

from gpuledger.edge.kube.reflector import Changed
from gpuledger.edge.statuswriter.reconcile.decide import Actual, Document, Kind, actual_of, object_id


class Seen(NamedTuple):
    """An object as it was seen; `id` is what its key has."""

    id: str
    actual: Actual


def read(kind: Kind, obj: Document) -> Seen:
    """What is kept of an object."""
    actual = actual_of(kind, obj)
    if actual.changed_by is not None:
        actual = actual._replace(changed_by=intern(actual.changed_by))
    metadata = obj["metadata"]
    return Seen(intern(object_id(metadata["name"], metadata.get("namespace") or "")), actual)


class Change(NamedTuple):
    """What a change did: what was known before, and what is known now."""

    id: str
    before: Actual | None
    after: Actual | None


class Known:
    """The objects of one kind, by id."""

    def __init__(self) -> None:
        self.is_listed = False
        self.objects: dict[str, Actual] = {}
        self._own: dict[str, str] = {}
        self._deleted: dict[str, str] = {}

    def listed(self, found: Iterable[Seen], version: str) -> None:
        """Everything that there is at a version; only our own later writes are newer."""
        objects = {seen.id: self._merged(seen) for seen in found}
        for identity, written in self._own.items():
            known = self.objects.get(identity)
            if known is not None and _is_older(version, written):
                objects[identity] = known
        self.objects = objects
        self._deleted.clear()
        self.is_listed = True

    def interrupted(self) -> None:
        """The server that answers next may be another one, so earlier writes prove nothing."""
        self._own.clear()

    def changed(self, change: Changed[Seen]) -> Change:
        """An object came, changed or went."""
        identity, seen = change.object
        before = self.objects.get(identity)
        if before is not None and _is_older(seen.version, before.version):
            return Change(identity, before, before)
        if not _is_older(seen.version, self._own.get(identity, seen.version)):
            self._own.pop(identity, None)
        if change.type == "DELETED":
            self._deleted[identity] = seen.version
            self.objects.pop(identity, None)
            return Change(identity, before, None)
        after = self.objects[identity] = self._merged(change.object)
        return Change(identity, before, after)

    def written(self, identity: str, actual: Actual) -> None:
        """The server's answer to a write of ours."""
        before = self.objects.get(identity)
        newest = self._deleted.get(identity, actual.version) if before is None else before.version
        if not _is_older(actual.version, newest):
            self.objects[identity] = actual
            self._own[identity] = actual.version

    def gone(self, identity: str) -> None:
        """The server says that there is no such object."""
        self.objects.pop(identity, None)
        self._own.pop(identity, None)

    def _merged(self, seen: Seen) -> Actual:
        """What was seen, with what is known of how the server keeps what was sent."""
        before = self.objects.get(seen.id)
        if before is None or (before.sent_main is None and before.sent_status is None):
            return seen.actual
        return seen.actual._replace(
            sent_main=before.sent_main if before.main == seen.actual.main else None,
            sent_status=before.sent_status if before.status == seen.actual.status else None,
        )


def _is_older(version: str, other: str) -> bool:
    """Whether a resource version is older than another; versions that are no numbers cannot be compared."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)

"""Stores all objects in memory, with their latest changes.

One revision counter covers everything, as in etcd. Each collection keeps its last changes, from which watches are
replayed and recent lists rebuilt; an older revision is answered with 410. Stored objects are never changed in place.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import orjson

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.errors import ApiError

FIRST_REVISION = 1_000
"""The first revision; earlier ones count as compacted, so that a watch from revision 1 has expired."""

CHANGES_KEPT_MAX = 20_000
"""The least per collection; a real server keeps about five minutes, until etcd compacts."""

SNAPSHOTS_KEPT_MAX = 2
"""Cached lists per collection whose pages are being read; further ones are rebuilt for every page."""

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"

CollectionKey = tuple[str, str]
ObjectKey = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""


class Change(NamedTuple):
    """A change of an object; `before` is its earlier state, None if there was none."""

    revision: int
    type: str
    object: Object
    before: Object | None


class Collection:
    """The objects of one resource."""

    def __init__(self, oldest: int, changes_kept: int) -> None:
        self.changed = asyncio.Event()
        self._objects: dict[str, dict[str, Object]] = {}
        self._changes: list[Change] = []
        self._snapshots: dict[tuple[int, str | None], list[Object]] = {}
        self._oldest = oldest
        self._changes_kept = changes_kept

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def get(self, namespace: str, name: str) -> Object | None:
        """The object of this name."""
        return self._objects.get(namespace, {}).get(name)

    def objects(self, namespace: str | None = None) -> list[Object]:
        """Objects of a namespace, or all, by namespace and name."""
        spaces = [namespace] if namespace is not None else sorted(self._objects)
        return [
            objects[name] for space in spaces if (objects := self._objects.get(space, {})) for name in sorted(objects)
        ]

    def objects_at(self, revision: int, namespace: str | None = None) -> list[Object]:
        """Objects as they were at a revision.

        Raises:
            ApiError: 410, the revision is too old.
        """
        changes = self.since(revision)
        if not changes:
            return self.objects(namespace)
        then = {key_of(obj): obj for obj in self.objects(namespace)}
        for change in reversed(changes):
            key = key_of(change.object)
            if namespace is not None and key[0] != namespace:
                continue
            if change.before is None:
                then.pop(key, None)
            else:
                then[key] = change.before
        return [then[key] for key in sorted(then)]

    def snapshot(self, revision: int, namespace: str | None = None) -> list[Object]:
        """Like `objects_at`, with a cache for clients that read a list in pages.

        Raises:
            ApiError: 410, the revision is too old.
        """
        self.since(revision)
        key = (revision, namespace)
        found = self._snapshots.get(key)
        if found is None:
            found = self._snapshots[key] = self.objects_at(revision, namespace)
            if len(self._snapshots) > SNAPSHOTS_KEPT_MAX:
                del self._snapshots[next(iter(self._snapshots))]
        return found

    def since(self, revision: int) -> list[Change]:
        """Changes after a revision, oldest first.

        Raises:
            ApiError: 410, some of them are gone.
        """
        if revision < self._oldest:
            raise expired(revision, self._oldest)
        found = len(self._changes)
        while found and self._changes[found - 1].revision > revision:
            found -= 1
        return self._changes[found:]

    def amend(self, obj: Object) -> None:
        """Replace an object without a change of its revision."""
        namespace, name = key_of(obj)
        self._objects[namespace][name] = obj
        self._snapshots.clear()

    def record(self, change: Change) -> None:
        """Record a change and wake watchers."""
        namespace, name = key_of(change.object)
        if change.type == DELETED:
            objects = self._objects[namespace]
            del objects[name]
            if not objects:
                del self._objects[namespace]
        else:
            self._objects.setdefault(namespace, {})[name] = change.object
        self._changes.append(change)
        if len(self._changes) >= 2 * self._changes_kept:
            self._oldest = self._changes[-self._changes_kept - 1].revision
            del self._changes[: -self._changes_kept]
        self.wake()

    def wake(self) -> None:
        """Have watchers look at what there is now."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


Observer = Callable[[CollectionKey, Change], None]


class Store:
    """All collections. Writes are synchronous, so what a caller has just read still holds."""

    def __init__(self, changes_kept: int = CHANGES_KEPT_MAX) -> None:
        self.revision = self._oldest = FIRST_REVISION
        self._changes_kept = changes_kept
        self._collections: dict[CollectionKey, Collection] = {}
        self._observers: list[Observer] = []

    def __iter__(self) -> Iterator[tuple[CollectionKey, Collection]]:
        return iter(tuple(self._collections.items()))

    def collection(self, key: CollectionKey) -> Collection:
        """The collection of a resource, empty at first."""
        found = self._collections.get(key)
        if found is None:
            found = self._collections[key] = Collection(self._oldest, self._changes_kept)
        return found

    def observe(self, observer: Observer) -> None:
        """Call `observer` after every change."""
        self._observers.append(observer)

    def put(self, key: CollectionKey, obj: Object) -> Object:
        """Store an object and set its resourceVersion; the caller must not change it afterwards."""
        collection = self.collection(key)
        before = collection.get(*key_of(obj))
        self._stamp(obj)
        self._record(key, Change(self.revision, ADDED if before is None else MODIFIED, obj, before))
        return obj

    def restore(self, revision: int, objects: Iterable[tuple[CollectionKey, Object]]) -> None:
        """Load objects at a revision into an empty store; older watches must list again."""
        self.revision = self._oldest = revision
        for key, obj in objects:
            self._record(key, Change(self.revision, ADDED, obj, None))

    def amend(self, key: CollectionKey, obj: Object) -> None:
        """Replace an object because its schema has changed; watchers see no change."""
        self.collection(key).amend(obj)

    def remove(self, key: CollectionKey, obj: Object) -> Object:
        """Remove an object; its last state has the revision of the removal."""
        before = self.collection(key).get(*key_of(obj))
        last = {**obj, "metadata": dict(obj["metadata"])}
        self._stamp(last)
        self._record(key, Change(self.revision, DELETED, last, before))
        return last

    def _stamp(self, obj: Object) -> None:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)

    def _record(self, key: CollectionKey, change: Change) -> None:
        self.collection(key).record(change)
        for observer in self._observers:
            observer(key, change)


def key_of(obj: Object) -> ObjectKey:
    """Namespace and name."""
    metadata = obj["metadata"]
    return (metadata.get("namespace", ""), metadata["name"])


def copy_of(obj: Object) -> Object:
    """A copy that may be changed."""
    copied: Object = orjson.loads(orjson.dumps(obj))
    return copied


def expired(revision: int, oldest: int) -> ApiError:
    """The revision is too old: list again."""
    return ApiError(410, "Expired", f"too old resource version: {revision} ({oldest})")

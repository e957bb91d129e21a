"""Reacts to writes as the controllers of a real cluster do, because otherwise nothing would ever go away.

It serves the resources of CRDs, empties namespaces, collects dependents of deleted owners, and counts disruption
budgets and quotas. A reaction depends only on one change and on what is stored now. Changes wait in one queue, which
only the number of writes bounds.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterator

import structlog

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi import crds, custom
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.quotas import quota_status
from gpuledger.local.kubeapi.registry import ResourceRegistry
from gpuledger.local.kubeapi.resources import ServedResource
from gpuledger.local.kubeapi.store import DELETED, Change, CollectionKey, Store, copy_of, key_of
from gpuledger.local.kubeapi.strategies.policy import budget_status
from gpuledger.local.kubeapi.terminating import (
    CRD_FINALIZER,
    CRDS,
    NAMESPACE_FINALIZER,
    NAMESPACES,
    without_finalizer,
)
from gpuledger.local.kubeapi.write_checks import FOREGROUND, ORPHAN
from gpuledger.local.kubeapi.writing import Writer
from gpuledger.runtime.clock import Clock

PODS, QUOTAS, BUDGETS = ("", "pods"), ("", "resourcequotas"), ("policy", "poddisruptionbudgets")
CHANGES_PER_TURN_MAX = 100
"""The number of reactions after which other requests get a turn."""

log = structlog.get_logger("gpuledger.local.kubeapi")

Place = tuple[CollectionKey, str, str]


class Owners:
    """An index of objects by the owners that they name."""

    def __init__(self) -> None:
        self._dependents: dict[str, set[Place]] = defaultdict(set)

    def note(self, key: CollectionKey, change: Change) -> None:
        """Update the index by a change."""
        place = (key, *key_of(change.object))
        for uid in _owner_uids(change.before):
            self._dependents[uid].discard(place)
            if not self._dependents[uid]:
                del self._dependents[uid]
        if change.type != DELETED:
            for uid in _owner_uids(change.object):
                self._dependents[uid].add(place)

    def dependents(self, uid: str) -> list[Place]:
        """The dependents of an owner."""
        return sorted(self._dependents.get(uid, ()))


class Controllers:
    """Reacts to writes, one change after the other."""

    def __init__(self, store: Store, registry: ResourceRegistry, writer: Writer, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._writer = writer
        self._clock = clock
        self._owners = Owners()
        self._changes: deque[tuple[CollectionKey, Change]] = deque()
        self._wake = asyncio.Event()
        store.observe(self._on_change)

    async def run(self) -> None:
        """React until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            turn = 0
            while self._changes:
                key, change = self._changes.popleft()
                self._react_safely(key, change)
                turn += 1
                if turn % CHANGES_PER_TURN_MAX == 0:
                    await asyncio.sleep(0)

    def _on_change(self, key: CollectionKey, change: Change) -> None:
        self._owners.note(key, change)
        self._changes.append((key, change))
        self._wake.set()

    def _react_safely(self, key: CollectionKey, change: Change) -> None:
        try:
            self._react(key, change)
        except ApiError as error:
            log.warning("kube.controller", resource=key[1], reason=str(error))

    def _react(self, key: CollectionKey, change: Change) -> None:
        if key == CRDS:
            self._serve(change)
        elif key == NAMESPACES and change.type != DELETED:
            self._empty_namespace(change.object["metadata"]["name"])
        elif key in {PODS, BUDGETS, QUOTAS}:
            self._count_pods(key_of(change.object)[0])
        self._collect(key, change)
        namespace = key_of(change.object)[0]
        if change.type == DELETED and namespace:
            self._empty_namespace(namespace)
        if change.type == DELETED:
            self._finish_crd(key)

    def _serve(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        crd = self._store.collection(CRDS).get("", name)
        if crd is None:
            self._withdraw(change.object)
            return
        if crd["metadata"].get("deletionTimestamp"):
            self._empty_crd(crd)
            return
        accepted = copy_of(crd)
        crds.accept(accepted, self._clock())
        if accepted != crd:
            crd = self._store.put(CRDS, accepted)
        resources = custom.resources_of(crd)
        self._registry.serve(name, resources)
        self._store.collection(_key_of_crd(crd)).wake()
        stored = next(version["name"] for version in crd["spec"]["versions"] if version["storage"])
        for resource in resources:
            if resource.version == stored:
                self._default_anew(resource)

    def _withdraw(self, crd: Object) -> None:
        self._registry.withdraw(crd["metadata"]["name"])
        self._store.collection(_key_of_crd(crd)).wake()

    def _default_anew(self, resource: ServedResource) -> None:
        """Apply a schema's new defaults to stored objects."""
        for obj in self._store.collection(resource.key).objects():
            then = copy_of(obj)
            resource.strategy.default(then)
            if then != obj:
                self._store.amend(resource.key, then)

    def _empty_crd(self, crd: Object) -> None:
        key = _key_of_crd(crd)
        resource = self._registry.of_group(*key)
        left = self._store.collection(key).objects()
        if resource is not None and left:
            self._replace(CRDS, crds.emptying(crd, self._clock()))
            for obj in left:
                if not obj["metadata"].get("deletionTimestamp"):
                    self._writer.remove(resource, obj)
        self._finish_crd(key)

    def _finish_crd(self, key: CollectionKey) -> None:
        group, plural = key
        crd = self._store.collection(CRDS).get("", f"{plural}.{group}")
        if crd is None or not crd["metadata"].get("deletionTimestamp") or len(self._store.collection(key)):
            return
        if CRD_FINALIZER in crd["metadata"].get("finalizers", []):
            self._withdraw(crd)
            self._replace(CRDS, without_finalizer(crd, CRD_FINALIZER))

    def _empty_namespace(self, name: str) -> None:
        namespace = self._store.collection(NAMESPACES).get("", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        left = False
        for resource, obj in self._content(name):
            left = True
            if not obj["metadata"].get("deletionTimestamp"):
                self._writer.remove(resource, obj)
        if not left and NAMESPACE_FINALIZER in namespace["spec"].get("finalizers", []):
            self._replace(NAMESPACES, without_finalizer(namespace, NAMESPACE_FINALIZER))

    def _content(self, namespace: str) -> Iterator[tuple[ServedResource, Object]]:
        for key, collection in self._store:
            resource = self._registry.of_group(*key)
            if resource is not None and resource.namespaced:
                for obj in collection.objects(namespace):
                    yield resource, obj

    def _collect(self, key: CollectionKey, change: Change) -> None:
        meta = change.object["metadata"]
        if change.type == DELETED:
            self._for_dependents(meta["uid"], self._release_from)
            self._let_owners_go(change.object)
        elif ORPHAN in meta.get("finalizers", []) and meta.get("deletionTimestamp"):
            self._for_dependents(meta["uid"], self._orphan)
            self._replace(key, without_finalizer(change.object, ORPHAN))
        elif FOREGROUND in meta.get("finalizers", []) and meta.get("deletionTimestamp"):
            self._for_dependents(meta["uid"], self._release_deeply)
            self._finish_foreground(meta["uid"], key, change.object)
        elif change.type != DELETED and meta.get("ownerReferences"):
            self._collect_unowned(key, change.object)

    def _for_dependents(self, uid: str, do: Callable[[ServedResource, Object, str], None]) -> None:
        for place_key, namespace, name in self._owners.dependents(uid):
            resource = self._registry.of_group(*place_key)
            obj = self._store.collection(place_key).get(namespace, name)
            if resource is not None and obj is not None:
                do(resource, obj, uid)

    def _release_deeply(self, resource: ServedResource, obj: Object, uid: str) -> None:
        self._release_from(resource, obj, uid, "Foreground" if self._owners.dependents(obj["metadata"]["uid"]) else "")

    def _release_from(self, resource: ServedResource, obj: Object, uid: str, propagation: str = "") -> None:
        references = obj["metadata"]["ownerReferences"]
        others = [one for one in references if one["uid"] != uid and self._is_there(obj, one)]
        if others:
            then = copy_of(obj)
            then["metadata"]["ownerReferences"] = others
            self._writer.replace(resource, then)
        elif not obj["metadata"].get("deletionTimestamp"):
            self._writer.remove(resource, obj, propagation)

    def _orphan(self, resource: ServedResource, obj: Object, uid: str) -> None:
        then = copy_of(obj)
        kept = [one for one in then["metadata"]["ownerReferences"] if one["uid"] != uid]
        if kept:
            then["metadata"]["ownerReferences"] = kept
        else:
            del then["metadata"]["ownerReferences"]
        self._writer.replace(resource, then)

    def _finish_foreground(self, uid: str, key: CollectionKey, obj: Object) -> None:
        places = self._owners.dependents(uid)
        dependents = (self._store.collection(place).get(namespace, name) for place, namespace, name in places)
        if not any(_blocks(one, uid) for one in dependents if one is not None):
            self._replace(key, without_finalizer(obj, FOREGROUND))

    def _let_owners_go(self, obj: Object) -> None:
        for reference in obj["metadata"].get("ownerReferences") or ():
            owner = self._registry.of_kind(reference["apiVersion"], reference["kind"])
            namespace = key_of(obj)[0] if owner is not None and owner.namespaced else ""
            found = owner and self._store.collection(owner.key).get(namespace, reference["name"])
            if owner and found and FOREGROUND in found["metadata"].get("finalizers", []):
                self._finish_foreground(found["metadata"]["uid"], owner.key, found)

    def _collect_unowned(self, key: CollectionKey, obj: Object) -> None:
        references = obj["metadata"]["ownerReferences"]
        resource = self._registry.of_group(*key)
        current = self._store.collection(key).get(*key_of(obj))
        if resource is None or current is None or any(self._is_there(obj, one) for one in references):
            return
        if not current["metadata"].get("deletionTimestamp"):
            self._writer.remove(resource, current)

    def _is_there(self, obj: Object, reference: Object) -> bool:
        """Whether an owner exists. Owners of unserved kinds count as existing, to delete nothing by mistake."""
        owner = self._registry.of_kind(reference["apiVersion"], reference["kind"])
        if owner is None:
            return True
        namespace = key_of(obj)[0] if owner.namespaced else ""
        found = self._store.collection(owner.key).get(namespace, reference["name"])
        return found is not None and found["metadata"]["uid"] == reference["uid"]

    def _count_pods(self, namespace: str) -> None:
        """Update the status of the budgets and quotas of a namespace."""
        budgets, quotas = (self._store.collection(key).objects(namespace) for key in (BUDGETS, QUOTAS))
        if not budgets and not quotas:
            return
        pods = self._store.collection(PODS).objects(namespace)
        for budget in budgets:
            self._show(BUDGETS, budget, budget_status(budget, pods, self._clock()))
        for quota in quotas:
            self._show(QUOTAS, quota, quota_status(quota, pods))

    def _show(self, key: CollectionKey, obj: Object, status: Object) -> None:
        then = copy_of(obj)
        then["status"] = status
        self._replace(key, then)

    def _replace(self, key: CollectionKey, obj: Object) -> None:
        resource = self._registry.of_group(*key)
        if resource is not None:
            self._writer.replace(resource, obj)


def _key_of_crd(crd: Object) -> CollectionKey:
    return crd["spec"]["group"], crd["spec"]["names"]["plural"]


def _blocks(obj: Object, uid: str) -> bool:
    """Whether the foreground deletion of an owner waits for the object."""
    return any(one["uid"] == uid and one.get("blockOwnerDeletion") for one in obj["metadata"]["ownerReferences"])


def _owner_uids(obj: Object | None) -> list[str]:
    return [one["uid"] for one in (obj or {"metadata": {}})["metadata"].get("ownerReferences") or ()]

"""Creates, updates, patches and deletes objects, in the same way for every resource.

The order of the checks is Kubernetes', because it decides which of several errors a client gets: unreadable, does not
fit the URL, not found, conflict, invalid. Nothing else runs between reading an object and storing its next state,
except when webhooks are called; then the object is read again.
"""

from collections.abc import Callable, Iterable
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Cause, Object
from gpuledger.local.kubeapi import managed, metadata
from gpuledger.local.kubeapi.admission import Admission
from gpuledger.local.kubeapi.errors import ApiError, already_exists, conflict, denied, internal, not_found
from gpuledger.local.kubeapi.options import DeleteOptions, WriteOptions
from gpuledger.local.kubeapi.quotas import refuse_over_quota
from gpuledger.local.kubeapi.registry import ResourceRegistry, Target
from gpuledger.local.kubeapi.requests import ApiRequest
from gpuledger.local.kubeapi.resources import ServedResource, timestamp
from gpuledger.local.kubeapi.store import Store, copy_of, key_of
from gpuledger.local.kubeapi.strategies.core_privileges import privilege_causes
from gpuledger.local.kubeapi.terminating import BEGIN, CRDS, IMMORTAL, NAMESPACES
from gpuledger.local.kubeapi.tokens import TokenIssuer
from gpuledger.local.kubeapi.write_checks import (
    check_preconditions,
    check_uid,
    check_version,
    finalizers_after,
    fit_namespace,
    fit_url,
    is_finished,
    refuse_invalid,
    same_but_time,
    stale,
    tidy,
    without_status,
)
from gpuledger.runtime.clock import Clock, NewId

ATTEMPTS_MAX = 5
"""The attempts of a patch while others change the object."""

GENERATED_SUFFIX = 5
GENERATED_NAME_MAX = 63
GENERATED_ATTEMPTS_MAX = 8
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"

_CARRIED = ("creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")

Change = Callable[[Object], Object]
"""Makes the next state of an object from the present one, and may share parts with it."""


class Writer:
    """Writes objects of any resource."""

    def __init__(
        self,
        store: Store,
        registry: ResourceRegistry,
        clock: Clock,
        new_id: NewId,
        admission: Admission,
        *,
        allow_privileged: bool = False,
    ) -> None:
        self.store = store
        self.registry = registry
        self._clock = clock
        self._new_id = new_id
        self._admission = admission
        self.tokens = TokenIssuer(new_id)
        self._allow_privileged = allow_privileged

    async def create(self, request: ApiRequest, obj: Object, options: WriteOptions, *, applies: bool = False) -> Object:
        """Create an object; `applies` means that its managed fields are set already.

        Raises:
            ApiError: it cannot be created; nothing was stored.
        """
        resource, target = request.target.resource, request.target
        meta = obj.setdefault("metadata", {})
        fit_namespace(target, obj)
        self._refuse_terminating_crd(resource, meta.get("name", ""))
        if meta.get("resourceVersion"):
            raise internal("resourceVersion should not be set on objects to be created")
        self._begin(meta, request)
        resource.strategy.default(obj)
        tidy(meta)
        if not applies:
            has_status = resource.subresource("status") is not None
            self._record(request, without_status(obj) if has_status else obj, None, options)
        resource.strategy.prepare_for_create(obj, request.context)
        obj = await self._mutated(request, "CREATE", obj, None, options)
        self._refuse_namespace(target, obj)
        causes = [*metadata.validate_metadata(resource, obj), *resource.strategy.validate(obj)]
        refuse_invalid(resource, obj, [*causes, *self._privilege_causes(target, obj)])
        await self._admission.validate(request, "CREATE", obj, None, _writing(options))
        if resource.is_custom:
            request.warnings.extend(metadata.finalizer_warnings(obj))
        refuse_over_quota(resource, obj, self.store)
        self._refuse_existing(resource, obj)
        return obj if options.dry_run else self._put(resource, obj)

    async def update(
        self,
        request: ApiRequest,
        change: Change,
        options: WriteOptions,
        *,
        applies: bool = False,
        is_patch: bool = False,
    ) -> tuple[Object, bool]:
        """Change an object; also returns whether it was created.

        `applies` means that `change` sets the managed fields itself.

        Raises:
            ApiError: it cannot be changed; nothing was stored.
        """
        for attempt in range(ATTEMPTS_MAX):
            old = self.current(request.target)
            if old is None:
                return await self._created_by_update(request, change, options, applies=applies, is_patch=is_patch), True
            try:
                return await self._updated(request, old, change, options, applies=applies, is_patch=is_patch), False
            except _ChangedMeanwhileError as error:
                if not is_patch or attempt == ATTEMPTS_MAX - 1:
                    raise stale(request.target) from error
        raise AssertionError("every attempt ends")

    async def delete(self, request: ApiRequest, options: DeleteOptions) -> tuple[Object, bool]:
        """Delete an object; returns its last state and whether it is gone.

        Raises:
            ApiError: it does not exist, or a precondition fails.
        """
        target = request.target
        obj = self.found(target)
        if target.resource.key == NAMESPACES and target.name in IMMORTAL:
            raise denied("", "namespaces", target.name, "this namespace may not be deleted")
        check_preconditions(target, obj, options)
        await self._admission.mutate(request, "DELETE", None, obj, _deleting(options))
        await self._admission.validate(request, "DELETE", None, obj, _deleting(options))
        obj = self.found(target)
        return self._delete(target.resource, obj, options, request.now)

    def current(self, target: Target) -> Object | None:
        """The stored object."""
        found = self.store.collection(target.resource.key).get(target.namespace, target.name)
        return None if found is None else target.resource.read(found)

    def found(self, target: Target) -> Object:
        """The stored object.

        Raises:
            ApiError: 404.
        """
        obj = self.current(target)
        if obj is None:
            raise not_found(*target.resource.key, target.name)
        return obj

    def replace(self, resource: ServedResource, obj: Object) -> Object:
        """Store a controller's decision, or remove the object if it has lost its last finalizer."""
        old = self.store.collection(resource.key).get(*key_of(obj))
        if old is None or same_but_time(obj, old):
            return obj
        if is_finished(obj):
            return self.store.remove(resource.key, old)
        return self.store.put(resource.key, obj)

    def remove(self, resource: ServedResource, obj: Object, propagation: str = "") -> None:
        """Delete on behalf of a controller."""
        self._delete(resource, obj, DeleteOptions(propagation=propagation), self._clock())

    def _begin(self, meta: Object, request: ApiRequest) -> None:
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
            meta.pop(name, None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._free_name(request, meta)
        meta["uid"] = self._new_id()
        meta["creationTimestamp"] = timestamp(request.now)
        meta.pop("generation", None)
        if request.target.resource.strategy.has_generation:
            meta["generation"] = 1

    def _free_name(self, request: ApiRequest, meta: Object) -> str:
        """A free name with a random suffix."""
        base = meta["generateName"][: GENERATED_NAME_MAX - GENERATED_SUFFIX]
        collection, name = self.store.collection(request.target.resource.key), ""
        for _ in range(GENERATED_ATTEMPTS_MAX):
            digits = self._new_id().replace("-", "")
            letters = (int(digit, 16) for digit in digits[-2 * GENERATED_SUFFIX :: 2])
            name = base + "".join(_SUFFIX_LETTERS[letter] for letter in letters)
            if collection.get(meta.get("namespace", ""), name) is None:
                break
        return name

    def _refuse_existing(self, resource: ServedResource, obj: Object) -> None:
        namespace, name = key_of(obj)
        existing = self.store.collection(resource.key).get(namespace, name)
        if existing is None:
            return
        error = already_exists(*resource.key, name)
        if existing["metadata"].get("deletionTimestamp"):
            error = ApiError(409, error.reason, f"object is being deleted: {error.message}", error.details)
        raise error

    def _refuse_terminating_crd(self, resource: ServedResource, name: str) -> None:
        crd = self.store.collection(CRDS).get("", f"{resource.plural}.{resource.group}") if resource.is_custom else None
        if crd is not None and crd["metadata"].get("deletionTimestamp"):
            message = "create not allowed while custom resource definition is terminating"
            raise denied(resource.group, resource.plural, name, message)

    def _refuse_namespace(self, target: Target, obj: Object) -> None:
        if not target.resource.namespaced:
            return
        namespace = self.store.collection(("", "namespaces")).get("", target.namespace)
        if namespace is None:
            raise not_found("", "namespaces", target.namespace)
        if namespace.get("status", {}).get("phase") == "Terminating":
            message = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            error = denied(*target.resource.key, obj["metadata"].get("name", ""), message)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {target.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            details = {**(error.details or {}), "causes": [cause]}
            raise ApiError(403, "Forbidden", error.message, details)

    async def _created_by_update(
        self, request: ApiRequest, change: Change, options: WriteOptions, *, applies: bool, is_patch: bool
    ) -> Object:
        target = request.target
        if target.subresource or not (applies or (target.resource.strategy.creates_on_update and not is_patch)):
            raise not_found(*target.resource.key, target.name)
        obj = change({})
        fit_url(target, obj)
        if obj.get("metadata", {}).get("uid"):
            raise conflict(*target.resource.key, target.name, "uid mismatch: the object does not exist")
        obj.get("metadata", {}).pop("resourceVersion", None)
        return await self.create(request, obj, options, applies=applies)

    async def _updated(
        self, request: ApiRequest, old: Object, change: Change, options: WriteOptions, *, applies: bool, is_patch: bool
    ) -> Object:
        target, resource = request.target, request.target.resource
        # Custom resources share with their older selves what an apply leaves alone; other strategies write in place.
        obj = change(old if applies and resource.is_custom else copy_of(old))
        fit_url(target, obj)
        if not is_patch:
            check_uid(target, obj, old)
        check_version(target, obj, old)
        self._carry(obj, old)
        resource.strategy.default(obj)
        resource.strategy.prepare_for_update(obj, old, target.subresource, request.context)
        tidy(obj["metadata"])
        if not applies:
            self._record(request, obj, old, options)
        obj = await self._mutated(request, "UPDATE", obj, old, options)
        self._count_generation(resource, obj, old)
        refuse_invalid(
            resource,
            obj,
            [
                *metadata.validate_metadata_update(resource, obj, old),
                *resource.strategy.validate_update(obj, old, target.subresource),
                *self._privilege_causes(target, obj),
            ],
        )
        await self._admission.validate(request, "UPDATE", obj, old, _writing(options))
        return self._store_update(target, obj, old, options)

    def _privilege_causes(self, target: Target, obj: Object) -> Iterable[Cause]:
        is_checked = not self._allow_privileged and target.subresource != "status"
        return privilege_causes(target.resource.key, obj) if is_checked else ()

    def _store_update(self, target: Target, obj: Object, old: Object, options: WriteOptions) -> Object:
        current = self.current(target)
        if current is None or current["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            raise _ChangedMeanwhileError
        if same_but_time(obj, old):
            return old
        if options.dry_run:
            return obj
        if is_finished(obj):
            self.store.remove(target.resource.key, target.resource.stored(old))
            return obj
        return self._put(target.resource, obj)

    def _put(self, resource: ServedResource, obj: Object) -> Object:
        return resource.read(self.store.put(resource.key, resource.stored(obj)))

    def _carry(self, obj: Object, old: Object) -> None:
        meta, before = obj["metadata"], old["metadata"]
        for name in _CARRIED:
            if name in before:
                meta[name] = before[name]
            else:
                meta.pop(name, None)
        meta["uid"] = meta.get("uid") or before["uid"]
        meta["resourceVersion"] = before["resourceVersion"]

    def _count_generation(self, resource: ServedResource, obj: Object, old: Object) -> None:
        if resource.strategy.has_generation and resource.strategy.spec_changed(obj, old):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _delete(
        self, resource: ServedResource, obj: Object, options: DeleteOptions, now: datetime
    ) -> tuple[Object, bool]:
        if begin := BEGIN.get(resource.key):
            held = begin(obj, timestamp(now))
            if options.dry_run or held == obj:
                return held, False
            return self.store.put(resource.key, held), False
        held, meta = copy_of(obj), obj["metadata"]
        finalizers = finalizers_after(meta.get("finalizers", []), options.propagation)
        grace_s = resource.strategy.grace_s(obj, options.grace_s)
        is_held = bool(finalizers or grace_s)
        if not is_held and not resource.strategy.is_graceful:
            return (obj if options.dry_run else self.store.remove(resource.key, resource.stored(obj))), True
        then = held["metadata"]
        if meta.get("deletionTimestamp"):
            current_s = meta.get("deletionGracePeriodSeconds") or 0
            grace_s = min(grace_s, current_s)
            if is_held and (grace_s, finalizers) == (current_s, meta.get("finalizers", [])):
                return obj, False
        elif resource.strategy.has_generation:
            then["generation"] = meta.get("generation", 0) + 1
        then |= {"deletionTimestamp": timestamp(now, grace_s), "deletionGracePeriodSeconds": grace_s}
        if finalizers:
            then["finalizers"] = finalizers
        if options.dry_run:
            return held, not is_held
        held = self._put(resource, held)
        return held if is_held else self.store.remove(resource.key, resource.stored(held)), not is_held

    def _record(self, request: ApiRequest, obj: Object, old: Object | None, options: WriteOptions) -> None:
        target = request.target
        managed.record_update(
            obj,
            old,
            manager=options.field_manager,
            subresource=target.subresource,
            api_version=target.resource.api_version,
            shape=target.resource.shape,
            now=request.now,
            reset=reset_of(target),
        )

    async def _mutated(
        self, request: ApiRequest, operation: str, obj: Object, old: Object | None, options: WriteOptions
    ) -> Object:
        mutated = await self._admission.mutate(request, operation, obj, old, _writing(options))
        assert mutated is not None, "an object stays one"
        if mutated is not obj and mutated != obj:
            request.target.resource.strategy.default(mutated)
            self._record(request, mutated, old, options)
        return mutated


class _ChangedMeanwhileError(Exception):
    """Another client changed the object while webhooks were called."""


def reset_of(target: Target) -> tuple[tuple[str, ...], ...] | None:
    """The fields that an endpoint does not write; None for the default ones."""
    resource = target.resource
    return () if resource.is_custom and resource.subresource("status") is None else None


def _writing(options: WriteOptions) -> Object:
    return {"fieldManager": options.field_manager, "dryRun": ["All"] if options.dry_run else []}


def _deleting(options: DeleteOptions) -> Object:
    return {"dryRun": ["All"] if options.dry_run else [], "propagationPolicy": options.propagation or "Background"}

"""Keeps `managedFields` (which manager owns which field) on every write, and implements server-side apply.

The rules are Kubernetes' structured merges: an update takes the fields that it changes from their owners, an apply that
would do so is refused unless forced. Where tracking was given up (`managedFields: [{}]`), only the next apply starts it
again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from gpuledger.edge.kube.schema.causes import Cause, Object
from gpuledger.edge.kube.schema.equality import is_written_as, same
from gpuledger.edge.kube.schema.object_meta import OBJECT_META
from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi import fieldsets, typed
from gpuledger.local.kubeapi.errors import ApiError, bad_request, internal
from gpuledger.local.kubeapi.fieldsets import FIELD, ElementError, Fields
from gpuledger.local.kubeapi.resources import timestamp

UPDATERS_MAX = 10
"""The number of update entries of an object before the oldest are merged."""

ANCIENT, BEFORE_APPLY = "ancient-changes", "before-first-apply"
APPLY, UPDATE = "Apply", "Update"

Path = tuple[str, ...]

_TEXT: Final = Shape("string")
_UNOWNED: Final = ("creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion")
_NEVER_OWNED: Final[tuple[Path, ...]] = (
    ("apiVersion",),
    ("kind",),
    *(("metadata", name) for name in (*_UNOWNED, "selfLink", "uid")),
)


_META: Final[Fields] = {f"{FIELD}metadata": {}}


class _Key(NamedTuple):
    """The owner of an entry. An applier has one entry, an updater one for each version."""

    manager: str
    operation: str
    api_version: str
    subresource: str


@dataclass(frozen=True, slots=True)
class _Entry:
    api_version: str
    fields: Fields
    time: str | None


_Entries = dict[_Key, _Entry]


def reset_fields(shape: Shape, subresource: str) -> tuple[Path, ...]:
    """The fields that an endpoint cannot change, so that its writers do not own them.

    For the resource itself that is `status`, if it has one, and for `status` everything else.
    """
    if subresource == "status":
        return (("metadata",), ("spec",))
    return (("status",),) if not subresource and "status" in shape.fields else ()


def record_update(
    new: Object,
    old: Object | None,
    *,
    manager: str,
    subresource: str,
    api_version: str,
    shape: Shape,
    now: datetime,
    reset: Iterable[Path] | None = None,
) -> None:
    """Set `new.metadata.managedFields` after `manager` has changed `old` into `new`.

    `reset` names the fields that this endpoint does not write; None stands for `reset_fields`.
    """
    shape = _rooted(shape)
    entries = _entries_before(new, old, subresource)
    if old is not None and not entries:
        _set(new, {})
        return
    ignored = reset_fields(shape, subresource) if reset is None else reset
    try:
        changed, removed = _compared(_bare(old or {}), _bare(new), shape, ignored)
    except ElementError:
        _set(new, entries)
        return
    left = _taken(entries, fieldsets.union(changed, removed))
    changed = _owned(changed)
    key = _Key(manager or "unknown", UPDATE, api_version, subresource)
    if changed:
        before = left.get(key)
        fields = fieldsets.union(changed, before.fields) if before else changed
        left[key] = _Entry(api_version, fields, timestamp(now))
    _set(new, _capped(left))


def apply(
    current: Object | None,
    applied: Object,
    *,
    manager: str,
    force: bool,
    subresource: str,
    api_version: str,
    shape: Shape,
    now: datetime,
    reset: Iterable[Path] | None = None,
) -> Object:
    """The object after `manager` has applied its configuration; it shares parts with `current`.

    `reset` is that of `record_update`.

    Raises:
        ApiError: 400, the configuration has managedFields; 409, others own fields with other values; 500, it does
            not fit its type.
    """
    shape = _rooted(shape)
    ignored = tuple(reset_fields(shape, subresource) if reset is None else reset)
    config = _config(applied, shape)
    live = _bare(current or {})
    entries = _entries(_managed(current or {}))
    if current is not None and not entries:
        first = _Key(BEFORE_APPLY, UPDATE, api_version, subresource)
        created = _owned(_compared({}, live, shape, ignored)[0])
        entries = {first: _Entry(api_version, created, timestamp(now))} if created else {}
    key = _Key(manager, APPLY, "", subresource)
    last = entries.pop(key, None)
    mine = _except(fieldsets.of(config, shape), ignored)
    merged = typed.merge(live, _beside(config, current), shape)
    if last:
        merged = _pruned(merged, last.fields, (mine, *(entry.fields for entry in entries.values())), shape)
    changed, removed = _compared(live, merged, shape, ignored)
    if not force:
        _refuse_conflicts(entries, changed)
    left = _taken(entries, fieldsets.union(changed, removed))
    kept = last.time if last else None
    if mine := _owned(mine):
        if last and is_written_as(last.fields, mine):
            mine = last.fields
        left[key] = _Entry(api_version, mine, kept if same(merged, live) else timestamp(now))
    merged = {**merged, "metadata": dict(merged.get("metadata") or {})}
    _set(merged, left)
    return merged


def _config(applied: Object, shape: Shape) -> Object:
    """The configuration, checked to fit its type.

    Raises:
        ApiError: it does not.
    """
    meta = applied.get("metadata")
    if isinstance(meta, dict) and meta.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    wrong = typed.misfits(applied, shape)
    if wrong:
        problem = wrong[0] if len(wrong) == 1 else "errors:\n" + "\n".join(f"  {one}" for one in wrong)
        raise internal(f"failed to create typed patch object ({described(applied)}): {problem}")
    return applied


def described(applied: Object) -> str:
    """An applied configuration as errors name it: namespace, name and type."""
    meta = applied.get("metadata")
    named: Mapping[str, Any] = meta if isinstance(meta, dict) else {}
    version, kind = applied.get("apiVersion", ""), applied.get("kind", "")
    return f"{named.get('namespace', '')}/{named.get('name', '')}; {version}, Kind={kind}"


def _beside(config: Object, current: Object | None) -> Object:
    """The configuration to merge: without type and version, which are the server's."""
    if current is None:
        return config
    return {name: value for name, value in config.items() if name not in {"apiVersion", "kind"}}


def _pruned(merged: Object, last: Fields, owned: Iterable[Fields], shape: Shape) -> Object:
    """The object without fields that were applied last time and have no owner now."""
    every = fieldsets.covered((_META, *owned))
    if not fieldsets.difference(last, every):
        return merged
    dropped = fieldsets.difference(fieldsets.named(last, shape), fieldsets.named(every, shape))
    return typed.remove(merged, dropped, shape) or {}


def _refuse_conflicts(entries: _Entries, changed: Fields) -> None:
    causes: list[Cause] = []
    for key, entry in sorted(entries.items()):
        who = f"conflict with {_who(key, entry)}"
        paths = fieldsets.paths(fieldsets.intersection(entry.fields, changed))
        causes += (Cause("FieldManagerConflict", who, path) for path in paths)
    if causes:
        details = {"causes": [cause._asdict() for cause in causes]}
        raise ApiError(409, "Conflict", _conflicts(causes), details)


def _conflicts(causes: list[Cause]) -> str:
    if len(causes) == 1:
        return f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    lines: list[str] = []
    for who in dict.fromkeys(cause.message for cause in causes):
        lines.append(f"{who.replace('conflict', 'conflicts', 1)}:")
        lines += (f"- {cause.field}" for cause in causes if cause.message == who)
    return f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)


def _who(key: _Key, entry: _Entry) -> str:
    who = f'"{key.manager}"' + (f' with subresource "{key.subresource}"' if key.subresource else "")
    if key.operation == APPLY:
        return who
    return f"{who} using {entry.api_version}"


def _taken(entries: _Entries, fields: Fields) -> _Entries:
    """The entries without fields that they have lost."""
    if not fields:
        return dict(entries)
    left = ((key, entry, fieldsets.difference(entry.fields, fields)) for key, entry in entries.items())
    return {key: replace(entry, fields=rest) for key, entry, rest in left if rest}


def _capped(entries: _Entries) -> _Entries:
    """The entries with the oldest updates merged, those of each version into one."""
    updates = [(entry.time or "", key) for key, entry in entries.items() if key.operation == UPDATE]
    surplus = len(updates) - UPDATERS_MAX
    if surplus <= 0:
        return entries
    left, first = dict(entries), dict[str, _Key]()
    for _, key in sorted(updates):
        entry = left[key]
        oldest = first.setdefault(entry.api_version, key)
        if oldest == key:
            continue
        bucket = _Key(ANCIENT, UPDATE, entry.api_version, "")
        older = left.pop(oldest)
        del left[key]
        first[entry.api_version] = bucket
        left[bucket] = replace(entry, fields=fieldsets.union(older.fields, entry.fields))
        surplus -= 1
        if not surplus:
            break
    return left


def _compared(old: Object, new: Object, shape: Shape, ignored: Iterable[Path]) -> tuple[Fields, Fields]:
    changed, removed = typed.compare(old, new, shape)
    return _except(changed, ignored), _except(removed, ignored)


def _except(fields: Fields, ignored: Iterable[Path]) -> Fields:
    for path in ignored:
        fields = fieldsets.without(fields, path)
    return fields


def _owned(fields: Fields) -> Fields:
    """The fields without those that never have an owner."""
    left = _except(fields, _NEVER_OWNED)
    meta = left.get(f"{FIELD}metadata")
    if meta is None or not fieldsets.is_member(meta):
        return left
    below = {element: node for element, node in meta.items() if element != fieldsets.SELF}
    rest = {element: node for element, node in left.items() if element != f"{FIELD}metadata"}
    return rest | {f"{FIELD}metadata": below} if below else rest


def _entries_before(new: Object, old: Object | None, subresource: str) -> _Entries:
    """The entries before a write: a client may set well-formed ones, but not through a subresource."""
    if not subresource:
        managed_fields = _managed(new)
        if isinstance(managed_fields, list) and managed_fields in ([], [{}]):
            return {}
        try:
            entries = _entries(managed_fields)
        except ApiError:
            entries = {}
        if entries:
            return entries
    try:
        return _entries(_managed(old or {}))
    except ApiError:
        return {}


def _managed(obj: Object) -> Any:
    meta = obj.get("metadata")
    return meta.get("managedFields") if isinstance(meta, dict) else None


def _entries(managed_fields: Any) -> _Entries:
    """Read managed fields.

    Raises:
        ApiError: they are not well-formed.
    """
    try:
        return dict(_entry(item) for item in managed_fields or ())
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise internal(f"failed to decode managed fields: {error}") from error


def _entry(item: Mapping[str, Any]) -> tuple[_Key, _Entry]:
    operation, version = item["operation"], item["apiVersion"]
    if operation not in {APPLY, UPDATE} or not version or item["fieldsType"] != "FieldsV1":
        raise ValueError("an entry must have an operation, an apiVersion and fieldsType FieldsV1")
    owner = version if operation == UPDATE else ""
    key = _Key(item.get("manager") or "", operation, owner, item.get("subresource") or "")
    return key, _Entry(version, fieldsets.read(item.get("fieldsV1") or {}), item.get("time"))


def _set(obj: Object, entries: _Entries) -> None:
    """Store entries in an object: appliers before updaters, the oldest first."""
    if not entries:
        obj.get("metadata", {}).pop("managedFields", None)
        return
    ordered = sorted(entries.items(), key=lambda one: (one[0].operation, one[1].time or "", one[0]))
    obj.setdefault("metadata", {})["managedFields"] = [_written(key, entry) for key, entry in ordered]


def _written(key: _Key, entry: _Entry) -> Object:
    written: Object = {"manager": key.manager, "operation": key.operation, "apiVersion": entry.api_version}
    if entry.time is not None:
        written["time"] = entry.time
    written |= {"fieldsType": "FieldsV1", "fieldsV1": entry.fields}
    return written | {"subresource": key.subresource} if key.subresource else written


def _bare(obj: Object) -> Object:
    """The object without its managed fields."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def _rooted(shape: Shape) -> Shape:
    """The shape with the fields of every object."""
    meta_shape = shape.fields.get("metadata")
    if meta_shape and "finalizers" in meta_shape.fields and {"apiVersion", "kind"} <= shape.fields.keys():
        return shape
    meta = meta_shape if meta_shape and "finalizers" in meta_shape.fields else OBJECT_META
    return replace(shape, fields={"apiVersion": _TEXT, "kind": _TEXT, **shape.fields, "metadata": meta})

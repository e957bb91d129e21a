"""Applies strategic merge patches, which merge lists by key.

The rules are Kubernetes' own, including the order of merged lists. A patch is never changed and never shares parts with
a result, because it may be applied again to a newer object.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.shapes import ANYTHING, Shape
from gpuledger.local.kubeapi.errors import ApiError, bad_request, internal
from gpuledger.local.kubeapi.fieldsets import shape_of
from gpuledger.local.kubeapi.typed import copied

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM: Final = "$deleteFromPrimitiveList/"
ORDER: Final = "$setElementOrder/"


def strategic_merge(obj: Object, patch: Any, shape: Shape) -> Object:
    """The object after a strategic merge patch.

    Raises:
        ApiError: 400 for an invalid patch; 500 for an invalid directive or item of a keyed list.
    """
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: json: a strategic merge patch must be an object")
    return _merged(obj, patch, shape)


def _merged(obj: Mapping[str, Any], patch: Mapping[str, Any], shape: Shape) -> Object:
    if DIRECTIVE in patch:
        return _directed(patch)
    merged = _retained(obj, patch)
    ordered = {name for key in patch if (name := key.removeprefix(ORDER)) != key}
    for name in ordered:
        _merge_ordered(merged, patch, name, shape_of(shape, name))
    for key, value in patch.items():
        if key.startswith(DELETE_FROM):
            _delete_from(merged, key.removeprefix(DELETE_FROM), value)
        elif value is None:
            merged.pop(key, None)
        elif key not in ordered and key != RETAIN_KEYS and not key.startswith(ORDER):
            _set(merged, key, _value(merged.get(key), value, shape_of(shape, key)))
    return merged


def _set(merged: Object, name: str, value: Any) -> None:
    if value is None:
        merged.pop(name, None)
    else:
        merged[name] = value


def _directed(patch: Mapping[str, Any]) -> Object:
    directive = patch[DIRECTIVE]
    if directive == "delete":
        return {}
    if directive != "replace":
        raise _unknown(directive, patch)
    return {name: _plain(value) for name, value in patch.items() if name != DIRECTIVE}


def _retained(obj: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """A copy of the object with only the keys that the patch retains, where it says so."""
    if RETAIN_KEYS not in patch:
        return dict(obj)
    kept = patch[RETAIN_KEYS]
    if not isinstance(kept, list):
        raise bad_request("invalid patch format of retainKeys")
    for name, value in patch.items():
        is_directive = name == RETAIN_KEYS or name.startswith((DELETE_FROM, ORDER))
        if value is not None and not is_directive and name not in kept:
            raise bad_request("invalid patch format of retainKeys")
    return {name: value for name, value in obj.items() if name in kept}


def _value(old: Any, new: Any, shape: Shape) -> Any:
    if isinstance(new, dict):
        return _object(old, new, shape)
    if not isinstance(new, list):
        return new
    if "merge" not in shape.patch_strategy or not isinstance(old, list):
        return _plain(new)
    return _list(old, new, shape)


def _object(old: Any, new: Mapping[str, Any], shape: Shape) -> Any:
    if not isinstance(old, dict):
        return _plain(new)
    if shape.patch_strategy == "replace":
        return copied(new)
    return _merged(old, new, shape)


def _list(old: list[Any], new: list[Any], shape: Shape) -> list[Any]:
    """Merge lists; the patch determines the order of its items, the old list the places of the others."""
    if not (old or new):
        return old
    if not isinstance((old or new)[0], dict):
        both = list(dict.fromkeys(_hashable(item) for item in [*old, *new]))
        return _interleaved(both, new, old, _hashable)
    key = shape.patch_key
    if not key:
        raise internal("cannot merge lists without merge key")
    kept, added = _directives_done(old, new, key)
    merged = _merged_items(kept, added, key, shape.items or ANYTHING)
    return _interleaved(merged, added, kept, _key_reader(key))


def _directives_done(old: list[Any], new: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """The old items that stay and the new items to merge, after the list's directives."""
    plain: list[Any] = []
    read = _key_reader(key)
    replaces = False
    for item in new:
        if not isinstance(item, dict) or DIRECTIVE not in item:
            plain.append(item)
        elif item[DIRECTIVE] == "delete":
            gone = read(item)
            old = [one for one in old if read(one) != gone]
        elif item[DIRECTIVE] == "replace":
            replaces = True
        elif item[DIRECTIVE] == "merge":
            raise internal("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown(item[DIRECTIVE], item)
    return ([_plain(item) for item in plain], []) if replaces else (old, plain)


def _merged_items(old: list[Any], new: list[Any], key: str, shape: Shape) -> list[Any]:
    merged = list(old)
    read = _key_reader(key)
    places = {read(item): place for place, item in reversed(list(enumerate(old)))}
    for item in new:
        place = places.setdefault(read(item), len(merged))
        if place == len(merged):
            merged.append(_plain(item))
        else:
            merged[place] = _merged(merged[place], item, shape)
    return merged


def _merge_ordered(merged: Object, patch: Mapping[str, Any], name: str, shape: Shape) -> None:
    """Merge a list whose order the patch sets."""
    order, old, new = patch[ORDER + name], merged.get(name), patch.get(name)
    if not isinstance(order, list):
        raise bad_request("invalid patch format of setElementOrder list")
    if new is None and name in patch:
        merged.pop(name, None)
    if not isinstance(merged.get(name), list) and not isinstance(new, list):
        return
    read = _key_reader(shape.patch_key) if shape.patch_key else _hashable
    _check_order(new or [], order, read)
    both = merged[name] if new is None else _value(old, new, shape)
    merged[name] = _interleaved(both, order, old if isinstance(old, list) else [], read)


def _check_order(new: list[Any], order: list[Any], read: Callable[[Any], Any]) -> None:
    """Refuse an order that contradicts the order of the patch's items."""
    ordered = iter([read(item) for item in order])
    for item in new:
        if isinstance(item, dict) and item.get(DIRECTIVE) in {"delete", "replace"}:
            continue
        key = read(item)
        if all(one != key for one in ordered):
            raise internal("the order in patch list doesn't match $setElementOrder list")


def _delete_from(merged: Object, name: str, gone: Any) -> None:
    if not isinstance(gone, list):
        raise bad_request("invalid patch format of primitive list")
    old = merged.get(name)
    if isinstance(old, list):
        merged[name] = [item for item in old if item not in gone]


def _interleaved(items: list[Any], order: list[Any], old: list[Any], read: Callable[[Any], Any]) -> list[Any]:
    """Items in the given order; others stay before the items that they preceded in the old list."""
    place_of = _places(order, read)
    before = _places(old, read)
    ordered = sorted((item for item in items if read(item) in place_of), key=lambda item: place_of[read(item)])
    others = [item for item in items if read(item) not in place_of]
    others.sort(key=lambda item: before.get(read(item), len(before)))
    return list(_zipped(others, ordered, lambda item: before.get(read(item))))


def _zipped(others: list[Any], ordered: list[Any], place: Callable[[Any], int | None]) -> Iterator[Any]:
    at = 0
    for item in ordered:
        here = place(item)
        while here is not None and at < len(others) and _is_before(place(others[at]), here):
            yield others[at]
            at += 1
        yield item
    yield from others[at:]


def _is_before(one: int | None, other: int) -> bool:
    return one is not None and one < other


class _Reader(Protocol):
    def __call__(self, item: Any, /) -> Any: ...


def _places(items: list[Any], read: _Reader) -> dict[Any, int]:
    places: dict[Any, int] = {}
    for place, item in enumerate(items):
        places.setdefault(read(item), place)
    return places


def _key_reader(key: str) -> Callable[[Any], Any]:
    def read(item: Any) -> Any:
        if not isinstance(item, dict) or key not in item:
            raise internal(f"map: {item} does not contain declared merge key: {key}")
        return _hashable(item[key])

    return read


def _hashable(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise internal("lists of lists cannot be merged, nor can objects be keys")
    return value


def _plain(value: Any) -> Any:
    """A value for a place that was empty: without nulls and directives; None if nothing is left."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return None
        parts = ((name, _plain(part)) for name, part in value.items() if not _is_directive(name))
        return {name: part for name, part in parts if part is not None}
    if isinstance(value, list):
        return [plain for item in value if (plain := _plain(item)) is not None]
    return value


def _is_directive(name: str) -> bool:
    return name in {DIRECTIVE, RETAIN_KEYS} or name.startswith((DELETE_FROM, ORDER))


def _unknown(directive: object, where: object) -> ApiError:
    return internal(f"unknown patch type: {directive} in map: {where}")

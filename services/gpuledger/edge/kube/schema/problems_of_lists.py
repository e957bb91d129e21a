"""Checks the `x-kubernetes-list-*` and `x-kubernetes-map-type` keywords of a schema.

The keys of a list of type `map` must be scalar fields of its items that are always present.
"""

from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, not_supported, required

_LIST_TYPES = ("atomic", "map", "set")
_MAP_TYPES = ("atomic", "granular")
_TYPE, _KEYS, _MAP = "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type"


def list_problems(schema: Object, path: str) -> Iterator[Cause]:
    """The problems of a schema and all below it."""
    yield from _choice(schema, path, _TYPE, "array", _LIST_TYPES)
    yield from _choice(schema, path, _MAP, "object", _MAP_TYPES)
    if schema.get(_TYPE) == "set":
        yield from _set_items(schema.get("items") or {}, f"{path}.items")
    if schema.get(_TYPE) == "map" and schema.get("type") == "array":
        yield from _keyed(schema, path)
    elif schema.get(_KEYS):
        yield forbidden(f"{path}.{_KEYS}", f"must not be set if {_TYPE} is not map")
    for name, one in (schema.get("properties") or {}).items():
        yield from list_problems(one, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from list_problems(schema[name], f"{path}.{name}")


def _choice(schema: Object, path: str, keyword: str, type_: str, choices: tuple[str, ...]) -> Iterator[Cause]:
    """Check the value of a keyword, and the type of the schema that has it."""
    value, actual = schema.get(keyword), schema.get("type")
    if value is None:
        return
    if actual != type_:
        message = f"must be {type_} if {keyword} is set"
        yield invalid(f"{path}.type", actual, message) if actual else required(f"{path}.type", message)
    if value not in choices:
        yield not_supported(f"{path}.{keyword}", value, choices)


def _set_items(items: Object, path: str) -> Iterator[Cause]:
    if items.get("nullable"):
        yield forbidden(f"{path}.nullable", f"cannot be nullable when {_TYPE} is set")
    if items.get("type") == "object" and items.get(_MAP) != "atomic":
        yield invalid(f"{path}.{_MAP}", items.get(_MAP), f"must be atomic as item of a list with {_TYPE}=set")
    if items.get("type") == "array" and items.get(_TYPE, "atomic") != "atomic":
        yield invalid(f"{path}.{_TYPE}", items.get(_TYPE), f"must be atomic as item of a list with {_TYPE}=set")


def _keyed(schema: Object, path: str) -> Iterator[Cause]:
    keys = list(schema.get(_KEYS) or ())
    items = schema.get("items") or {}
    if not keys:
        yield required(f"{path}.{_KEYS}", f"must not be empty if {_TYPE} is map")
    if items.get("type") != "object":
        yield invalid(f"{path}.items.type", items.get("type"), f"must be object if parent array's {_TYPE} is map")
    fields = items.get("properties") or {}
    if len(set(keys)) != len(keys) or any(key not in fields for key in keys):
        yield invalid(f"{path}.{_KEYS}", keys, "entries must all be names of item properties, each once")
    for key in dict.fromkeys(keys):
        if key in fields:
            yield from _key_problems(
                fields[key], f"{path}.items.properties[{key}]", key in (items.get("required") or ())
            )


def _key_problems(schema: Object, path: str, is_required: bool) -> Iterator[Cause]:
    why = f"this property is in {_KEYS}"
    if schema.get("type") in {"array", "object"}:
        yield invalid(
            f"{path}.type", schema["type"], "must be a scalar type if parent array's x-kubernetes-list-type is map"
        )
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", f"{why}, so it cannot be nullable")
    if not is_required and schema.get("default") is None:
        yield required(f"{path}.default", f"{why}, so it must have a default or be a required property")

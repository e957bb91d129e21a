"""Reads a CRD's `openAPIV3Schema` into typed nodes, and derives the shape that patches and pruning walk.

It accepts any schema; `problems` decides whether a schema is valid.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.object_meta import OBJECT_META
from gpuledger.edge.kube.schema.shapes import ANY_KIND, ANYTHING, Kind, ListType, Shape

_STRING = Shape("string")
_KINDS = frozenset({"object", "array", "string", "integer", "number", "boolean"})


@dataclass(slots=True)
class Bounds:
    """The restrictions of a schema besides the type. None is no restriction."""

    enum: tuple[Any, ...] = ()
    pattern: str = ""
    format: str = ""
    minimum: float | None = None
    maximum: float | None = None
    above_minimum: bool = False
    below_maximum: bool = False
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    required: tuple[str, ...] = ()


@dataclass(slots=True)
class SchemaNode:
    """One place of a structural schema. `default` is None if there is none; `closed` forbids other properties.

    `open` is `additionalProperties: true`; `additional` is its schema, if there is one. `rules` are the raw
    `x-kubernetes-validations`.
    """

    type: str = ""
    properties: dict[str, "SchemaNode"] = field(default_factory=dict)
    additional: "SchemaNode | None" = None
    open: bool = False
    closed: bool = False
    items: "SchemaNode | None" = None
    nullable: bool = False
    default: Any = None
    bounds: Bounds = field(default_factory=Bounds)
    all_of: tuple["SchemaNode", ...] = ()
    any_of: tuple["SchemaNode", ...] = ()
    one_of: tuple["SchemaNode", ...] = ()
    refused: "SchemaNode | None" = None
    preserves: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: ListType = "atomic"
    list_keys: tuple[str, ...] = ()
    atomic_map: bool = False
    rules: tuple[Mapping[str, Any], ...] = ()
    description: str = ""
    types: tuple[str, ...] = field(init=False)
    """The JSON types that a value may have; none is any."""

    combines: bool = field(init=False)
    """Whether other schemas are to be met, or not to be met, by the same value."""

    has_keyed_lists: bool = field(init=False)
    """Whether it, or anything below, is a list of type `set` or `map`."""

    has_embedded: bool = field(init=False)
    """Whether it, or anything below, is an embedded resource."""

    has_defaults: bool = field(init=False)
    """Whether it, or anything below, has a default."""

    def __post_init__(self) -> None:
        self.types = ("integer", "string") if self.int_or_string else (self.type,) if self.type else ()
        self.combines = bool(self.all_of or self.any_of or self.one_of or self.refused is not None)
        below = [one for one in (*self.properties.values(), self.additional, self.items) if one is not None]
        self.has_keyed_lists = self.list_type != "atomic" or any(one.has_keyed_lists for one in below)
        self.has_embedded = self.embedded or any(one.has_embedded for one in below)
        self.has_defaults = self.default is not None or any(one.has_defaults for one in below)


def node_of(schema: object) -> SchemaNode:
    """The node of a schema and all below it; tolerates what `problems_of` refuses."""
    if not isinstance(schema, dict):
        return SchemaNode()
    additional = schema.get("additionalProperties")
    return SchemaNode(
        type=str(schema.get("type") or ""),
        properties={name: node_of(one) for name, one in _mapping(schema, "properties").items()},
        additional=node_of(additional) if isinstance(additional, dict) else None,
        open=additional is True,
        closed=additional is False,
        items=node_of(schema["items"]) if isinstance(schema.get("items"), dict) else None,
        nullable=schema.get("nullable") is True,
        default=schema.get("default"),
        bounds=_bounds(schema),
        all_of=_nodes(schema, "allOf"),
        any_of=_nodes(schema, "anyOf"),
        one_of=_nodes(schema, "oneOf"),
        refused=node_of(schema["not"]) if isinstance(schema.get("not"), dict) else None,
        preserves=schema.get("x-kubernetes-preserve-unknown-fields") is True,
        embedded=schema.get("x-kubernetes-embedded-resource") is True,
        int_or_string=schema.get("x-kubernetes-int-or-string") is True,
        list_type=_list_type(schema),
        list_keys=tuple(str(key) for key in _sequence(schema, "x-kubernetes-list-map-keys")),
        atomic_map=schema.get("x-kubernetes-map-type") == "atomic",
        rules=tuple(rule for rule in _sequence(schema, "x-kubernetes-validations") if isinstance(rule, dict)),
        description=str(schema.get("description") or ""),
    )


def shape_of(node: SchemaNode, metadata: Shape = OBJECT_META) -> Shape:
    """The shape of a whole object, always with `apiVersion`, `kind` and `metadata`."""
    shape = _shape(node)
    shape.kind = "object"
    shape.fields = {**shape.fields, **_resource_fields(metadata)}
    return shape


def _shape(node: SchemaNode) -> Shape:
    fields = {name: _shape(one) for name, one in node.properties.items()}
    if node.embedded:
        fields |= _resource_fields(OBJECT_META)
    return Shape(
        kind=cast("Kind", node.type) if node.type in _KINDS else ANY_KIND,
        fields=fields,
        values=_values(node),
        items=_shape(node.items) if node.items else None,
        list_type=node.list_type,
        keys=node.list_keys,
        key_defaults=_key_defaults(node),
        atomic=node.atomic_map,
        preserves=node.preserves,
        int_or_string=node.int_or_string,
        nullable=node.nullable,
        format=node.bounds.format,
        description=node.description,
    )


def _values(node: SchemaNode) -> Shape | None:
    if node.additional is not None:
        return _shape(node.additional)
    return ANYTHING if node.open else None


def _resource_fields(metadata: Shape) -> dict[str, Shape]:
    return {"apiVersion": _STRING, "kind": _STRING, "metadata": metadata}


def _key_defaults(node: SchemaNode) -> Object:
    item_fields = node.items.properties if node.items else {}
    return {
        key: item_fields[key].default
        for key in node.list_keys
        if key in item_fields and item_fields[key].default is not None
    }


def _list_type(schema: Object) -> ListType:
    list_type = schema.get("x-kubernetes-list-type")
    return cast("ListType", list_type) if list_type in {"set", "map"} else "atomic"


def _bounds(schema: Object) -> Bounds:
    return Bounds(
        enum=tuple(_sequence(schema, "enum")),
        pattern=str(schema.get("pattern") or ""),
        format=str(schema.get("format") or ""),
        minimum=schema.get("minimum"),
        maximum=schema.get("maximum"),
        above_minimum=schema.get("exclusiveMinimum") is True,
        below_maximum=schema.get("exclusiveMaximum") is True,
        multiple_of=schema.get("multipleOf"),
        min_length=schema.get("minLength"),
        max_length=schema.get("maxLength"),
        min_items=schema.get("minItems"),
        max_items=schema.get("maxItems"),
        min_properties=schema.get("minProperties"),
        max_properties=schema.get("maxProperties"),
        required=tuple(str(name) for name in _sequence(schema, "required")),
    )


def _nodes(schema: Object, name: str) -> tuple[SchemaNode, ...]:
    return tuple(node_of(one) for one in _sequence(schema, name))


def _sequence(schema: Object, name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []


def _mapping(schema: Object, name: str) -> dict[str, Any]:
    value = schema.get(name)
    return value if isinstance(value, dict) else {}

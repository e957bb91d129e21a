"""Describes the structure of types: which fields there are, and how lists and maps merge.

Patches, server-side apply and the check for unknown fields walk an object along its shape. A shape comes from a CRD's
structural schema or, for built-in types, from a generated table. It does not validate values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["object", "array", "string", "integer", "number", "boolean", "any"]
ListType = Literal["atomic", "set", "map"]

ANY_KIND: Kind = "any"


@dataclass(slots=True)
class Shape:
    """One node of a type.

    An object has named `fields`, or `values` where any key is allowed (both may be set); an array has `items`.
    `atomic` objects and lists of type `atomic` have one owner as a whole. A list of type `map` is keyed by `keys`;
    `key_defaults` has the values of missing keys. `preserves` means that unknown fields are kept.
    `patch_strategy` and `patch_key` are those of strategic merges (an empty strategy replaces a list); a list
    of scalars with strategy `merge` and no key is a set. `format` is OpenAPI's (`int64`, `byte`, `date-time`, ...).
    """

    kind: Kind
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    values: "Shape | None" = None
    items: "Shape | None" = None
    list_type: ListType = "atomic"
    keys: tuple[str, ...] = ()
    key_defaults: Mapping[str, Any] = field(default_factory=dict)
    atomic: bool = False
    preserves: bool = False
    int_or_string: bool = False
    nullable: bool = False
    format: str = ""
    patch_strategy: Literal["", "merge", "replace", "retainKeys", "merge,retainKeys"] = ""
    patch_key: str = ""
    description: str = ""

    def child(self, name: str) -> "Shape | None":
        """The shape of a field; None if it is unknown."""
        return self.fields.get(name) or self.values


ANYTHING = Shape("any", preserves=True)
"""The shape of unknown values."""

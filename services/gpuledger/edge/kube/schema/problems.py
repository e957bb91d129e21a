"""Finds what keeps a CRD's schema from being accepted: forbidden keywords, and whatever makes it not structural.

In a structural schema every field's type stands outside of `allOf`, `anyOf`, `oneOf` and `not`, which may only restrict
values further. `problems_of_rules` checks rules and defaults.
"""

import re
from collections.abc import Iterator

from gpuledger.edge.kube.schema.causes import Cause, Object, forbidden, invalid, not_supported, required
from gpuledger.edge.kube.schema.patterns import compiled
from gpuledger.edge.kube.schema.problems_of_lists import list_problems
from gpuledger.edge.kube.schema.problems_of_rules import default_problems, rule_problems
from gpuledger.edge.kube.schema.structural import node_of

TYPES = ("array", "boolean", "integer", "number", "object", "string")

_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_GENERIC = {
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "nullable": "must be false to be structural",
    "externalDocs": "must be undefined to be structural",
    "additionalProperties": "must be undefined to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_WHERE = {
    "root": "must not be empty at the root",
    "items": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_JUNCTORS = ("allOf", "anyOf", "oneOf")


def schema_problems(schema: Object, path: str) -> list[Cause]:
    """Everything wrong with an `openAPIV3Schema`; rules and defaults are checked only if the rest is valid."""
    causes = list(_unsupported(schema, path))
    if schema.get("nullable"):
        causes.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    causes += _structure(schema, path, "root")
    causes += _completeness(schema, schema, path, path)
    causes += list_problems(schema, path)
    if not causes:
        node = node_of(schema)
        causes = [*default_problems(node, path), *rule_problems(node, path)]
    return causes


def below(schema: Object, path: str) -> Iterator[tuple[Object, str]]:
    """The schemas of properties, values and items, with their paths."""
    for name, one in (schema.get("properties") or {}).items():
        if isinstance(one, dict):
            yield one, f"{path}.properties[{name}]"
    for name in ("additionalProperties", "items"):
        if isinstance(schema.get(name), dict):
            yield schema[name], f"{path}.{name}"


def junctions(schema: Object, path: str) -> Iterator[tuple[Object, str]]:
    """The schemas that are joined by logic, with their paths."""
    for name in _JUNCTORS:
        for index, one in enumerate(schema.get(name) or ()):
            yield one, f"{path}.{name}[{index}]"
    if isinstance(schema.get("not"), dict):
        yield schema["not"], f"{path}.not"


def _unsupported(schema: Object, path: str) -> Iterator[Cause]:
    for name in _UNSUPPORTED:
        if schema.get(name):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    yield from _wrong_type(schema, path)
    if schema.get("uniqueItems"):
        message = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", message)
    additional = schema.get("additionalProperties")
    if additional is False:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
    elif additional is not None and additional is not True and schema.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    if isinstance(schema.get("items"), list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    for one, where in (*below(schema, path), *junctions(schema, path)):
        yield from _unsupported(one, where)


def _wrong_type(schema: Object, path: str) -> Iterator[Cause]:
    type_ = schema.get("type")
    if type_ == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    elif type_ and type_ not in TYPES:
        yield not_supported(f"{path}.type", type_, TYPES)


def _structure(schema: Object, path: str, level: str) -> Iterator[Cause]:
    if schema.get("type") == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if level == "root" and schema.get("additionalProperties"):
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    for one, where in below(schema, path):
        yield from _structure(one, where, "items" if where.endswith(".items") else "field")
    yield from _extensions(schema, path)
    yield from _type_stated(schema, path, level)
    yield from _demands(schema, path, skips=_skipped(schema))
    if level == "root" or schema.get("x-kubernetes-embedded-resource"):
        yield from _resource_fields(schema, path, level)


def _extensions(schema: Object, path: str) -> Iterator[Cause]:
    embedded, preserves = (
        bool(schema.get(f"x-kubernetes-{name}")) for name in ("embedded-resource", "preserve-unknown-fields")
    )
    if schema.get("x-kubernetes-int-or-string"):
        for name, value in (("preserve-unknown-fields", preserves), ("embedded-resource", embedded)):
            if value:
                field = f"{path}.x-kubernetes-{name}"
                yield invalid(field, True, "must be false if x-kubernetes-int-or-string is true")
        if schema.get("type"):
            yield forbidden(f"{path}.type", "must be empty if x-kubernetes-int-or-string is true")
    if embedded and schema.get("additionalProperties"):
        yield forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set")
    if embedded and not preserves and not schema.get("properties"):
        message = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", message)


def _type_stated(schema: Object, path: str, level: str) -> Iterator[Cause]:
    type_ = schema.get("type")
    if schema.get("x-kubernetes-embedded-resource") and type_ != "object":
        message = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", type_, message) if type_ else required(f"{path}.type", message)
    elif not type_:
        if not (schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")):
            yield required(f"{path}.type", _WHERE[level])
    elif level == "root" and type_ != "object":
        yield invalid(f"{path}.type", type_, "must be object at the root")


def _resource_fields(schema: Object, path: str, level: str) -> Iterator[Cause]:
    properties = schema.get("properties") or {}
    for name, expected in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and properties[name].get("type") != expected:
            yield invalid(f"{path}.properties[{name}].type", properties[name].get("type"), f"must be {expected}")
    metadata = properties.get("metadata") or {}
    others = set(metadata) - {"type", "properties", "description"}
    if level == "root" and (others or set(metadata.get("properties") or ()) - {"name", "generateName"}):
        message = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", message)


def _skipped(schema: Object) -> frozenset[str]:
    """The `anyOf` of an int-or-string, which may have types."""
    if schema.get("anyOf") == _INT_OR_STRING:
        return frozenset({"anyOf"})
    first = (schema.get("allOf") or [{}])[0]
    return frozenset({"allOf"}) if first.get("anyOf") == _INT_OR_STRING else frozenset()


def _demands(schema: Object, path: str, *, skips: frozenset[str] = frozenset()) -> Iterator[Cause]:
    for one, where in junctions(schema, path):
        junctor = where.removeprefix(path).strip(".").partition("[")[0]
        if junctor == "anyOf" and "anyOf" in skips:
            continue
        first_of_all = where == f"{path}.allOf[0]" and "allOf" in skips
        yield from _nested(one, where, skips=frozenset({"anyOf"}) if first_of_all else frozenset())
    if pattern := schema.get("pattern"):
        try:
            compiled(str(pattern))
        except re.error as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _nested(schema: Object, path: str, *, skips: frozenset[str] = frozenset()) -> Iterator[Cause]:
    yield from _demands(schema, path, skips=skips)
    if schema.get("type"):
        yield forbidden(f"{path}.type", "must be empty to be structural")
    for name, message in _GENERIC.items():
        if schema.get(name):
            yield forbidden(f"{path}.{name}", message)
    for one, where in below(schema, path):
        if not where.endswith(".additionalProperties"):
            yield from _nested(one, where)
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness(schema: Object, structural: Object, path: str, logic_path: str) -> Iterator[Cause]:
    """Fields in junctors must be defined outside of them too."""
    for one, where in junctions(schema, logic_path):
        yield from _covered(one, structural, path, where)
    if schema is structural:
        for one, where in below(schema, path):
            yield from _completeness(one, one, where, where)


def _covered(demand: Object, structural: Object, path: str, logic_path: str) -> Iterator[Cause]:
    yield from _completeness(demand, structural, path, logic_path)
    if demand.get("items") and not structural.get("items"):
        yield required(f"{path}.items", f"because it is defined in {logic_path}.items")
    elif demand.get("items"):
        yield from _covered(demand["items"], structural["items"], f"{path}.items", f"{logic_path}.items")
    fields = structural.get("properties") or {}
    for name, one in (demand.get("properties") or {}).items():
        field = f"properties[{name}]"
        if name in fields:
            yield from _covered(one, fields[name], f"{path}.{field}", f"{logic_path}.{field}")
        else:
            yield required(f"{path}.{field}", f"because it is defined in {logic_path}.{field}")

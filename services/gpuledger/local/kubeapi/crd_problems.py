"""Finds what keeps a CustomResourceDefinition from being accepted, except in its schemas.

Kubernetes judges a CRD in its internal form, in which the parts that all versions share stand at the top, for example
a schema at `spec.validation.openAPIV3Schema`. Field paths follow that form. This module never changes the CRD.
"""

import re
from collections.abc import Iterator
from typing import Any

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid, not_supported, required
from gpuledger.edge.kube.schema.object_names import dns_subdomain_problem
from gpuledger.edge.kube.schema.problems import schema_problems
from gpuledger.edge.kube.schema.structural import SchemaNode, node_of
from gpuledger.local.kubeapi.jsonpath import PathError, simple_fields, steps_of

SELECTABLE_MAX = 8
APPROVED = "api-approved.kubernetes.io"

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_SCOPES = ("Cluster", "Namespaced")
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_PROBLEM = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', and start with a letter"
_ROOT_FIELDS = frozenset(
    "description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern "
    "maxItems minItems uniqueItems multipleOf required items properties externalDocs example "
    "x-kubernetes-preserve-unknown-fields x-kubernetes-validations".split()
)


def problems_of(crd: Object) -> list[Cause]:
    """Everything wrong with a new CRD, after its defaults are filled in."""
    spec = _mapping(crd.get("spec"))
    return [*_name_problems(crd, spec), *_spec_problems(spec), *_stored_problems(crd, spec)]


def changes(crd: Object, old: Object) -> Iterator[Cause]:
    """Changes that are not allowed; scope and kind are fixed once the CRD is established."""
    spec, before = _mapping(crd.get("spec")), _mapping(old.get("spec"))
    names, old_names = _mapping(spec.get("names")), _mapping(before.get("names"))
    pairs = [("group", spec.get("group"), before.get("group"))]
    pairs.append(("names.plural", names.get("plural"), old_names.get("plural")))
    if _is(old):
        pairs.append(("scope", spec.get("scope"), before.get("scope")))
        pairs.append(("names.kind", names.get("kind"), old_names.get("kind")))
    for field, value, was in pairs:
        if value != was:
            yield invalid(f"spec.{field}", value, "field is immutable")


def _is(crd: Object) -> bool:
    conditions = _mapping(crd.get("status")).get("conditions") or ()
    return any(one.get("type") == "Established" and one.get("status") == "True" for one in conditions)


def _name_problems(crd: Object, spec: Object) -> Iterator[Cause]:
    name = crd["metadata"].get("name", "")
    group = str(spec.get("group") or "")
    if name != f"{_mapping(spec.get('names')).get('plural')}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if group.endswith((".k8s.io", ".kubernetes.io")) and not (crd["metadata"].get("annotations") or {}).get(APPROVED):
        yield required(f"metadata.annotations[{APPROVED}]", "protected groups must have approval annotation")


def _spec_problems(spec: Object) -> Iterator[Cause]:
    yield from _group_problems(str(spec.get("group") or ""))
    scope = spec.get("scope")
    if not scope:
        yield required("spec.scope")
    elif scope not in _SCOPES:
        yield not_supported("spec.scope", scope, _SCOPES)
    if spec.get("preserveUnknownFields"):
        yield invalid("spec.preserveUnknownFields", True, "must be false")
    yield from _names_problems(_mapping(spec.get("names")))
    yield from _versions_problems([_mapping(one) for one in spec.get("versions") or ()])
    if (strategy := _mapping(spec.get("conversion")).get("strategy")) != "None":
        yield not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))


def _group_problems(group: str) -> Iterator[Cause]:
    if not group:
        yield required("spec.group")
    elif problem := dns_subdomain_problem(group):
        yield invalid("spec.group", group, problem)
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")


def _names_problems(names: Object) -> Iterator[Cause]:
    for name in ("plural", "singular", "kind", "listKind"):
        value = str(names.get(name) or "")
        if not value:
            yield required(f"spec.names.{name}")
        elif not _is_label(value.lower() if name in {"kind", "listKind"} else value):
            yield invalid(f"spec.names.{name}", value, _LABEL_PROBLEM)
    for name in ("shortNames", "categories"):
        for index, value in enumerate(names.get(name) or ()):
            if not _is_label(value):
                yield invalid(f"spec.names.{name}[{index}]", value, _LABEL_PROBLEM)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _is_label(value: str) -> bool:
    return _LABEL.fullmatch(value) is not None


def _versions_problems(versions: list[Object]) -> Iterator[Cause]:
    names = [str(one.get("name") or "") for one in versions]
    for index, name in enumerate(names):
        if not _is_label(name):
            yield invalid(f"spec.versions[{index}].name", name, _LABEL_PROBLEM)
    if len(set(names)) != len(names):
        yield invalid("spec.versions", names, "must contain unique version names")
    if sum(one.get("storage") is True for one in versions) != 1:
        yield invalid("spec.versions", names, "must have exactly one version marked as storage version")
    for index, version in enumerate(versions):
        if version.get("deprecationWarning") and not version.get("deprecated"):
            field = f"spec.versions[{index}].deprecationWarning"
            yield invalid(field, version["deprecationWarning"], "can only be set for deprecated versions")
    for part, check in (("schema", _schema), ("additionalPrinterColumns", _columns)):
        yield from _each(versions, part, check)
    yield from _each(versions, "selectableFields", _selectable)


def _each(versions: list[Object], part: str, check: Any) -> Iterator[Cause]:
    """Check a part once, at the top, if all versions share it, and otherwise for each version."""
    if part == "schema":
        for index, version in enumerate(versions):
            if not _mapping(version.get("schema")).get("openAPIV3Schema"):
                yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
    if versions and all(one.get(part) == versions[0].get(part) for one in versions):
        if versions[0].get(part):
            yield from check(versions[0], "spec.validation" if part == "schema" else f"spec.{part}")
        return
    for index, version in enumerate(versions):
        if version.get(part):
            yield from check(version, f"spec.versions[{index}].{part}")


def _schema(version: Object, path: str) -> Iterator[Cause]:
    schema = _mapping(version.get("schema")).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        return
    field = f"{path}.openAPIV3Schema"
    if "status" in _mapping(version.get("subresources")):
        others = sorted(name for name, value in schema.items() if name not in _ROOT_FIELDS and value)
        if others:
            yield invalid(field, others, "must not be at the root of the schema if the status subresource is enabled")
    yield from schema_problems(schema, field)


def _columns(version: Object, path: str) -> Iterator[Cause]:
    for index, column in enumerate(version["additionalPrinterColumns"]):
        yield from _column_problems(_mapping(column), f"{path}[{index}]")


def _column_problems(column: Object, path: str) -> Iterator[Cause]:
    for name in ("name", "type"):
        if not column.get(name):
            yield required(f"{path}.{name}")
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        yield invalid(f"{path}.type", column["type"], f"must be one of {','.join(_COLUMN_TYPES)}")
    if column.get("format") and column["format"] not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", column["format"], f"must be one of {','.join(_COLUMN_FORMATS)}")
    json_path = str(column.get("jsonPath") or "")
    if not json_path:
        yield required(f"{path}.JSONPath")
    elif problem := _path_problem(json_path):
        yield invalid(f"{path}.JSONPath", json_path, problem)


def _path_problem(path: str) -> str | None:
    try:
        steps_of(path)
    except PathError as error:
        return str(error)
    return None if path[0] in ".[$" else "is an invalid path: must begin with a dot"


def _selectable(version: Object, path: str) -> Iterator[Cause]:
    fields = version["selectableFields"]
    if len(fields) > SELECTABLE_MAX:
        yield Cause("FieldValueTooMany", f"Too many: {len(fields)}: must have at most {SELECTABLE_MAX} items", path)
    seen: set[str] = set()
    node = node_of(_mapping(version.get("schema")).get("openAPIV3Schema"))
    for index, field_spec in enumerate(fields):
        json_path = str(_mapping(field_spec).get("jsonPath") or "")
        field = f"{path}[{index}].jsonPath"
        if not json_path:
            yield required(field)
        elif json_path in seen:
            yield Cause("FieldValueDuplicate", f'Duplicate value: "{json_path}"', field)
        elif problem := _selectable_problem(json_path, node):
            yield invalid(field, json_path, problem)
        seen.add(json_path)


def _selectable_problem(path: str, node: SchemaNode) -> str | None:
    names = simple_fields(path)
    if names is None:
        return "is an invalid path: it may be nothing but fields"
    if names[0] == "metadata":
        return "must not point to fields in metadata"
    at: SchemaNode | None = node
    for name in names:
        at = at.properties.get(name) if at else None
    if at is None:
        return "is an invalid path: does not refer to a valid field"
    return (
        None
        if at.type in {"string", "integer", "boolean"}
        else "must point to a field of type string, boolean or integer"
    )


def _stored_problems(crd: Object, spec: Object) -> Iterator[Cause]:
    stored = _mapping(crd.get("status")).get("storedVersions") or []
    if not stored:
        yield invalid("status.storedVersions", stored, "must have at least one stored version")
    names = [one.get("name") for one in spec.get("versions") or ()]
    for index, name in enumerate(stored):
        if name not in names:
            yield invalid(f"status.storedVersions[{index}]", name, "must appear in spec.versions")
    storage = [one.get("name") for one in spec.get("versions") or () if one.get("storage")]
    if storage and storage[-1] not in stored:
        yield invalid("status.storedVersions", stored, f"must have the storage version {storage[-1]}")


def _mapping(value: object) -> Object:
    return value if isinstance(value, dict) else {}

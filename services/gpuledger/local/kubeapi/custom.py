"""Makes a resource from each version of a CustomResourceDefinition: strategy, shape, columns and selectable fields.

All versions of a CRD hold the same objects, without conversion. The CRDs have been accepted already; this module never
validates them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuledger.edge.kube.schema.causes import Cause, Object, invalid
from gpuledger.edge.kube.schema.correlation import ABSENT
from gpuledger.edge.kube.schema.defaults import apply_defaults
from gpuledger.edge.kube.schema.lists import embedded_problems, repeated_items
from gpuledger.edge.kube.schema.rules import RuleTree, broken_rules, rules_of
from gpuledger.edge.kube.schema.structural import SchemaNode, node_of, shape_of
from gpuledger.edge.kube.schema.values import NOWHERE, ValuePlace, problems_of_value
from gpuledger.local.kubeapi.jsonpath import first
from gpuledger.local.kubeapi.resources import Context, ServedResource, Strategy, Subresource, TableColumn
from gpuledger.local.kubeapi.scales import SCALE, count_causes
from gpuledger.local.kubeapi.tables_age import age_of

_BLOCKING = frozenset(f"FieldValue{what}" for what in ("NotSupported", "Required", "TooLong", "TooMany", "TypeInvalid"))
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
_AGE = TableColumn("Age", "date", path=".metadata.creationTimestamp")
_NAME = TableColumn("Name", format="name")


@dataclass(slots=True)
class CustomVersion:
    """One version of a CRD."""

    node: SchemaNode
    rules: RuleTree | None
    has_status: bool
    columns: tuple[TableColumn, ...]
    selectable: tuple[str, ...]
    spec_count: str = ""
    """The path of the count that the scale writes; empty for a version without a scale."""

    status_count: str = ""


def resources_of(crd: Object) -> list[ServedResource]:
    """A resource for each version that is served."""
    return [_resource(crd["spec"], version) for version in crd["spec"]["versions"] if version.get("served")]


class CustomStrategy(Strategy):
    """The behaviour of custom resources, which comes from the schema."""

    updates_unconditionally = False
    answers_deleted_object = False

    def __init__(self, version: CustomVersion) -> None:
        self.version = version

    def default(self, obj: Object) -> None:
        """Apply the defaults of the schema."""
        apply_defaults(obj, self.version.node)

    def prepare_for_create(self, obj: Object, context: Context) -> None:
        """Drop the status if it has an endpoint of its own, and apply its defaults."""
        if self.version.has_status and "status" in obj:
            del obj["status"]
            self.default(obj)

    def prepare_for_update(self, obj: Object, old: Object, subresource: str, context: Context) -> None:
        """Let `status` write the status alone; other endpoints keep it if it has its own."""
        if subresource == "status":
            _keep_all_but_status(obj, old)
        elif self.version.has_status:
            _take(obj, old, "status")

    def validate(self, obj: Object) -> list[Cause]:
        """Check schema, embedded resources, list types and rules, in this order."""
        node = self.version.node
        causes = [
            *problems_of_value(obj, node, ValuePlace("")),
            *self._count_causes(obj, (self.version.spec_count, self.version.status_count)),
            *embedded_problems(obj, node),
            *repeated_items(obj, node),
        ]
        return causes + self._by_rules(obj, ABSENT, causes)

    def validate_update(self, obj: Object, old: Object, subresource: str) -> list[Cause]:
        """As on creation, but only for changed parts; `status` checks the status alone, except for rules."""
        node = self.version.node
        causes = (
            self._status_causes(obj, old)
            if subresource == "status"
            else problems_of_value(obj, node, ValuePlace(""), old)
        )
        counts = (self.version.status_count,) if subresource else (self.version.spec_count, self.version.status_count)
        causes += self._count_causes(obj, counts)
        causes += embedded_problems(obj, node)
        repeated = list(repeated_items(obj, node))
        if repeated and not any(repeated_items(old, node)):
            causes += repeated
        return causes + self._by_rules(obj, old, causes)

    def spec_changed(self, obj: Object, old: Object) -> bool:
        """Whether anything but metadata differs; status does not count if it has its own endpoint."""
        outside = {"metadata", "kind", "apiVersion"} | ({"status"} if self.version.has_status else set())
        return _without(obj, outside) != _without(old, outside)

    def field_labels(self, obj: Object) -> Mapping[str, str]:
        """The selectable fields; missing ones are empty."""
        return {path.removeprefix("."): _label(first(path, obj)) for path in self.version.selectable}

    def columns(self) -> Sequence[TableColumn]:
        """Name, then the printer columns of the CRD, or Age if it has none."""
        return (_NAME, *self.version.columns)

    def cells(self, obj: Object, now: datetime) -> list[object]:
        """The first value at each column's path; None if there is none of the column's type."""
        return [obj["metadata"]["name"], *(_cell(first(one.path, obj), one, now) for one in self.version.columns)]

    def _status_causes(self, obj: Object, old: Object) -> list[Cause]:
        node = self.version.node.properties.get("status")
        if node is None or "status" not in obj:
            return []
        return problems_of_value(obj["status"], node, ValuePlace("status", "status"), old.get("status", ABSENT))

    def _count_causes(self, obj: Object, paths: tuple[str, ...]) -> list[Cause]:
        return [cause for path in paths if path for cause in count_causes(obj, path)]

    def _by_rules(self, obj: Object, old: object, causes: list[Cause]) -> list[Cause]:
        rules = self.version.rules
        if rules is None:
            return []
        if any(cause.reason in _BLOCKING for cause in causes):
            return [invalid(NOWHERE, None, _UNCHECKED)]
        return broken_rules(obj, rules, old)


def _keep_all_but_status(obj: Object, old: Object) -> None:
    kept = {name: value for name, value in old.items() if name not in {"metadata", "status"}}
    status = {"status": obj["status"]} if "status" in obj else {}
    metadata = _without(old.get("metadata", {}), {"managedFields"})
    _take(metadata, obj.get("metadata", {}), "managedFields")
    obj.clear()
    obj.update(kept | {"metadata": metadata} | status)


def _take(obj: Object, source: Object, name: str) -> None:
    obj.pop(name, None)
    if name in source:
        obj[name] = source[name]


def _without(obj: Object, names: set[str]) -> Object:
    return {name: value for name, value in obj.items() if name not in names}


def _resource(spec: Object, version: Object) -> ServedResource:
    names = spec["names"]
    read = _read(version)
    return ServedResource(
        group=spec["group"],
        version=version["name"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=(Subresource("status", ("get", "patch", "update"), names["kind"]),) if read.has_status else (),
        shape=shape_of(read.node),
        strategy=CustomStrategy(read),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        is_custom=True,
        lacks=(SCALE,) if read.spec_count else (),
    )


def _read(version: Object) -> CustomVersion:
    node = node_of((version.get("schema") or {}).get("openAPIV3Schema"))
    subresources = version.get("subresources") or {}
    scale = subresources.get(SCALE) or {}
    return CustomVersion(
        node=node,
        rules=rules_of(node),
        has_status="status" in subresources,
        columns=tuple(_column(one) for one in version.get("additionalPrinterColumns") or ()) or (_AGE,),
        selectable=tuple(one["jsonPath"] for one in version.get("selectableFields") or ()),
        spec_count=scale.get("specReplicasPath", ""),
        status_count=scale.get("statusReplicasPath", ""),
    )


def _column(column: Object) -> TableColumn:
    path = column["jsonPath"]
    return TableColumn(
        name=column["name"],
        type=column["type"],
        format=column.get("format", ""),
        description=column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        priority=column.get("priority", 0),
        path=path,
    )


def _cell(value: object, column: TableColumn, now: datetime) -> object:
    if value is None:
        return None
    if column.type == "string":
        return _text(value)
    if column.type == "date":
        return age_of(value, now) if isinstance(value, str) else None
    if column.type == "boolean" or isinstance(value, bool):
        return value if column.type == "boolean" and isinstance(value, bool) else None
    if not isinstance(value, int | float):
        return None
    return int(value) if column.type == "integer" else float(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _label(value: object) -> str:
    return "" if value is None else _text(value)

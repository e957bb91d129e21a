"""Writes shapes as OpenAPI schemas. Built-in structs are references by name, since some contain themselves."""

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi.builtin_shapes import METADATA, model_of, shape, short_name
from gpuledger.local.kubeapi.resources import ServedResource

COMPONENTS = "#/components/schemas/"
"""The place of schemas in a document."""

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_META_TYPES = frozenset(
    {
        "Condition",
        "DeleteOptions",
        "FieldSelectorRequirement",
        "LabelSelector",
        "LabelSelectorRequirement",
        "ManagedFieldsEntry",
        "ObjectMeta",
        "OwnerReference",
        "Preconditions",
    }
)
_FORMATS = {"micro-time": "date-time", "quantity": "", "int-or-string": ""}


def component_name(resource: ServedResource) -> str:
    """The name of a resource's schema: reversed domain of the group, version and kind."""
    if not resource.is_custom:
        return f"io.k8s.api.{(resource.group or 'core').removesuffix('.k8s.io')}.{resource.version}.{resource.kind}"
    return ".".join((*reversed(resource.group.split(".")), resource.version, resource.kind))


class Schemas:
    """Collects the schemas of a document, each once."""

    def __init__(self) -> None:
        self._schemas: Object = {}

    def add(self, resource: ServedResource) -> None:
        """Add the schemas of a resource, of its lists and of what they refer to."""
        name = component_name(resource)
        kind = {"group": resource.group, "version": resource.version}
        self._schemas[name] = self._object(resource) | {
            "x-kubernetes-group-version-kind": [kind | {"kind": resource.kind}]
        }
        if "list" in resource.verbs:
            self._schemas[f"{name}List"] = _list_of(f"{COMPONENTS}{name}") | {
                "x-kubernetes-group-version-kind": [kind | {"kind": resource.kind_of_list}]
            }

    def refer(self, node: Shape) -> Object:
        """A reference to a built-in struct, whose schema is added."""
        model = model_of(node) or METADATA
        name = _struct_name(model)
        if name not in self._schemas:
            self._schemas[name] = {}
            self._schemas[name] = self._struct(shape(model))
        return {"$ref": f"{COMPONENTS}{name}"}

    def written(self) -> Object:
        """The schemas by name."""
        return dict(sorted(self._schemas.items()))

    def _object(self, resource: ServedResource) -> Object:
        schema = self._struct(resource.shape)
        properties = schema.setdefault("properties", {})
        for name in ("apiVersion", "kind"):
            properties[name] = {"type": "string"}
        if resource.is_custom or "metadata" in properties:
            properties["metadata"] = {"allOf": [self.refer(shape(METADATA))]}
        return schema | {"type": "object"}

    def _schema(self, node: Shape) -> Object:
        if node.kind == "object" and node.fields and model_of(node):
            schema: Object = {"allOf": [self.refer(node)]}
        elif node.kind == "array":
            schema = {"type": "array", "items": self._schema(node.items) if node.items else {}} | _list_type(node)
        elif node.kind == "object":
            schema = self._struct(node)
        else:
            schema = _scalar(node)
        return schema | _patching(node) | ({"description": node.description} if node.description else {})

    def _struct(self, node: Shape) -> Object:
        schema: Object = {} if node.kind == "any" else {"type": "object"}
        if node.description:
            schema["description"] = node.description
        if node.fields:
            schema["properties"] = {name: self._schema(child) for name, child in node.fields.items()}
        if node.values is not None:
            schema["additionalProperties"] = self._schema(node.values)
        if node.atomic:
            schema["x-kubernetes-map-type"] = "atomic"
        if node.preserves:
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return schema


def _struct_name(model: str) -> str:
    short = short_name(model)
    if short in _META_TYPES:
        return f"{_META}.{short}"
    version = model.removesuffix(short).lower()
    return f"io.k8s.api.{version}.{short}"


def _scalar(node: Shape) -> Object:
    if node.int_or_string:
        return {"x-kubernetes-int-or-string": True}
    if node.kind == "any":
        return {"x-kubernetes-preserve-unknown-fields": True} if node.preserves else {}
    schema: Object = {"type": node.kind}
    form = _FORMATS.get(node.format, node.format)
    if form:
        schema["format"] = form
    return schema | ({"nullable": True} if node.nullable and node.format not in {"date-time", "micro-time"} else {})


def _list_type(node: Shape) -> Object:
    schema: Object = {"x-kubernetes-list-type": node.list_type}
    if node.list_type == "map":
        schema["x-kubernetes-list-map-keys"] = list(node.keys)
    return schema


def _patching(node: Shape) -> Object:
    schema: Object = {}
    if node.patch_strategy:
        schema["x-kubernetes-patch-strategy"] = node.patch_strategy
    if node.patch_key:
        schema["x-kubernetes-patch-merge-key"] = node.patch_key
    return schema


def _list_of(reference: str) -> Object:
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "items": {"type": "array", "items": {"$ref": reference}},
        },
        "required": ["items"],
    }

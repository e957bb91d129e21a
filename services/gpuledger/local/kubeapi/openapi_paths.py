"""Describes the paths of a resource for OpenAPI: its operations and the kind that they take."""

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.openapi_schemas import COMPONENTS, component_name
from gpuledger.local.kubeapi.resources import ServedResource, Subresource

_ON_COLLECTION = {"list": "get", "create": "post", "deletecollection": "delete"}
_ON_OBJECT = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
_ACTIONS = {"create": "post", "update": "put"}
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_STRATEGIC = _PATCHES[3]
_QUERY = ("dryRun", "fieldManager", "fieldValidation")


def paths_of(resource: ServedResource) -> Object:
    """The paths of a resource and its subresources, with an operation for each verb."""
    collection = _collection(resource)
    single = f"{collection}/{{name}}"
    paths: Object = {
        collection: _operations(resource, resource.verbs, _ON_COLLECTION),
        single: _operations(resource, resource.verbs, _ON_OBJECT),
    }
    if resource.namespaced:
        paths[f"{_root(resource)}/{resource.plural}"] = _operations(resource, ("list",), _ON_COLLECTION)
    for sub in resource.subresources:
        paths[f"{single}/{sub.name}"] = _operations(resource, sub.verbs, _ON_OBJECT | {"create": "post"}, sub)
    return {path: operations for path, operations in paths.items() if operations}


def _root(resource: ServedResource) -> str:
    return f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"


def _collection(resource: ServedResource) -> str:
    between = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{_root(resource)}{between}/{resource.plural}"


def _operations(
    resource: ServedResource, verbs: tuple[str, ...], methods: dict[str, str], sub: Subresource | None = None
) -> Object:
    return {method: _operation(resource, verb, sub) for verb, method in methods.items() if verb in verbs}


def _operation(resource: ServedResource, verb: str, sub: Subresource | None) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    if sub is not None and sub.kind != resource.kind:
        kind = {"group": sub.group, "version": sub.version or resource.version, "kind": sub.kind}
    schema = {"$ref": f"{COMPONENTS}{component_name(resource)}"}
    names = _QUERY if verb in {"create", "update", "patch"} else ()
    operation: Object = {
        "operationId": "".join(part.title() for part in (verb, resource.group, resource.version, resource.kind))
        + (sub.name.title() if sub else ""),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names],
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": kind,
    }
    if verb == "patch":
        content = {name: {"schema": {"type": "object"}} for name in _patches(resource)}
        operation["requestBody"] = {"content": content}
    elif verb in {"create", "update"}:
        operation["requestBody"] = {"content": {"*/*": {"schema": schema}}}
    return operation


def _patches(resource: ServedResource) -> tuple[str, ...]:
    return tuple(name for name in _PATCHES if not (resource.is_custom and name == _STRATEGIC))

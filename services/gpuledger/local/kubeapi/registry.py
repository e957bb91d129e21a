"""Knows which resources are served, and finds the one that a path names."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuledger.local.kubeapi.errors import ApiError, PlainError, not_found
from gpuledger.local.kubeapi.resources import ServedResource

PAGE_NOT_FOUND = "404 page not found\n"


class Target(NamedTuple):
    """The target of a path. `name` is empty for a collection, `namespace` is empty for all or none.

    `subresource` may be one that the server lacks.
    """

    resource: ServedResource
    namespace: str
    name: str
    subresource: str

    @property
    def selects_namespace(self) -> str | None:
        """The namespace of a list; None for all."""
        return self.namespace if self.resource.namespaced and self.namespace else None


class ResourceRegistry:
    """Built-in resources and, while their CRDs are established, custom ones."""

    def __init__(self, builtin: Iterable[ServedResource]) -> None:
        self._builtin = {(one.group, one.version, one.plural): one for one in builtin}
        self._custom: dict[str, tuple[ServedResource, ...]] = {}
        self._found = dict(self._builtin)
        self.generation = 0

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(tuple(self._found.values()))

    def serve(self, crd: str, resources: Iterable[ServedResource]) -> None:
        """Serve the resources of a CRD, instead of its earlier ones."""
        self._custom[crd] = tuple(resources)
        self._rebuild()

    def withdraw(self, crd: str) -> None:
        """Stop serving the resources of a CRD."""
        self._custom.pop(crd, None)
        self._rebuild()

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        """The resource of these names."""
        return self._found.get((group, version, plural))

    def serves(self, resource: ServedResource) -> bool:
        """Whether a resource is still served; its schema may have changed."""
        return self.find(resource.group, resource.version, resource.plural) is not None

    def of_group(self, group: str, plural: str) -> ServedResource | None:
        """Any version of a resource."""
        return next((one for one in self if (one.group, one.plural) == (group, plural)), None)

    def of_kind(self, api_version: str, kind: str) -> ServedResource | None:
        """The resource of this kind."""
        return next((one for one in self if (one.api_version, one.kind) == (api_version, kind)), None)

    def target(self, path: str) -> Target:
        """The target of a path.

        Raises:
            ApiError: 404 within the core group.
            PlainError: 404 elsewhere.
        """
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            found = self._resolve("", parts[1], parts[2:])
        elif parts[0] == "apis" and len(parts) > 3:
            found = self._resolve(parts[1], parts[2], parts[3:])
        else:
            found = None
        if found is None:
            raise self._unknown(parts)
        return found

    def _unknown(self, parts: list[str]) -> ApiError | PlainError:
        version = ("", parts[1]) if parts[0] == "api" else tuple(parts[1:3])
        if len(parts) > 2 and any((one.group, one.version) == version for one in self._builtin.values()):
            return ApiError(404, "NotFound", "the server could not find the requested resource", {})
        return PlainError(404, PAGE_NOT_FOUND)

    def _resolve(self, group: str, version: str, rest: list[str]) -> Target | None:
        if rest[0] == "namespaces" and len(rest) > 2:
            resource = self.find(group, version, rest[2])
            if resource is not None and resource.namespaced:
                return _target(resource, rest[1], rest[3:])
        resource = self.find(group, version, rest[0])
        if resource is None or (resource.namespaced and len(rest) > 1):
            return None
        return _target(resource, "", rest[1:])

    def _rebuild(self) -> None:
        self.generation += 1
        self._found = dict(self._builtin)
        for resources in self._custom.values():
            self._found |= {(one.group, one.version, one.plural): one for one in resources}


def _target(resource: ServedResource, namespace: str, rest: list[str]) -> Target | None:
    name, subresource = [*rest, "", ""][:2]
    if subresource in resource.lacks:
        return Target(resource, namespace, name, subresource)
    if len(rest) > 2 or not all(rest):
        return None
    if subresource and not resource.subresource(subresource):
        if resource.is_custom:
            raise not_found(*resource.key, name)
        return None
    return Target(resource, namespace, name, subresource)

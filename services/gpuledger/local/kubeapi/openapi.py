"""Builds the OpenAPI 3 documents that `kubectl explain` and clients with dynamic types read.

Custom types have the descriptions of their CRDs, built-in types have none. The documents describe structure only;
nothing is validated against them.
"""

from collections.abc import Iterable
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.builtin_shapes import METADATA, shape
from gpuledger.local.kubeapi.discovery import GIT_VERSION
from gpuledger.local.kubeapi.negotiation import JSON, negotiate
from gpuledger.local.kubeapi.openapi_paths import paths_of
from gpuledger.local.kubeapi.openapi_schemas import Schemas
from gpuledger.local.kubeapi.resources import ServedResource

V3 = "/openapi/v3"
HASH_LENGTH = 32


class _GroupVersion(NamedTuple):
    group: str
    version: str

    @property
    def path(self) -> str:
        return f"apis/{self.group}/{self.version}" if self.group else f"api/{self.version}"


class OpenApi:
    """The documents for one set of resources; make another when the set changes."""

    def __init__(self, resources: Iterable[ServedResource]) -> None:
        self._resources = tuple(resources)

    def find(self, path: str, accept: str) -> tuple[Object, str] | None:
        """The document at a path and its media type, which is JSON; None where there is none.

        Raises:
            ApiError: 406 if the client does not accept JSON; clients then use another document.
        """
        negotiate(accept)
        trimmed = path.rstrip("/")
        if trimmed == V3:
            return self.index(), JSON
        document = self.group_version(trimmed.removeprefix(f"{V3}/"))
        return None if document is None else (document, JSON)

    def index(self) -> Object:
        """`/openapi/v3`: the paths of the documents, with hashes that change with the served types."""
        paths = {one.path: {"serverRelativeURL": f"{V3}/{one.path}?hash={self._hash(one)}"} for one in self._served}
        return {"paths": paths}

    def group_version(self, path: str) -> Object | None:
        """The document of `apis/GROUP/VERSION` or `api/VERSION`; None where there is none."""
        found = next((one for one in self._served if one.path == path), None)
        if found is None:
            return None
        resources = self._served[found]
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": GIT_VERSION},
            "paths": {key: value for resource in resources for key, value in paths_of(resource).items()},
            "components": {"schemas": _schemas(resources)},
        }

    @cached_property
    def _served(self) -> dict[_GroupVersion, list[ServedResource]]:
        served: dict[_GroupVersion, list[ServedResource]] = {}
        for resource in self._resources:
            served.setdefault(_GroupVersion(resource.group, resource.version), []).append(resource)
        return served

    def _hash(self, one: _GroupVersion) -> str:
        shown = repr([(r.plural, r.subresources, r.verbs, r.is_custom and r.shape) for r in self._served[one]])
        return sha256(shown.encode()).hexdigest()[:HASH_LENGTH].upper()


def _schemas(resources: Iterable[ServedResource]) -> Object:
    schemas = Schemas()
    for resource in resources:
        schemas.add(resource)
    schemas.refer(shape(METADATA))
    return schemas.written()

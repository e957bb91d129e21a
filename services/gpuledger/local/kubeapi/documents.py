"""Serves the documents that describe the server: discovery, OpenAPI, version and health."""

from typing import NamedTuple

import orjson

from gpuledger.local.kubeapi.discovery import Discovery
from gpuledger.local.kubeapi.openapi import OpenApi
from gpuledger.local.kubeapi.registry import ResourceRegistry

HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/ping", "/readyz/ping"})


class Document(NamedTuple):
    """A document with its media type."""

    body: bytes
    content_type: str


class Documents:
    """The documents, cached until the resources change."""

    def __init__(self, registry: ResourceRegistry) -> None:
        self._registry = registry
        self._generation = -1
        self._discovery = Discovery(())
        self._openapi = OpenApi(())
        self._kept: dict[tuple[str, str], Document | None] = {}

    def find(self, path: str, accept: str, *, is_verbose: bool = False) -> Document | None:
        """The document at a path; None where there is none."""
        if path.rstrip("/") in HEALTH_PATHS:
            return _health(path.strip("/").partition("/")[0], is_verbose=is_verbose)
        if path == "/":
            return Document(orjson.dumps({"paths": self._paths()}) + b"\n", "application/json")
        if not _is_document(path):
            return None
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            resources = tuple(self._registry)
            self._discovery, self._openapi, self._kept = Discovery(resources), OpenApi(resources), {}
        key = (path, accept)
        if key not in self._kept:
            self._kept[key] = self._made(path, accept)
        return self._kept[key]

    def _paths(self) -> list[str]:
        served = {(one.group, one.version) for one in self._registry}
        groups = {f"/apis/{group}" for group, _ in served if group}
        versions = {f"/apis/{group}/{version}" if group else f"/api/{version}" for group, version in served}
        return sorted({"/api", "/apis", "/openapi/v3", "/version"} | groups | versions | HEALTH_PATHS)

    def _made(self, path: str, accept: str) -> Document | None:
        found = self._openapi.find(path, accept) if path.startswith("/openapi") else self._discovery.find(path, accept)
        return None if found is None else Document(orjson.dumps(found[0]) + b"\n", found[1])


def _health(endpoint: str, *, is_verbose: bool) -> Document:
    text = f"[+]ping ok\n{endpoint} check passed\n" if is_verbose else "ok"
    return Document(text.encode(), "text/plain; charset=utf-8")


def _is_document(path: str) -> bool:
    parts = path.strip("/").split("/")
    return (
        parts[0] in {"openapi", "version"}
        or (parts[0] == "api" and len(parts) <= 2)
        or (parts[0] == "apis" and len(parts) <= 3)
    )

"""Builds the documents of legacy and aggregated discovery.

Built-in groups come first, in Kubernetes' order, then the groups of custom resources by name.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.negotiation import AGGREGATED, JSON, negotiate_discovery
from gpuledger.local.kubeapi.resources import ServedResource, Subresource

GIT_VERSION = "v1.36.0"
MAJOR, MINOR = "1", "36"

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_LAST_LETTER = 0x10FFFF
_STAGES = {"alpha": 0, "beta": 1, None: 2}


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A key that sorts versions, the preferred one last: v2, v1, v1beta2, v1alpha1, then other names."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0, "".join(chr(_LAST_LETTER - ord(letter)) for letter in version) + chr(_LAST_LETTER))
    return (_STAGES[match[2]], int(match[1]), int(match[3] or 0), "")


def version_document() -> Object:
    """`/version`."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": str(int(MINOR) - 1),
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


class Discovery:
    """The documents for one set of resources; make another when the set changes."""

    def __init__(self, resources: Iterable[ServedResource]) -> None:
        self._resources = tuple(resources)

    def find(self, path: str, accept: str) -> tuple[Object, str] | None:
        """The document at a path and its media type; None where there is none.

        Raises:
            ApiError: 406, as `negotiate_discovery`.
        """
        parts = path.strip("/").split("/")
        if parts in (["api"], ["apis"]):
            representation = negotiate_discovery(accept)
            if representation.kind == AGGREGATED:
                return self.aggregated(
                    core=parts == ["api"], version=representation.version
                ), representation.content_type
        document = self._legacy(parts)
        return None if document is None else (document, JSON)

    def _legacy(self, parts: list[str]) -> Object | None:
        fixed = {"version": version_document, "api": self.api, "apis": self.apis}
        match parts:
            case [name] if name in fixed:
                return fixed[name]()
            case ["api", version]:
                return self.resource_list("", version)
            case ["apis", group]:
                return self.group(group)
            case ["apis", group, version]:
                return self.resource_list(group, version)
        return None

    @cached_property
    def _groups(self) -> dict[str, dict[str, list[ServedResource]]]:
        builtin = [one for one in self._resources if not one.is_custom]
        custom = sorted((one for one in self._resources if one.is_custom), key=lambda one: one.group)
        groups: dict[str, dict[str, list[ServedResource]]] = {}
        for resource in (*builtin, *custom):
            groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return {group: _by_preference(versions) for group, versions in groups.items()}

    def group_names(self) -> list[str]:
        """The names of the groups under `/apis`."""
        return [group for group in self._groups if group]

    def api(self) -> Object:
        """`/api`."""
        return {"kind": "APIVersions", "versions": list(self._groups.get("", {"v1": []}))} | {
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
        }

    def apis(self) -> Object:
        """`/apis`."""
        groups = [self._group_entry(group) for group in self.group_names()]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def group(self, group: str) -> Object | None:
        """`/apis/GROUP`; None where there is no such group."""
        if group not in self._groups:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1"} | self._group_entry(group)

    def resource_list(self, group: str, version: str) -> Object | None:
        """`/api/v1` and `/apis/GROUP/VERSION`; None where there is no such version."""
        resources = self._groups.get(group, {}).get(version)
        if resources is None:
            return None
        named = resources if group and resources[0].is_custom else sorted(resources, key=lambda one: one.plural)
        entries = [entry for resource in named for entry in _legacy_entries(resource)]
        api_version = f"{group}/{version}" if group else version
        document = {"kind": "APIResourceList", "groupVersion": api_version, "resources": entries}
        return {"apiVersion": "v1"} | document if group else document

    def aggregated(self, *, core: bool, version: str = "v2") -> Object:
        """`/api` (core) or `/apis` in the aggregated form of `apidiscovery.k8s.io/VERSION`."""
        names = [""] if core else self.group_names()
        items = [_aggregated_group(name, self._groups.get(name, {})) for name in names]
        api_version = f"apidiscovery.k8s.io/{version}"
        return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}

    def _group_entry(self, group: str) -> Object:
        versions = [{"groupVersion": f"{group}/{one}", "version": one} for one in self._groups[group]]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _by_preference(versions: dict[str, list[ServedResource]]) -> dict[str, list[ServedResource]]:
    order = sorted(versions, key=version_priority, reverse=True)
    return {version: versions[version] for version in order}


def _legacy_entries(resource: ServedResource) -> list[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(resource.verbs),
    }
    return [entry | _names(resource), *(_legacy_subresource(resource, one) for one in _sorted(resource.subresources))]


def _legacy_subresource(resource: ServedResource, sub: Subresource) -> Object:
    entry: Object = {"name": f"{resource.plural}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
    if sub.group:
        entry |= {"group": sub.group, "version": sub.version}
    return entry | {"kind": sub.kind, "verbs": sorted(sub.verbs)}


def _names(resource: ServedResource) -> Object:
    names: Object = {}
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    return names


def _sorted(subresources: Sequence[Subresource]) -> list[Subresource]:
    return sorted(subresources, key=lambda one: one.name)


def _aggregated_group(group: str, versions: dict[str, list[ServedResource]]) -> Object:
    entries = [
        {
            "version": version,
            "resources": [_aggregated_entry(one) for one in sorted(resources, key=lambda one: one.plural)],
            "freshness": "Current",
        }
        for version, resources in versions.items()
    ]
    return {"metadata": {"name": group} if group else {}, "versions": entries}


def _aggregated_entry(resource: ServedResource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": sorted(resource.verbs),
    }
    subresources = [_aggregated_subresource(resource, one) for one in _sorted(resource.subresources)]
    return entry | _names(resource) | ({"subresources": subresources} if subresources else {})


def _aggregated_subresource(resource: ServedResource, sub: Subresource) -> Object:
    kind = _response_kind(resource, sub.kind)
    if sub.group:
        kind = {"group": sub.group, "version": sub.version, "kind": sub.kind}
    return {"subresource": sub.name, "responseKind": kind, "verbs": sorted(sub.verbs)}


def _response_kind(resource: ServedResource, kind: str) -> Object:
    if resource.is_custom:
        return {"group": resource.group, "version": resource.version, "kind": kind}
    return {"group": "", "version": "", "kind": kind}

"""Chooses the format of an answer from the `Accept` header: JSON or YAML, and conversions such as Tables.

Protobuf is never chosen because the server does not write it; clients that prefer it accept JSON as well.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuledger.local.kubeapi.errors import ApiError

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"

TABLE = "table"
PARTIAL = "partial"
PARTIAL_LIST = "partial-list"
AGGREGATED = "aggregated"
PLAIN = ""

_META_VERSIONS = frozenset({"v1", "v1beta1"})
_KINDS = {
    ("Table", "meta.k8s.io"): (TABLE, _META_VERSIONS),
    ("PartialObjectMetadata", "meta.k8s.io"): (PARTIAL, _META_VERSIONS),
    ("PartialObjectMetadataList", "meta.k8s.io"): (PARTIAL_LIST, _META_VERSIONS),
}
_DISCOVERY = {("APIGroupDiscoveryList", "apidiscovery.k8s.io"): (AGGREGATED, frozenset({"v2", "v2beta1"}))}
_FORMATS = {
    "*/*": JSON,
    "application/*": JSON,
    JSON: JSON,
    YAML: YAML,
}
_Conversions = Mapping[tuple[str, str], tuple[str, frozenset[str]]]
_SPLIT = re.compile(r"\s*[;]\s*")


class Representation(NamedTuple):
    """The requested form of an answer.

    `kind` is PLAIN, TABLE, PARTIAL, PARTIAL_LIST or AGGREGATED; `version` is that of the conversion, empty for PLAIN.
    """

    media_type: str = JSON
    kind: str = PLAIN
    version: str = ""

    @property
    def content_type(self) -> str:
        """The answer's media type; that of aggregated discovery names the conversion."""
        return aggregated_media_type(self.version) if self.kind == AGGREGATED else self.media_type

    @property
    def is_yaml(self) -> bool:
        """Whether the answer is YAML."""
        return self.media_type == YAML


class _Clause(NamedTuple):
    media_type: str
    parameters: dict[str, str]
    weight: float


def negotiate(accept: str) -> Representation:
    """The form for objects and lists; ApiError 406 if the server has none that the client accepts."""
    return _first(accept, _KINDS)


def negotiate_discovery(accept: str) -> Representation:
    """The form for `/api` and `/apis`; ApiError 406 if the server has none that the client accepts."""
    return _first(accept, _DISCOVERY)


def aggregated_media_type(version: str) -> str:
    """The media type of aggregated discovery."""
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


def not_acceptable(message: str) -> ApiError:
    """406."""
    return ApiError(406, "NotAcceptable", message)


def _first(accept: str, conversions: _Conversions) -> Representation:
    if not accept.strip():
        return Representation()
    for clause in _clauses(accept):
        found = _represent(clause, conversions)
        if found is not None:
            return found
    raise not_acceptable(f"only the following media types are accepted: {JSON}, {YAML}, {PROTOBUF}")


def _represent(clause: _Clause, conversions: _Conversions) -> Representation | None:
    media_type = _FORMATS.get(clause.media_type)
    if media_type is None:
        return None
    converted_kind, version = clause.parameters.get("as", ""), clause.parameters.get("v", "")
    if not converted_kind:
        return Representation(media_type)
    kind, versions = conversions.get((converted_kind, clause.parameters.get("g", "")), (PLAIN, frozenset()))
    return Representation(media_type, kind, version) if version in versions else None


def _clauses(accept: str) -> list[_Clause]:
    """The header's clauses, those of greater weight first."""
    return sorted(_parsed(accept), key=lambda clause: -clause.weight)


def _parsed(accept: str) -> Iterator[_Clause]:
    for text in accept.split(","):
        media_type, *rest = _SPLIT.split(text.strip())
        pairs = (part.partition("=") for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, _, value in pairs}
        weight = _weight(parameters.pop("q", "1"))
        if media_type and weight > 0:
            yield _Clause("*/*" if media_type == "*" else media_type.lower(), parameters, weight)


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0

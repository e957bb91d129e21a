"""The OpenAPI documents are complete: every reference leads to a schema."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi.builtin import BUILTIN
from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.openapi import OpenApi
from gpuledger.local.kubeapi.resources import ServedResource

THING = ServedResource(
    "gpu.example.com",
    "v1",
    "Thing",
    "things",
    "thing",
    False,
    is_custom=True,
    shape=Shape(
        "object",
        fields={"spec": Shape("object", fields={"size": Shape("integer", format="int64", description="How big.")})},
    ),
)
OPENAPI = OpenApi((*BUILTIN, THING))
PATHS = sorted(OPENAPI.index()["paths"])


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from _references(child)
    elif isinstance(value, list):
        for child in value:
            yield from _references(child)


@pytest.mark.parametrize("path", PATHS)
def test_every_reference_leads_somewhere(path: str) -> None:
    document = OPENAPI.group_version(path)
    assert document is not None
    schemas = document["components"]["schemas"]
    assert {one.removeprefix("#/components/schemas/") for one in _references(document)} <= set(schemas)


def test_a_custom_type_keeps_descriptions_and_its_kind() -> None:
    document = OPENAPI.group_version("apis/gpu.example.com/v1")
    assert document is not None
    schema = document["components"]["schemas"]["com.example.gpu.v1.Thing"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "gpu.example.com", "version": "v1", "kind": "Thing"}]
    size = schema["properties"]["spec"]["properties"]["size"]
    assert size == {"type": "integer", "format": "int64", "description": "How big."}
    patch = document["paths"]["/apis/gpu.example.com/v1/things/{name}"]["patch"]
    assert patch["x-kubernetes-action"] == "patch"
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_documents_describe_merging() -> None:
    document = OPENAPI.group_version("api/v1")
    assert document is not None
    spec = document["components"]["schemas"]["io.k8s.api.v1.PodSpec"]["properties"]
    assert spec["containers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"


def test_a_hash_changes_with_the_type() -> None:
    before = OpenApi((THING,)).index()
    changed = ServedResource(
        "gpu.example.com",
        "v1",
        "Thing",
        "things",
        "thing",
        False,
        is_custom=True,
        shape=Shape("object", preserves=True),
    )
    assert before == OpenApi((THING,)).index()
    assert before != OpenApi((changed,)).index()


def test_paths_find_documents() -> None:
    assert OPENAPI.find("/openapi/v3", "") is not None
    assert OPENAPI.find("/openapi/v2", "") is None
    assert OPENAPI.find("/openapi/v3/apis/apps/v1", "") is not None
    assert OPENAPI.find("/openapi/v3/apis/none/v1", "") is None


def test_protobuf_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        OPENAPI.find("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert refused.value.code == 406

"""Clients get the first form that they accept and the server has."""

import pytest

from gpuledger.local.kubeapi.errors import ApiError
from gpuledger.local.kubeapi.negotiation import Representation, negotiate, negotiate_discovery

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PROTOBUF_TABLE = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        ("application/*", Representation()),
        ("application/json;stream=watch", Representation()),
        ("application/vnd.kubernetes.protobuf,application/json", Representation()),
        (PROTOBUF_TABLE + "," + TABLE, Representation(kind="table", version="v1")),
        (f"{TABLE},application/json", Representation(kind="table", version="v1")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Representation()),
        (
            "application/json; as=PartialObjectMetadata; g=meta.k8s.io; v=v1",
            Representation(kind="partial", version="v1"),
        ),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Representation(kind="partial-list", version="v1"),
        ),
        ("application/yaml", Representation("application/yaml")),
        ("text/html;q=0.9,application/json;q=0.1", Representation()),
        ("application/json;q=0.5,application/yaml", Representation("application/yaml")),
    ],
)  # fmt: skip
def test_the_form_of_an_answer(accept: str, expected: Representation) -> None:
    assert negotiate(accept) == expected


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=other",
        V2,
        "application/json;q=0",
    ],
)
def test_unsupported_formats_are_refused(accept: str) -> None:
    with pytest.raises(ApiError) as refused:
        negotiate(accept)
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")


def test_aggregated_discovery_names_its_media_type() -> None:
    assert negotiate_discovery(f"{V2},application/json").content_type == V2
    assert negotiate_discovery(f"{V2.replace('v2', 'v9')},application/json").content_type == "application/json"

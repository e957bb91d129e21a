"""Bodies in Kubernetes' protobuf form: what Go clients send of built-in types."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.local.kubeapi import protobuf
from gpuledger.local.kubeapi.builtin import models
from gpuledger.local.kubeapi.builtin_shapes import generate
from gpuledger.local.kubeapi.protobuf import MAGIC, UnreadableError, load


def varint(number: int) -> bytes:
    out, left = bytearray(), number % 2**64
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version: str, kind: str, message: bytes) -> bytes:
    head = field(1, api_version) + field(2, kind)
    return MAGIC + field(1, head) + field(2, message)


def test_an_object_is_read() -> None:
    labels = field(11, field(1, "a") + field(2, "b")) + field(11, field(1, "c") + field(2, ""))
    meta = (
        field(1, "x")
        + field(2, "")
        + field(3, "ns")
        + field(7, 0)
        + field(8, b"")
        + labels
        + field(14, "example.com/f")
    )
    data = field(2, field(1, "k") + field(2, "v")) + field(3, field(1, "bin") + field(2, b"\x00\xff"))
    assert load(body("v1", "ConfigMap", field(1, meta) + data)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "namespace": "ns", "labels": {"a": "b", "c": ""}, "finalizers": ["example.com/f"]},
        "data": {"k": "v"},
        "binaryData": {"bin": "AP8="},
    }


def test_inlined_parts_lie_in_the_object_itself() -> None:
    volume = field(1, "v") + field(2, field(6, field(1, "secret")))
    port = field(2, field(1, 1) + field(2, 0) + field(3, "http"))
    probe = field(1, field(2, port)) + field(2, -1)
    container = field(1, "c") + field(10, probe)
    spec = field(1, volume) + field(2, container) + field(4, 0) + field(7, field(1, "k") + field(2, "v"))
    pod = load(body("v1", "Pod", field(2, spec)))
    assert pod["spec"] == {
        "volumes": [{"name": "v", "secret": {"secretName": "secret"}}],
        "containers": [
            {"name": "c", "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": -1}},
        ],
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"k": "v"},
    }


def test_parts_are_inlined_in_inlined_parts() -> None:
    rule = field(1, "CREATE") + field(2, field(1, "apps") + field(2, "v1") + field(3, "deployments"))
    match = field(3, field(1, "d") + field(2, rule))
    spec = field(2, match) + field(3, field(1, "true")) + field(7, field(1, "a") + field(2, "1"))
    policy = load(body("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", field(2, spec)))
    given = {"resourceNames": ["d"], "operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"]}
    assert policy["spec"] == {
        "matchConstraints": {"resourceRules": [given | {"resources": ["deployments"]}]},
        "validations": [{"expression": "true"}],
        "variables": [{"name": "a", "expression": "1"}],
    }


def test_times_quantities_and_numbers() -> None:
    spec = field(1, "holder") + field(2, 15) + field(4, field(1, 1_700_000_000) + field(2, 123_456_000))
    assert load(body("coordination.k8s.io/v1", "Lease", field(2, spec)))["spec"] == {
        "holderIdentity": "holder",
        "leaseDurationSeconds": 15,
        "renewTime": "2023-11-14T22:13:20.123456Z",
    }
    hard = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    assert load(body("v1", "ResourceQuota", field(2, hard)))["spec"] == {"hard": {"cpu": "500m"}}


def test_optional_zeros_are_kept_and_others_are_not() -> None:
    spec = field(1, 0) + field(5, 0)
    assert load(body("apps/v1", "Deployment", field(2, spec)))["spec"] == {"replicas": 0}


@pytest.mark.parametrize(
    "wrong",
    [
        b"{}",
        body("example.com/v1", "Thing", b""),
        body("v1", "ConfigMap", b"\x0a\xff"),
        body("v1", "ConfigMap", b"\x0f"),
        body("v1", "ConfigMap", b"\xff" * 11),
        body("v1", "ConfigMap", field(1, 5)),
        body("v1", "ConfigMap", field(1, field(1, b"\xff"))),
        body("v1", "ConfigMap", field(999, "new")),
    ],
)
def test_what_is_no_message_is_refused(wrong: bytes) -> None:
    with pytest.raises(UnreadableError):
        load(wrong)


def test_an_empty_field_may_be_unknown() -> None:
    assert "data" not in load(body("v1", "ConfigMap", field(999, "")))


@given(st.sampled_from(["Pod", "Node", "Service", "Event", "DeleteOptions"]), st.binary(max_size=200))
def test_nothing_but_a_refusal_comes_of_rubbish(kind: str, rubbish: bytes) -> None:
    with suppress(UnreadableError):
        load(body("v1", kind, rubbish))


def test_every_type_of_the_table_has_its_fields_and_is_served() -> None:
    served = generate(models())
    for model, table in protobuf._tables().items():
        assert served[model].keys() >= {name for name in table.values() if isinstance(name, str)}

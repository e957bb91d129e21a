"""Bodies are read, refused or warned of as Kubernetes does."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi.builtin_shapes import shape
from gpuledger.local.kubeapi.decoding import (
    check_types,
    normalize,
    parse,
    parse_patch,
    prune,
    strict_error,
    warning_texts,
)
from gpuledger.local.kubeapi.errors import ApiError

JSON = "application/json"
YAML = "application/yaml"


@pytest.mark.parametrize(
    ("body", "duplicates"),
    [
        (b'{"a":{"b":1},"c":[{"b":2}]}', []),
        (b'{"a": {"b": 1}, "c": "x: y, z"}\n', []),
        (b'{"a":{"b":1,"b":2}}', ["a.b"]),
        (b'{ "a" : [ {"x":1}, {"x":1, "x": 2} ] }', ["a[1].x"]),
        (b'{"a":1,"a":2,"a":3}', ["a", "a"]),
    ],
)
def test_duplicate_fields_are_reported(body: bytes, duplicates: list[str]) -> None:
    assert parse(body, JSON)[1] == duplicates


def test_the_last_of_duplicates_counts() -> None:
    assert parse(b'{"a":1,"a":2}', JSON)[0] == {"a": 2}


@pytest.mark.parametrize("body", [b"", b" ", b"[1,2]", b'"x"', b"null", b'{"a":1} x', b'{"a":', b"\xff"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        parse(body, JSON)
    assert refused.value.code == 400


@pytest.mark.parametrize("media_type", ["text/plain", "application/vnd.kubernetes.protobuf", "application/cbor"])
def test_unknown_media_types_are_refused(media_type: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse(b"{}", media_type)
    assert (refused.value.code, refused.value.reason) == (415, "UnsupportedMediaType")


def test_whole_floats_become_integers() -> None:
    value, _ = parse(b'{"a":2.0,"b":[1e3,1.5]}', "application/json; charset=utf-8")
    assert value == {"a": 2, "b": [1000, 1.5]}
    assert isinstance(value["a"], int)


SPELT = ["1.0", "-0.0", "0.0", "1e3", "1E2", "2.5", "25e-1", "9007199254740991.0", "9007199254740992.0", "1e15", "1e16"]
TEXTS = ['"1.0"', '"1.0,"', '"9e3"', '"1.0]"', "7", "true", "null", "[]"]
TOKENS = st.sampled_from([*SPELT, *TEXTS]) | st.floats(allow_nan=False, allow_infinity=False).map(repr)


def walked_whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: walked_whole(one) for name, one in value.items()}
    if isinstance(value, list):
        return [walked_whole(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


@given(st.lists(TOKENS, max_size=4), TOKENS, st.sampled_from(["", " ", "\n"]))
def test_whole_floats_are_found_however_they_are_written(items: list[str], last: str, blank: str) -> None:
    body = f'{{"a":{blank}[{f",{blank}".join(items)}{blank}],{blank}"b":{{"c":{blank}{last}{blank}}}}}'
    assert repr(parse(body.encode(), JSON)) == repr((walked_whole(json.loads(body)), []))
    alone, _ = parse_patch(last.encode(), JSON)
    assert repr(alone) == repr(walked_whole(json.loads(last)))


def test_yaml_scalars_are_kubernetes() -> None:
    text = b"a: 2024-01-01\nb: 1:30\nc: yes\nd: 0x10\ne: 010\nf: 1.0\ng: ~\nh:\ni: '1'\n1: x\n"
    value, _ = parse(text, YAML)
    assert value == {
        "a": "2024-01-01", "b": "1:30", "c": True, "d": 16, "e": 8, "f": 1, "g": None, "h": None, "i": "1", "1": "x",
    }  # fmt: skip


def test_yaml_tells_duplicates_and_follows_anchors() -> None:
    value, duplicates = parse(b"a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  k: 2\nd:\n- e: 1\n  e: 2\n", YAML)
    assert value == {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 2}, "d": [{"e": 2}]}
    assert duplicates == ["d[0].e"]


def test_yaml_bombs_and_tags_are_refused() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ApiError):
        parse("\n".join(lines).encode(), YAML)
    assert parse(b"a: !!python/object:os.system x", YAML)[0] == {"a": "x"}


def test_json_is_read_where_yaml_may_be_sent() -> None:
    assert parse(b'{"a": 1}', "application/apply-patch+yaml")[0] == {"a": 1}
    assert parse(b"{a: 1}", "application/apply-patch+yaml")[0] == {"a": 1}


def test_a_patch_may_be_a_list() -> None:
    assert parse_patch(b'[{"op":"test"}]', "application/json-patch+json")[0] == [{"op": "test"}]
    with pytest.raises(ApiError, match="error decoding patch"):
        parse_patch(b'{"spec":', "application/merge-patch+json")


def test_unknown_fields_are_pruned_and_reported() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "labels": {"x": "y"}, "wrong": 1},
        "spec": {"bogus": 1, "nodeSelector": {"a": "b"}, "containers": [{"name": "m", "odd": {}}]},
    }
    assert prune(pod, shape("V1Pod")) == ["metadata.wrong", "spec.bogus", "spec.containers[0].odd"]
    assert pod["spec"] == {"nodeSelector": {"a": "b"}, "containers": [{"name": "m"}]}


def test_what_preserves_unknown_fields_keeps_them_but_prunes_below() -> None:
    preserving = Shape("object", fields={"a": Shape("object", fields={"b": Shape("string")})}, preserves=True)
    obj = {"a": {"b": "x", "c": 1}, "d": {"e": 1}}
    assert prune(obj, preserving) == ["a.c"]
    assert obj == {"a": {"b": "x"}, "d": {"e": 1}}


def test_texts_are_kubernetes() -> None:
    assert warning_texts(["spec.x"], ["spec.y"]) == ['duplicate field "spec.y"', 'unknown field "spec.x"']
    error = strict_error("GPUPool", "v1alpha1", ["metadata.wrong", "spec.bogus"], [])
    assert error.message == (
        'GPUPool in version "v1alpha1" cannot be handled as a GPUPool: strict decoding error: '
        'unknown field "metadata.wrong", unknown field "spec.bogus"'
    )


@pytest.mark.parametrize(
    ("spec", "is_fine"),
    [
        ({"leaseDurationSeconds": 15, "renewTime": None}, True),
        ({"leaseDurationSeconds": "15"}, False),
        ({"leaseDurationSeconds": 1.5}, False),
        ({"leaseDurationSeconds": True}, False),
        ({"leaseDurationSeconds": 2**31}, False),
        ({"holderIdentity": 1}, False),
        ({"renewTime": "2025-01-15T10:06:15.123456Z"}, True),
        ({"renewTime": "2025-01-15T10:06:15.123456+02:00"}, True),
        ({"renewTime": "2025-01-15T10:06:15Z"}, False),
        ({"renewTime": "2025-01-15T10:06:15.123Z"}, False),
        ({"renewTime": "2025-13-15T10:06:15.123456Z"}, False),
        ({"renewTime": "noon"}, False),
        ([], False),
    ],
)
def test_built_in_types_take_only_what_fits(spec: object, is_fine: bool) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
    if is_fine:
        check_types(lease, shape("V1Lease"))
    else:
        with pytest.raises(ApiError, match='Lease in version "v1" cannot be handled as a Lease') as refused:
            check_types(lease, shape("V1Lease"))
        assert refused.value.code == 400


def test_base64_and_quantities_are_checked() -> None:
    check_types({"data": {"a": "AAEC"}}, shape("V1Secret"))
    with pytest.raises(ApiError, match="base64"):
        check_types({"data": {"a": "%"}}, shape("V1Secret"))
    check_types({"status": {"capacity": {"cpu": 2, "memory": "1Gi"}}}, shape("V1Node"))
    with pytest.raises(ApiError, match="quantities"):
        check_types({"status": {"capacity": {"cpu": "many"}}}, shape("V1Node"))


def test_values_are_written_as_kubernetes_does() -> None:
    pod = {
        "metadata": {"name": "a", "labels": {}, "creationTimestamp": None},
        "spec": {
            "containers": [{"name": "m", "env": [], "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {"startTime": "2025-01-15T10:06:15.5+02:00"},
    }
    normalize(pod, shape("V1Pod"))
    assert pod == {
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "m", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
        "status": {"startTime": "2025-01-15T08:06:15Z"},
    }

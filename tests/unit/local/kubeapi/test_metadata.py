"""What metadata is refused, and under which field."""

from copy import deepcopy

import pytest

from gpuledger.edge.kube.schema.causes import Object
from gpuledger.local.kubeapi.metadata import finalizer_warnings, validate_metadata, validate_metadata_update
from gpuledger.local.kubeapi.resources import ServedResource

POOLS = ServedResource("gpu.example.io", "v1", "Pool", "pools", "pool", namespaced=True, is_custom=True)
MAPS = ServedResource("", "v1", "ConfigMap", "configmaps", "configmap", namespaced=True)
NODES = ServedResource("", "v1", "Node", "nodes", "node", namespaced=False)
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}


def _object(**metadata: object) -> Object:
    return {"metadata": {"name": "a", "namespace": "n"} | metadata}


def _found(obj: Object, resource: ServedResource = POOLS) -> set[tuple[str, str]]:
    return {(cause.reason, cause.field) for cause in validate_metadata(resource, obj)}


def test_ordinary_metadata_is_accepted() -> None:
    fine = _object(
        labels={"a": "", "x.io/b": "c_1.D"},
        annotations={"Upper.io/Key": "anything at all"},
        finalizers=["gpu.example.io/a"],
        ownerReferences=[OWNER | {"controller": True}, OWNER | {"uid": "v", "controller": False}],
        managedFields=[{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}],
    )
    assert not validate_metadata(POOLS, fine)
    assert not validate_metadata_update(POOLS, fine, deepcopy(fine))


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"name": "Bad_Name"}, "name"),
        ({"name": "a" * 254}, "name"),
        ({"name": "..", "generateName": ""}, "name"),
        ({"name": None, "generateName": "Bad-"}, "generateName"),
        ({"labels": {"team": "not a label"}}, "labels"),
        ({"labels": {"-bad/key/x": "v"}}, "labels"),
        ({"labels": {"x": "a" * 64}}, "labels"),
        ({"annotations": {"bad key": "v"}}, "annotations"),
        ({"finalizers": ["not/a/finalizer"]}, "finalizers"),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, "finalizers"),
        ({"ownerReferences": [OWNER | {"uid": ""}]}, "ownerReferences.uid"),
        ({"ownerReferences": [OWNER | {"name": ""}]}, "ownerReferences.name"),
        ({"ownerReferences": [OWNER | {"kind": ""}]}, "ownerReferences.kind"),
        ({"ownerReferences": [OWNER | {"apiVersion": ""}]}, "ownerReferences.apiVersion"),
        ({"ownerReferences": [OWNER | {"kind": "Event"}]}, "ownerReferences"),
        ({"ownerReferences": [OWNER | {"controller": True}] * 2}, "ownerReferences"),
    ],
)
def test_a_value_is_refused_under_its_field(metadata: dict[str, object], field: str) -> None:
    assert _found(_object(**metadata)) == {("FieldValueInvalid", f"metadata.{field}")}


def test_lengths_are_bounded() -> None:
    big = _object(annotations={"a": "x" * (256 * 1024)})
    assert _found(big) == {("FieldValueTooLong", "metadata.annotations")}


def test_a_name_is_required_and_a_generated_one_may_end_in_a_dash() -> None:
    assert _found(_object(name="")) == {("FieldValueRequired", "metadata.name")}
    assert not _found(_object(name="", generateName="run-"))


def test_namespaces_belong_to_namespaced_resources_only() -> None:
    assert _found({"metadata": {"name": "a"}}) == {("FieldValueRequired", "metadata.namespace")}
    assert _found(_object(), NODES) == {("FieldValueForbidden", "metadata.namespace")}


def test_built_in_types_require_qualified_finalizers_and_custom_ones_warn() -> None:
    bare = _object(finalizers=["bare", "orphan", "x.io/y"])
    assert _found(bare, MAPS) == {("FieldValueInvalid", "metadata.finalizers[0]")}
    assert not _found(bare)
    assert [text.partition(": prefer")[0] for text in finalizer_warnings(bare)] == ['metadata.finalizers: "bare"']


@pytest.mark.parametrize("name", ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"])
def test_identity_does_not_change(name: str) -> None:
    old = _object(uid="u", creationTimestamp="t", deletionTimestamp="t")
    new = _object(**{**old["metadata"], name: "other"})
    assert [cause.field for cause in validate_metadata_update(POOLS, new, old)] == [f"metadata.{name}"]


def test_generation_does_not_go_back() -> None:
    causes = validate_metadata_update(POOLS, _object(generation=1), _object(generation=2))
    assert [cause.field for cause in causes] == ["metadata.generation"]


def test_finalizers_are_only_added_while_nothing_is_deleted() -> None:
    old, new = _object(finalizers=["x.io/a"]), _object(finalizers=["x.io/a", "x.io/b"])
    assert not validate_metadata_update(POOLS, new, old)
    for one in (old, new):
        one["metadata"]["deletionTimestamp"] = "t"
    causes = validate_metadata_update(POOLS, new, old)
    assert [(cause.reason, cause.field) for cause in causes] == [("FieldValueForbidden", "metadata.finalizers")]
    assert not validate_metadata_update(POOLS, old, new)

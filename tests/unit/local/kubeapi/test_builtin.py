"""Built-in resources and their types: what is generated is current, and merges as Kubernetes merges."""

import json
from importlib.resources import files

import pytest

from gpuledger.edge.kube.schema.shapes import Shape
from gpuledger.local.kubeapi import builtin_overlay as overlay
from gpuledger.local.kubeapi.builtin import BUILTIN, models
from gpuledger.local.kubeapi.builtin_events import core_event, events_v1
from gpuledger.local.kubeapi.builtin_shapes import FILE, PACKAGE, generate, shape, short_name

BY_KEY = {(one.group, one.version, one.plural): one for one in BUILTIN}


def _at(model: str, path: str) -> Shape:
    found: Shape = shape(model)
    for name in path.split("."):
        found = found.items or found
        child = found.child(name)
        assert child is not None, path
        found = child
    return found


def test_the_data_is_generated_from_the_client() -> None:
    written = files(PACKAGE).joinpath(FILE).read_text(encoding="utf-8")
    assert json.loads(written) == generate(models())


def test_the_overlay_names_fields_that_exist() -> None:
    types = {short_name(model): body for model, body in generate(models()).items()}
    fields = {f"{name}.{field}" for name, body in types.items() for field in body}
    tables = (
        overlay.KEYED, overlay.KEYED_FOR_APPLY, overlay.KEY_DEFAULTS, overlay.SETS, overlay.PATCHES, overlay.INT64,
        overlay.ATOMIC_CONDITIONS, overlay.ATOMIC_MAPS, overlay.MICRO_TIMES, overlay.INT_OR_STRING, overlay.QUANTITIES,
    )  # fmt: skip
    assert {path for table in tables for path in table} <= fields
    assert types.keys() >= overlay.ATOMIC_TYPES
    assert {field for body in types.values() for field in body} >= overlay.INT64_NAMES


@pytest.mark.parametrize(
    ("model", "path", "keys", "patch"),
    [
        ("V1Pod", "spec.containers", ("name",), ("merge", "name")),
        ("V1Pod", "spec.containers.ports", ("containerPort", "protocol"), ("merge", "containerPort")),
        ("V1Pod", "spec.containers.volumeMounts", ("mountPath",), ("merge", "mountPath")),
        ("V1Pod", "spec.volumes", ("name",), ("merge,retainKeys", "name")),
        ("V1Pod", "status.conditions", ("type",), ("merge", "type")),
        ("V1Deployment", "spec.template.spec.containers", ("name",), ("merge", "name")),
        ("V1Node", "status.addresses", ("type",), ("merge", "type")),
        ("V1Pod", "metadata.ownerReferences", ("uid",), ("merge", "uid")),
        ("V1Node", "spec.taints", (), ("", "")),
        ("V1Pod", "spec.tolerations", (), ("", "")),
        ("V1Job", "status.conditions", (), ("merge", "type")),
        ("V1ValidatingAdmissionPolicy", "spec.variables", ("name",), ("merge", "name")),
        ("V1ValidatingAdmissionPolicy", "spec.matchConditions", ("name",), ("merge", "name")),
        ("V1ValidatingAdmissionPolicy", "spec.validations", (), ("", "")),
        ("V1ResourceSlice", "spec.devices", (), ("", "")),
        ("ResourceV1ResourceClaim", "status.reservedFor", ("uid",), ("merge", "uid")),
        ("ResourceV1ResourceClaim", "status.devices", ("driver", "device", "pool", "shareID"), ("", "")),
    ],
)
def test_lists_merge_as_upstream(model: str, path: str, keys: tuple[str, ...], patch: tuple[str, str]) -> None:
    found = _at(model, path)
    assert found.kind == "array"
    assert (found.list_type, found.keys) == ("map" if keys else "atomic", keys)
    assert (found.patch_strategy, found.patch_key) == patch


def test_sets_atomic_maps_and_formats() -> None:
    assert _at("V1Pod", "metadata.finalizers").list_type == "set"
    assert _at("V1Pod", "spec.nodeSelector").atomic
    assert not _at("V1ConfigMap", "data").atomic
    assert _at("V1Deployment", "spec.selector").atomic
    assert _at("V1Pod", "spec.containers.ports").key_defaults == {"protocol": "TCP"}
    assert _at("V1Lease", "spec.renewTime").format == "micro-time"
    assert _at("V1Lease", "spec.leaseDurationSeconds").format == "int32"
    assert _at("V1Pod", "spec.activeDeadlineSeconds").format == "int64"
    assert _at("V1Service", "spec.ports.targetPort").int_or_string
    assert _at("V1Pod", "spec.containers.resources.limits.cpu").format == "quantity"


def test_types_may_contain_themselves() -> None:
    schema = shape("V1JSONSchemaProps")
    assert schema.fields["not"] is schema
    assert schema.fields["properties"].values is schema


def test_resources_are_named_once_and_have_types() -> None:
    assert len(BY_KEY) == len(BUILTIN)
    assert all("metadata" in one.shape.fields for one in BUILTIN)
    pods = BY_KEY["", "v1", "pods"]
    assert (pods.singular, pods.short_names, pods.categories) == ("pod", ("po",), ("all",))
    assert "deletecollection" not in BY_KEY["", "v1", "namespaces"].verbs
    assert BY_KEY["authorization.k8s.io", "v1", "subjectaccessreviews"].verbs == ("create",)


def test_events_have_two_forms() -> None:
    core = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"name": "x"},
        "message": "m",
        "reportingComponent": "c",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "count": 1,
        "reason": "R",
    }
    other = events_v1(core)
    assert other["regarding"] == {"name": "x"}
    assert (other["note"], other["reportingController"], other["deprecatedCount"]) == ("m", "c", 1)
    assert core_event(other) == core

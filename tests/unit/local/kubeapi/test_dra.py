"""Slices, classes, claims and what is allocated to them."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.local.kubeapi.resources import Context
from gpuledger.local.kubeapi.strategies.dra import (
    DeviceClassStrategy,
    DeviceTaintRuleStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)

CONTEXT = Context(datetime(2026, 1, 1, tzinfo=UTC), "me", [])
SLICES, CLASSES, CLAIMS, TEMPLATES = (
    ResourceSliceStrategy(),
    DeviceClassStrategy(),
    ResourceClaimStrategy(),
    ResourceClaimTemplateStrategy(),
)


def fields(causes: Any) -> Any:
    return [(cause.reason.removeprefix("FieldValue"), cause.field) for cause in causes]


def device(name: Any = "gpu-0", **changes: Any) -> Any:
    return {
        "name": name,
        "attributes": {"index": {"int": 0}, "driverVersion": {"version": "550.54.15"}},
        "capacity": {"memory": {"value": "40Gi"}},
    } | changes


def slice_of(*devices: Any, **changes: Any) -> Any:
    spec = {"driver": "gpu.example.com", "nodeName": "n", "devices": list(devices)}
    spec |= {"pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}} | changes
    return {"metadata": {"name": "s"}, "spec": {name: value for name, value in spec.items() if value is not None}}


def test_a_slice_of_a_node() -> None:
    assert SLICES.validate(slice_of(device("gpu-0"), device("gpu-1"))) == []
    assert SLICES.field_labels(slice_of())["spec.nodeName"] == "n"
    assert SLICES.has_generation
    assert SLICES.answers_deleted_object


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([device(), device()], [("Duplicate", "spec.devices[1]")]),
        ([device(attributes={"a": {"string": "x", "int": 1}})], [("Invalid", "spec.devices[0].attributes[a]")]),
        ([device(attributes={"a": {}})], [("Invalid", "spec.devices[0].attributes[a]")]),
        ([device("GPU 0")], [("Invalid", "spec.devices[0].name")]),
        ([device(attributes={"v": {"version": "1.2"}})], [("Invalid", "spec.devices[0].attributes[v].version")]),
        ([device(attributes={"v": {"string": "x" * 65}})], [("TooLong", "spec.devices[0].attributes[v].string")]),
        ([device(attributes={"a/b/c": {"int": 1}})], [("Invalid", "spec.devices[0].attributes")]),
        ([device(attributes={f"a{n}": {"int": 1} for n in range(32)})], [("Invalid", "spec.devices[0]")]),
        (
            [device(taints=[{"key": "a b"}])],
            [("Invalid", "spec.devices[0].taints[0].key"), ("Required", "spec.devices[0].taints[0].effect")],
        ),
        (
            [device(consumesCounters=[{"counterSet": "c"}])],
            [("Required", "spec.devices[0].consumesCounters[0].counters")],
        ),
        ([device(f"gpu-{n}") for n in range(129)], [("TooMany", "spec.devices")]),
        (
            [device(f"gpu-{n}", taints=[{"key": "k", "effect": "None"}]) for n in range(65)],
            [("TooMany", "spec.devices")],
        ),
    ],
)
def test_devices_are_validated(devices: Any, expected: Any) -> None:
    assert fields(SLICES.validate(slice_of(*devices))) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"driver": ""}, [("Required", "spec.driver")]),
        ({"allNodes": True}, [("Invalid", "spec")]),
        ({"nodeName": None}, [("Required", "spec")]),
        ({"nodeName": None, "allNodes": True}, []),
        (
            {"pool": {"name": "a/B", "resourceSliceCount": 0}},
            [("Invalid", "spec.pool.name"), ("Invalid", "spec.pool.resourceSliceCount")],
        ),
        ({"sharedCounters": [{"name": "c", "counters": {"m": {"value": "1"}}}]}, [("Invalid", "spec")]),
    ],
)
def test_a_slice_has_a_driver_a_pool_and_one_place(changes: Any, expected: Any) -> None:
    assert fields(SLICES.validate(slice_of(device(), **changes))) == expected


def test_what_a_slice_keeps() -> None:
    moved = slice_of(device(), nodeName="m", pool={"name": "p", "generation": 2, "resourceSliceCount": 1})
    causes = fields(SLICES.validate_update(moved, slice_of(device()), ""))
    assert causes == [("Invalid", "spec.pool.name"), ("Invalid", "spec.nodeName")]


def test_taints_are_dated() -> None:
    obj = slice_of(device(taints=[{"key": "k", "effect": "None"}]))
    SLICES.prepare_for_create(obj, CONTEXT)
    assert obj["spec"]["devices"][0]["taints"][0]["timeAdded"] == "2026-01-01T00:00:00Z"


def device_class(expression: Any, **more: Any) -> Any:
    return {"metadata": {"name": "c"}, "spec": {"selectors": [{"cel": {"expression": expression}}]} | more}


@pytest.mark.parametrize(
    "expression",
    [
        'device.driver == "gpu.example.com"',
        "device.attributes['gpu.example.com'].index == 0",
        "device.capacity['x'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.attributes['x'].version.isGreaterThan(semver('1.0.0'))",
        "cel.bind(d, device.attributes['x'], d.a == 'b')",
        "['a', 'b'].exists(x, x == device.driver)",
        "device.attributes[?'x'].hasValue()",
    ],
)
def test_selectors_that_compile(expression: Any) -> None:
    assert CLASSES.validate(device_class(expression)) == []


@pytest.mark.parametrize("expression", ["device.driver ==", "device.driver", "", "1 + 1", "pod.name == 'x'"])
def test_selectors_that_do_not(expression: Any) -> None:
    assert fields(CLASSES.validate(device_class(expression))) == [("Invalid", "spec.selectors[0].cel.expression")]


def claim(*requests: Any, **devices: Any) -> Any:
    spec = {"devices": {"requests": list(requests)} | devices}
    obj = {"metadata": {"name": "c", "namespace": "a"}, "spec": spec}
    CLAIMS.default(obj)
    return obj


def gpu(**exactly: Any) -> Any:
    return {"name": "gpu", "exactly": {"deviceClassName": "gpus"} | exactly}


def test_a_claim_requests_one_device_by_default() -> None:
    obj = claim(gpu(), {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c", "count": 2}]})
    assert obj["status"] == {}
    first, second = obj["spec"]["devices"]["requests"]
    assert first["exactly"] == {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}
    assert second["firstAvailable"][0]["count"] == 2
    assert CLAIMS.validate(obj) == []
    assert "count" not in claim(gpu(allocationMode="All"))["spec"]["devices"]["requests"][0]["exactly"]


R = "spec.devices.requests[0]"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"name": "gpu"}, [("Required", R)]),
        ({"name": "gpu", "exactly": {"count": 1}}, [("Required", f"{R}.exactly.deviceClassName")]),
        (gpu(allocationMode="Some"), [("NotSupported", f"{R}.exactly.allocationMode")]),
        (gpu(count=-1), [("Invalid", f"{R}.exactly.count")]),
        (gpu(allocationMode="All", count=2), [("Invalid", f"{R}.exactly.count")]),
        (gpu() | {"firstAvailable": [{"name": "x", "deviceClassName": "c"}]}, [("Invalid", R)]),
        (gpu() | {"name": "A"}, [("Invalid", f"{R}.name")]),
    ],
)
def test_requests_are_validated(request_: Any, expected: Any) -> None:
    assert fields(CLAIMS.validate(claim(request_))) == expected


def test_constraints_and_configurations_refer_to_requests() -> None:
    obj = claim(gpu(), constraints=[{"requests": ["other"], "matchAttribute": "a"}, {}], config=[{"requests": ["gpu"]}])
    assert fields(CLAIMS.validate(obj)) == [
        ("Invalid", "spec.devices.constraints[0].requests[0]"),
        ("Invalid", "spec.devices.constraints[0].matchAttribute"),
        ("Required", "spec.devices.constraints[1]"),
    ]


def changed(old: Any, **status: Any) -> Any:
    obj = copy.deepcopy(old)
    obj["status"] |= status
    CLAIMS.default(obj)
    CLAIMS.prepare_for_update(obj, old, "status", CONTEXT)
    return obj, fields(CLAIMS.validate_update(obj, old, "status"))


def allocation(device_: Any = "gpu-0") -> Any:
    return {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": device_}]}}


POD = {"resource": "pods", "name": "p", "uid": "1"}
STATE = {"driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}


def test_the_life_of_a_claim() -> None:
    obj = claim(gpu())
    obj, causes = changed(obj, allocation=allocation())
    assert causes == []
    assert changed(obj, allocation=allocation("gpu-1"))[1] == [("Invalid", "status.allocation")]
    assert changed(obj, devices=[STATE | {"device": "gpu-7"}])[1] == [("Invalid", "status.devices[0]")]
    assert changed(obj, devices=[STATE, STATE])[1] == [("Duplicate", "status.devices[1]")]
    obj, causes = changed(obj, devices=[STATE], reservedFor=[POD])
    assert causes == []
    assert changed(obj, allocation=None)[1] == [("Forbidden", "status.reservedFor")]
    released, causes = changed(obj, allocation=None, reservedFor=None)
    assert causes == []
    assert "devices" not in released["status"]


def test_reservations() -> None:
    obj, _ = changed(claim(gpu()), allocation=allocation())
    assert changed(obj, reservedFor=[POD, POD])[1] == [("Duplicate", "status.reservedFor[1]")]
    many = [POD | {"uid": str(n)} for n in range(257)]
    assert changed(obj, reservedFor=many)[1] == [("TooMany", "status.reservedFor")]
    assert changed(obj, reservedFor=[{}])[1] == [
        ("Required", f"status.reservedFor[0].{name}") for name in ("resource", "name", "uid")
    ]
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert changed(obj, reservedFor=[POD])[1] == [("Forbidden", "status.reservedFor")]


def test_allocations_are_of_requests() -> None:
    wrong = {"devices": {"results": [{"request": "other", "driver": "d", "pool": "", "device": "gpu-0"}]}}
    assert changed(claim(gpu()), allocation=wrong)[1] == [
        ("Invalid", "status.allocation.devices.results[0].request"),
        ("Required", "status.allocation.devices.results[0].pool"),
    ]


def test_specs_stay() -> None:
    assert fields(CLAIMS.validate_update(claim(gpu(count=2)), claim(gpu()), "")) == [("Invalid", "spec")]
    template: Any = {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [gpu()]}}}}
    TEMPLATES.default(template)
    assert TEMPLATES.validate(template) == []
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    assert fields(TEMPLATES.validate_update({"spec": {}}, template, "")) == [("Invalid", "spec")]


def test_endpoints_write_their_own_part() -> None:
    old, _ = changed(claim(gpu()), allocation=allocation())
    obj = copy.deepcopy(old) | {"status": {}}
    CLAIMS.prepare_for_update(obj, old, "", CONTEXT)
    assert obj["status"] == old["status"]
    obj = copy.deepcopy(old) | {"spec": {}}
    obj["metadata"]["labels"] = {"a": "b"}
    CLAIMS.prepare_for_update(obj, old, "status", CONTEXT)
    assert obj == old


def test_taint_rules() -> None:
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": ""}, "taint": {"key": "k", "effect": "Other"}},
    }
    assert fields(DeviceTaintRuleStrategy().validate(rule)) == [
        ("NotSupported", "spec.taint.effect"),
    ]

"""The shipped CRDs and manifests meet the expectations of kubectl's users and of the API's rules."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from gpuledger.api.conditions import NodeConditionType
from gpuledger.api.kinds import (
    CLUSTER_GPU_POOLS,
    GPU_DEVICES,
    GPU_NODE_STATES,
    GPU_POOLS,
    MACHINE_CONFIG_GROUP,
    MACHINE_CONFIG_POOLS,
    MACHINE_CONFIGS,
    MODULE_CONFIGS,
    NODE_FEATURE_RULE,
    NODE_FEATURE_RULES,
    NODE_FEATURES,
    PRINTED_CATEGORY,
    RENDERED_MACHINE_CONFIGS,
    RESOURCE_SLICE_STATUSES,
    Resource,
    shared_devices,
)
from gpuledger.api.labels import (
    LABEL_DEVICE_COUNT,
    LABEL_DEVICE_PREFIX,
    LABEL_DRIVER_MODULE_PREFIX,
    LABEL_DRIVER_NAME,
    LABEL_KERNEL_PREFIX,
    LABEL_OS_ID,
    LABEL_OS_VERSION_ID,
    LABEL_PRESENT,
)
from gpuledger.api.phases import DeviceState
from gpuledger.api.pool_spec import SELECTOR_OPERATORS
from gpuledger.api.sharing import SharingNames
from gpuledger.domain.dra.device_state import AvailabilityState, UnavailableReason
from gpuledger.domain.dra.reach import OPERATORS
from gpuledger.edge.kube import crds
from gpuledger.local.kubeapi.jsonpath import find

SHIPPED = crds.shipped()
ATOMIC = {
    ".status.devices[].allocations", ".status.poolStatus.validationErrors", ".spec.nodeSelector.matchExpressions",
    ".spec.devices", ".spec.devices[].vfGroups", ".spec.devices[].vfGroups[].vfs",
    ".spec.deviceAssignment.autoApproveSelector.matchExpressions", ".spec.machineConfigSelector.matchExpressions",
    ".spec.config.files", ".spec.config.systemd.units", ".spec.sources",
}  # fmt: skip
"""Lists in an order that we give them."""

WITHOUT_STATUS = {MACHINE_CONFIGS.full_name, RENDERED_MACHINE_CONFIGS.full_name}
"""Kinds of which there is nothing to observe: their pool has it."""

ALL = SHIPPED + crds.foreign()


def ids(crd: dict[str, Any]) -> str:
    return str(crd["metadata"]["name"])


def version(crd: dict[str, Any]) -> dict[str, Any]:
    (only,) = crd["spec"]["versions"]
    return dict(only)


def schema(crd: dict[str, Any]) -> dict[str, Any]:
    return dict(version(crd)["schema"]["openAPIV3Schema"])


def by_name(name: str) -> dict[str, Any]:
    (found,) = (crd for crd in ALL if crd["metadata"]["name"] == name)
    return found


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a schema, with its path."""
    yield path, node
    for name, child in (node.get("properties") or {}).items():
        yield from nodes(child, f"{path}.{name}")
    for below in ("items", "additionalProperties"):
        if isinstance(node.get(below), dict):
            yield from nodes(node[below], f"{path}[]")


@pytest.mark.parametrize(
    "resource", [GPU_DEVICES, GPU_NODE_STATES, GPU_POOLS, CLUSTER_GPU_POOLS, shared_devices(),
                 RESOURCE_SLICE_STATUSES, MODULE_CONFIGS, NODE_FEATURES, NODE_FEATURE_RULES,
                 MACHINE_CONFIGS, MACHINE_CONFIG_POOLS, RENDERED_MACHINE_CONFIGS]
)  # fmt: skip
def test_names_are_those_of_the_code(resource: Resource) -> None:
    spec = by_name(resource.full_name)["spec"]
    assert (spec["group"], spec["names"]["plural"], spec["names"]["kind"]) == (
        resource.group, resource.plural, resource.kind,
    )  # fmt: skip
    assert version({"spec": spec})["name"] == resource.version
    assert (spec["scope"] == "Namespaced") == resource.namespaced


@pytest.mark.parametrize("crd", ALL, ids=ids)
def test_a_schema_is_structural(crd: dict[str, Any]) -> None:
    for path, node in nodes(schema(crd)):
        assert ("type" in node) is not node.get("x-kubernetes-int-or-string", False), path
        assert not {"$ref", "oneOf", "anyOf", "uniqueItems"} & node.keys(), path


@pytest.mark.parametrize("crd", SHIPPED, ids=ids)
def test_everything_can_be_explained(crd: dict[str, Any]) -> None:
    silent = [path for path, node in nodes(schema(crd)) if "description" not in node and not path.endswith("[]")]
    assert silent == [".metadata"]


@pytest.mark.parametrize("crd", SHIPPED, ids=ids)
def test_strings_and_lists_have_bounds(crd: dict[str, Any]) -> None:
    for path, node in nodes(schema(crd)):
        if path in {".apiVersion", ".kind", ".metadata"}:
            continue
        if node.get("type") == "array":
            assert "maxItems" in node, path
            assert node["x-kubernetes-list-type"] in {"map", "set"} or path in ATOMIC, path
        if node.get("type", "string") == "string":
            assert node.keys() & {"maxLength", "enum", "pattern", "format"}, path


@pytest.mark.parametrize("crd", SHIPPED, ids=ids)
def test_kubectl_is_served(crd: dict[str, Any]) -> None:
    spec = crd["spec"]
    assert spec["names"].get("categories") == (None if spec["group"] == MACHINE_CONFIG_GROUP else [PRINTED_CATEGORY])
    assert spec["names"]["shortNames"]
    assert version(crd).get("subresources") == (None if ids(crd) in WITHOUT_STATUS else {"status": {}})
    columns = version(crd)["additionalPrinterColumns"]
    assert columns[-1]["name"] == "Age"
    assert all(" " not in column["name"] and column["description"] for column in columns)


WITH_CONDITIONS = [
    crd for crd in SHIPPED if crd["spec"]["group"] != shared_devices().group and ids(crd) not in WITHOUT_STATUS
]


@pytest.mark.parametrize("crd", WITH_CONDITIONS, ids=ids)
def test_conditions_are_a_map_by_type(crd: dict[str, Any]) -> None:
    (conditions,) = (node for path, node in nodes(schema(crd)) if path.endswith(".conditions"))
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    assert conditions["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]


@pytest.mark.parametrize("crd", SHIPPED, ids=ids)
def test_selectable_fields_exist_and_are_scalars(crd: dict[str, Any]) -> None:
    allowed = dict(nodes(schema(crd)))
    for selectable in version(crd).get("selectableFields", ()):
        assert allowed[selectable["jsonPath"]]["type"] == "string"


@pytest.mark.parametrize("domain", ["kooperator", "gpu.example.com"])
def test_shared_devices_are_under_their_domain(domain: str) -> None:
    (crd,) = (one for one in crds.shipped(SharingNames(domain)) if one["spec"]["names"]["kind"] == "Device")
    assert (crd["metadata"]["name"], crd["spec"]["group"]) == (f"devices.scheduling.{domain}", f"scheduling.{domain}")
    model = version(crd)["additionalPrinterColumns"][0]["jsonPath"]
    labels = {SharingNames(domain).gpu_model: "H100"}
    assert find(model, {"metadata": {"labels": labels}}) == ["H100"]


def test_states_are_those_of_the_code() -> None:
    status = schema(by_name("gpudevices.gpu.deckhouse.io"))["properties"]["status"]["properties"]
    assert status["state"]["enum"] == list(DeviceState)


def test_states_and_reasons_of_a_slices_devices_are_those_of_the_code() -> None:
    allowed = dict(nodes(schema(by_name("resourceslicestatuses.resource.gpuledger.io"))))
    assert set(allowed[".status.devices[].state"]["enum"]) == set(AvailabilityState)
    assert set(allowed[".status.devices[].stateReason"]["enum"]) == set(UnavailableReason) - {UnavailableReason.TAKEN}


SELECTORS = {
    GPU_POOLS: (".spec.nodeSelector", ".spec.deviceAssignment.autoApproveSelector"),
    CLUSTER_GPU_POOLS: (".spec.nodeSelector", ".spec.deviceAssignment.autoApproveSelector"),
    MACHINE_CONFIG_POOLS: (".spec.nodeSelector", ".spec.machineConfigSelector"),
}


@pytest.mark.parametrize("resource", SELECTORS, ids=lambda one: one.kind)
def test_operators_of_label_selectors_are_those_of_the_code(resource: Resource) -> None:
    allowed = dict(nodes(schema(by_name(resource.full_name))))
    for selector in SELECTORS[resource]:
        assert allowed[f"{selector}.matchExpressions[].operator"]["enum"] == list(SELECTOR_OPERATORS)
        (rule,) = allowed[f"{selector}.matchExpressions[]"]["x-kubernetes-validations"]
        assert str([name for name, has_values in SELECTOR_OPERATORS.items() if has_values]) in rule["rule"]
    assert SELECTOR_OPERATORS.keys() < OPERATORS.keys()


def test_the_description_names_every_condition_of_a_node() -> None:
    status = schema(by_name("gpunodestates.gpu.deckhouse.io"))["properties"]["status"]["properties"]
    assert [name for name in NodeConditionType if name not in status["conditions"]["description"]] == []


def test_what_the_code_calls_the_rule_is_what_is_shipped() -> None:
    rule = crds.node_feature_rule()
    assert rule["metadata"] == {"name": NODE_FEATURE_RULE}
    assert rule["apiVersion"] == NODE_FEATURE_RULES.api_version


def test_the_rule_gives_every_label_that_the_code_reads() -> None:
    text = str(crds.node_feature_rule())
    expected = [
        LABEL_PRESENT, LABEL_DEVICE_COUNT, LABEL_DEVICE_PREFIX, LABEL_DRIVER_NAME,
        LABEL_DRIVER_MODULE_PREFIX, LABEL_KERNEL_PREFIX, LABEL_OS_ID, LABEL_OS_VERSION_ID,
    ]  # fmt: skip
    assert [label for label in expected if label not in text] == []


def test_a_crd_does_not_differ_from_what_a_server_makes_of_it() -> None:
    live = deepcopy(SHIPPED[0])
    live["spec"] |= {"conversion": {"strategy": "None"}}
    live |= {"status": {"conditions": []}}
    assert crds.differences(SHIPPED[0], live) == ()


def test_differences_name_their_places() -> None:
    live = deepcopy(SHIPPED[0])
    live["spec"]["names"]["shortNames"].append("gd")
    live["spec"]["versions"][0]["served"] = False
    del live["spec"]["versions"][0]["subresources"]
    live["spec"]["conversion"] = {"strategy": "Webhook"}
    paths = [one.path for one in crds.differences(SHIPPED[0], live)]
    assert paths == [
        "spec.conversion", "spec.names.shortNames[1]", "spec.versions[0].served", "spec.versions[0].subresources",
    ]  # fmt: skip

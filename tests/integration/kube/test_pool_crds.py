"""The kinds of pools on an API server: what it takes, fills in, and refuses."""

from copy import deepcopy
from typing import Any

import pytest

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS, NAMESPACES, Resource
from gpuledger.edge.kube.client import KubeClient
from gpuledger.edge.kube.errors import InvalidError
from support.kube_fleet import create

Object = dict[str, Any]

MIG: Object = {
    "provider": "Nvidia",
    "backend": "DevicePlugin",
    "resource": {"unit": "MIG", "migProfile": "2g.20gb", "slicesPerUnit": 2, "maxDevicesPerNode": 2},
    "nodeSelector": {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["worker-01", "worker-02"]}]
    },
    "deviceSelector": {
        "include": {"products": ["NVIDIA A100-PCIE-80GB"], "migCapable": True, "migProfiles": ["2g.20gb"]},
        "exclude": {"inventoryIDs": ["worker-01-0000:17:00.0"]},
    },
    "deviceAssignment": {"requireAnnotation": True},
    "scheduling": {
        "strategy": "BinPack", "topologyKey": "topology.kubernetes.io/zone",
        "taints": [{"key": "gpu", "value": "mig", "effect": "NoSchedule"}],
    },
}  # fmt: skip
"""A pool with everything in its spec."""

KINDS = (GPU_POOLS, CLUSTER_GPU_POOLS)


def changed(path: str, value: object) -> Object:
    """The pool's spec with another value at a path; None removes it."""
    spec = deepcopy(MIG)
    *parents, last = path.split(".")
    place = spec
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    if value is None:
        del place[last]
    return spec


async def made(client: KubeClient, resource: Resource, spec: Object, name: str = "pool") -> Object:
    """The pool as the server has it."""
    namespace = "default" if resource.namespaced else None
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    return await client.create(resource, body | {"metadata": {"name": name} | _in(namespace)})


def _in(namespace: str | None) -> Object:
    return {"namespace": namespace} if namespace else {}


@pytest.mark.parametrize("resource", KINDS, ids=str)
async def test_a_whole_spec_is_kept_as_it_is(client: KubeClient, resource: Resource) -> None:
    kept = deepcopy(MIG)
    kept["scheduling"]["taintsEnabled"] = True
    assert (await made(client, resource, MIG))["spec"] == kept


@pytest.mark.parametrize("resource", KINDS, ids=str)
async def test_a_short_spec_is_filled_in(client: KubeClient, resource: Resource) -> None:
    assert (await made(client, resource, {"resource": {"unit": "Card"}}))["spec"] == {
        "provider": "Nvidia", "backend": "DevicePlugin", "resource": {"unit": "Card", "slicesPerUnit": 1},
        "deviceAssignment": {"requireAnnotation": True},
    }  # fmt: skip


@pytest.mark.parametrize("profile", ["1g.10gb", "1g.10gb+me", "7g.141gb", "1g.12gb+me.all", "1g.24gb-me", "1c.2g.20gb"])
async def test_profiles_as_the_driver_names_them_are_taken(client: KubeClient, profile: str) -> None:
    pool = await made(client, CLUSTER_GPU_POOLS, changed("resource.migProfile", profile))
    assert pool["spec"]["resource"]["migProfile"] == profile


REFUSED: list[tuple[str, object, str]] = [
    ("resource", None, "spec.resource: Required value"),
    ("resource.unit", "Half", "spec.resource.unit: Unsupported value"),
    ("resource.unit", "Card", "migProfile is required with unit MIG, and means nothing with unit Card"),
    ("resource.migProfile", None, "migProfile is required with unit MIG"),
    ("resource.migProfile", "mig-1g", "spec.resource.migProfile"),
    ("resource.migProfile", "1g.10gb+", "spec.resource.migProfile"),
    ("resource.slicesPerUnit", 0, "should be greater than or equal to 1"),
    ("resource.slicesPerUnit", 65, "should be less than or equal to 64"),
    ("resource.maxDevicesPerNode", 0, "should be greater than or equal to 1"),
    ("provider", "Amd", "spec.provider: Unsupported value"),
    ("backend", "Other", "spec.backend: Unsupported value"),
    ("scheduling.strategy", "Random", "spec.scheduling.strategy: Unsupported value"),
    ("scheduling.taints", [{"key": "a", "effect": "Never"}], "spec.scheduling.taints[0].effect: Unsupported value"),
    ("deviceSelector.include.pciVendors", ["nvidia"], "spec.deviceSelector.include.pciVendors[0]"),
    ("nodeSelector.matchExpressions", [{"key": "a", "operator": "In"}], "values belong to In and NotIn"),
    ("nodeSelector.matchExpressions", [{"key": "a", "operator": "Exists", "values": ["b"]}], "values belong to In"),
]


@pytest.mark.parametrize(("path", "value", "why"), REFUSED, ids=[f"{path}={value}" for path, value, _ in REFUSED])
async def test_what_makes_no_sense_is_refused(client: KubeClient, path: str, value: object, why: str) -> None:
    for resource in KINDS:
        with pytest.raises(InvalidError) as refused:
            await made(client, resource, changed(path, value))
        assert why in str(refused.value), refused.value


async def test_a_name_that_is_no_part_of_a_resources_name_is_refused(client: KubeClient) -> None:
    await made(client, CLUSTER_GPU_POOLS, MIG, "a" * 63)
    with pytest.raises(InvalidError, match="may have 63 characters at most"):
        await made(client, CLUSTER_GPU_POOLS, MIG, "a" * 64)


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("backend", "DRA", "backend is immutable"),
        ("resource.slicesPerUnit", 3, "resource is immutable"),
        ("resource.maxDevicesPerNode", None, "resource is immutable"),
        ("deviceSelector", None, "deviceSelector is immutable"),
        ("deviceSelector.include.migCapable", False, "deviceSelector is immutable"),
    ],
)
async def test_what_makes_up_a_pool_cannot_change(client: KubeClient, path: str, value: object, why: str) -> None:
    pool = await made(client, CLUSTER_GPU_POOLS, MIG)
    with pytest.raises(InvalidError, match=why):
        await client.json_patch(
            CLUSTER_GPU_POOLS, "pool", [{"op": "replace", "path": "/spec", "value": changed(path, value)}]
        )
    assert (await client.get(CLUSTER_GPU_POOLS, "pool"))["metadata"]["generation"] == pool["metadata"]["generation"]


async def test_a_selector_cannot_be_added_later(client: KubeClient) -> None:
    await made(client, CLUSTER_GPU_POOLS, changed("deviceSelector", None))
    with pytest.raises(InvalidError, match="deviceSelector is immutable"):
        await client.merge_patch(CLUSTER_GPU_POOLS, "pool", {"spec": {"deviceSelector": {"include": {}}}})


async def test_nodes_and_scheduling_may_change(client: KubeClient) -> None:
    await made(client, CLUSTER_GPU_POOLS, MIG)
    change = {"spec": {"nodeSelector": {"matchLabels": {"zone": "a"}}, "scheduling": {"strategy": "Spread"}}}
    pool = await client.merge_patch(CLUSTER_GPU_POOLS, "pool", change)
    assert pool["spec"]["nodeSelector"]["matchLabels"] == {"zone": "a"}
    assert pool["spec"]["scheduling"]["strategy"] == "Spread"


async def test_a_pool_lies_in_a_namespace_and_a_cluster_pool_in_none(client: KubeClient) -> None:
    await create(client, NAMESPACES, {"metadata": {"name": "team"}})
    body = {"apiVersion": GPU_POOLS.api_version, "kind": "GPUPool", "spec": {"resource": {"unit": "Card"}}}
    await client.create(GPU_POOLS, body | {"metadata": {"name": "one", "namespace": "team"}})
    (found,) = (await client.list(GPU_POOLS)).items
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("team", "one")

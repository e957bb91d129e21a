"""A pool's reference: its id, its kind, and what Kubernetes calls things after it."""

import pytest

from gpuledger.api.kinds import CLUSTER_GPU_POOLS, GPU_POOLS
from gpuledger.api.pool_ref import PoolRef

LOCAL, CLUSTER = PoolRef("a.b", "team"), PoolRef("a.b")


@pytest.mark.parametrize(
    ("ref", "pool_id", "resource_name", "text"),
    [
        (LOCAL, "team/a.b", "gpu.deckhouse.io/a.b", "GPUPool team/a.b"),
        (CLUSTER, "a.b", "cluster.gpu.deckhouse.io/a.b", "ClusterGPUPool a.b"),
    ],
)
def test_a_pool_has_one_name_of_each_kind(ref: PoolRef, pool_id: str, resource_name: str, text: str) -> None:
    assert (ref.id, ref.resource_name, str(ref)) == (pool_id, resource_name, text)
    assert PoolRef.parse(pool_id) == PoolRef.of_resource(resource_name, "team") == ref


def test_other_resources_name_no_pool() -> None:
    assert PoolRef.of_resource("nvidia.com/gpu", "team") is None
    assert PoolRef.of_resource("cpu", "team") is None


def test_what_its_objects_say() -> None:
    assert (LOCAL.api_resource, CLUSTER.api_resource) == (GPU_POOLS, CLUSTER_GPU_POOLS)
    assert LOCAL.assignment == {"gpu.deckhouse.io/assignment": "a.b"}
    assert CLUSTER.assignment == {"cluster.gpu.deckhouse.io/assignment": "a.b"}
    assert (LOCAL.reference, CLUSTER.reference) == ({"name": "a.b", "namespace": "team"}, {"name": "a.b"})

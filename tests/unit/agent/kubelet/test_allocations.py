"""The kubelet's list of pods as allocations of GPUs and units in use, within the bounds of events."""

import pytest

from gpuledger.agent.kubelet.allocations import allocations, in_use, subject_of
from gpuledger.agent.kubelet.podresources_pb2 import (
    CDIDevice,
    ClaimResource,
    ContainerDevices,
    ContainerResources,
    DynamicResource,
    ListPodResourcesResponse,
    PodResources,
)
from gpuledger.events.allocation import (
    UNITS_OF_CONTAINER_MAX,
    AllocatedClaim,
    AllocatedDevices,
    AllocationObserved,
)
from gpuledger.events.envelope import SUBJECT_LENGTH_MAX

POOL = "gpu.deckhouse.io/a"


def devices(resource: str, *ids: str) -> ContainerDevices:
    return ContainerDevices(resource_name=resource, device_ids=ids)


def claim(name: str, *places: tuple[str, str, str]) -> DynamicResource:
    resources = [
        ClaimResource(cdi_devices=[CDIDevice(name="x/y=z")], driver_name=driver, pool_name=pool, device_name=device)
        for driver, pool, device in places
    ]
    return DynamicResource(claim_name=name, claim_namespace="ns", claim_resources=resources)


def listing(*containers: ContainerResources, pod: str = "pod", namespace: str = "ns") -> ListPodResourcesResponse:
    return ListPodResourcesResponse(pod_resources=[PodResources(name=pod, namespace=namespace, containers=containers)])


def seen(*containers: ContainerResources) -> dict[str, AllocationObserved]:
    return dict(allocations("w1", listing(*containers)))


def test_resources_of_our_groups_are_reported_and_others_are_not() -> None:
    held = [
        devices("nvidia.com/gpu", "b"),
        devices(POOL, "x"),
        devices("rdma/hca", "n"),
        devices("nvidia.com/gpu", "a"),
    ]
    found = seen(ContainerResources(name="main", devices=held))
    assert list(found) == ["w1/ns/pod/main"]
    assert found["w1/ns/pod/main"].resources == (
        AllocatedDevices(resource=POOL, devices=("x",)),
        AllocatedDevices(resource="nvidia.com/gpu", devices=("a", "b")),
    )


def test_containers_without_gpus_are_passed_over() -> None:
    found = seen(
        ContainerResources(name="plain"),
        ContainerResources(name="nic", devices=[devices("rdma/hca", "n")]),
        ContainerResources(name="none", devices=[devices(POOL)]),
        ContainerResources(name="like", devices=[devices("nvidia.com.example/gpu", "a")]),
    )
    assert found == {}


def test_claims_are_reported_by_the_device_they_hold() -> None:
    one = claim("c", ("gpu.nvidia.com", "w1", "gpu-1"), ("gpu.nvidia.com", "w1", "gpu-0"), ("", "", ""))
    found = seen(ContainerResources(name="main", dynamic_resources=[one]))
    assert found["w1/ns/pod/main"].claims == tuple(
        AllocatedClaim(claim="c", driver="gpu.nvidia.com", pool="w1", device=device) for device in ("gpu-0", "gpu-1")
    )
    assert found["w1/ns/pod/main"].resources == ()


def test_what_is_in_use_is_of_every_resource_and_container() -> None:
    first = ContainerResources(name="one", devices=[devices(POOL, "a"), devices(POOL, "b"), devices("rdma/hca", "n")])
    second = ContainerResources(name="two", devices=[devices(POOL, "c")])
    found = {resource: set(ids) for resource, ids in in_use(listing(first, second)).items()}
    assert found == {POOL: {"a", "b", "c"}, "rdma/hca": {"n"}}


def test_names_that_no_event_can_hold_are_left_out() -> None:
    odd = [devices(POOL, "", "x" * 254, "ok"), devices("nvidia.com/" + "x" * 253, "a")]
    container = ContainerResources(name="main", devices=odd)
    assert seen(container)["w1/ns/pod/main"].resources == (AllocatedDevices(resource=POOL, devices=("ok",)),)
    assert allocations("w1", listing(container, pod="")) == {}


@pytest.mark.parametrize(
    "of_pool", [0, 1, UNITS_OF_CONTAINER_MAX - 2, UNITS_OF_CONTAINER_MAX, UNITS_OF_CONTAINER_MAX + 1]
)
def test_no_more_units_are_listed_than_the_ledger_takes_of_a_container(of_pool: int) -> None:
    held = [devices(POOL, *map(str, range(of_pool))), devices("nvidia.com/gpu", "a", "b", "c")]
    claimed = claim("c", *(("gpu.nvidia.com", "w1", f"gpu-{number}") for number in range(UNITS_OF_CONTAINER_MAX)))
    found = seen(ContainerResources(name="main", devices=held, dynamic_resources=[claimed]))["w1/ns/pod/main"]
    assert (found.units, found.excess()) == (UNITS_OF_CONTAINER_MAX, None)


def test_an_id_that_is_too_long_ends_in_a_hash_that_distinguishes_it() -> None:
    long = [subject_of("n" * 253, "ns", "p" * 250 + end, "main") for end in "ab"]
    assert len(set(long)) == 2
    assert {len(one) for one in long} == {SUBJECT_LENGTH_MAX}
    assert subject_of("w1", "ns", "pod", "main") == "w1/ns/pod/main"

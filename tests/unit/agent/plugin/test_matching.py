"""Which pod a request for shared devices is for."""

import pytest

from gpuledger.agent.kubelet.podresources_pb2 import ContainerDevices, ListPodResourcesResponse
from gpuledger.agent.plugin.matching import (
    Answered,
    ListedPods,
    NoMatch,
    ShareCall,
    ShareMatch,
    devices_of,
    listed_pods,
    match,
)
from gpuledger.api.sharing import SharingNames
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import AllocatedDevice, ContainerShare
from support.shares import container, part_of, pod_share

HALF = ShareCall("gpu-core", 50)
NOBODY: frozenset[Answered] = frozenset()


def listed(*pods: str, **having: tuple[str, ...]) -> ListedPods:
    """Pods without units, and pods whose container `main` has some of these resources."""
    without: dict[tuple[str, str], dict[str, frozenset[str]]] = {("default", name): {} for name in pods}
    return without | {("default", name): {"main": frozenset(resources)} for name, resources in having.items()}


def half(name: str, minor: int, **more: str) -> PodShare:
    return pod_share(name, [part_of(minor, 50, 50)], **more)


def cards_of(found: ShareMatch | NoMatch) -> str:
    assert isinstance(found, ShareMatch), found
    return found.environment["NVIDIA_VISIBLE_DEVICES"]


def test_the_pod_that_the_kubelet_lists_without_units() -> None:
    pods = [half("a", 0), half("b", 1)]
    assert cards_of(match(HALF, pods, listed("b", a=("gpu-core",)), NOBODY)) == "GPU-1"
    assert cards_of(match(HALF, pods, listed("a"), NOBODY)) == "GPU-0"
    assert cards_of(match(HALF, pods, listed(a=("gpu-core",), b=("gpu-memory-ratio",)), NOBODY)) == "GPU-1"


@pytest.mark.parametrize(
    ("call", "pods", "kubelet", "reason"),
    [
        pytest.param(HALF, [], listed("a"), "No pod on this node has 50 of gpu-core", id="no list"),
        pytest.param(ShareCall("gpu-core", 49), [half("a", 0)], listed("a"), "has 49 of", id="another amount"),
        pytest.param(ShareCall("rdma", 50), [half("a", 0)], listed("a"), "of rdma", id="another resource"),
        pytest.param(HALF, [half("a", 0)], listed(), "default/a have 50 of gpu-core reserved", id="not there yet"),
        pytest.param(HALF, [half("a", 0)], listed(a=("gpu-core",)), "none of them", id="it has its units"),
        pytest.param(HALF, [half("a", 0), half("b", 1)], listed("a", "b"), "default/a, default/b all wait", id="two"),
    ],
)
def test_nobody_gets_anything(call: ShareCall, pods: list[PodShare], kubelet: ListedPods, reason: str) -> None:
    found = match(call, pods, kubelet, NOBODY)
    assert isinstance(found, NoMatch)
    assert reason in found.reason
    assert found.passing


def test_many_pods_are_not_all_named() -> None:
    pods = [half(f"p{number}", number) for number in range(8)]
    found = match(HALF, pods, listed(*(pod.pod for pod in pods)), NOBODY)
    assert isinstance(found, NoMatch)
    assert "default/p4 and 3 more all wait" in found.reason


def test_an_allocation_without_a_uuid_waits_for_nothing() -> None:
    unnamed = AllocatedDevice(minor=3, resources={"gpu-core": 50, "gpu-memory-ratio": 50})
    found = match(HALF, [pod_share("a", [unnamed])], listed("a"), NOBODY)
    assert isinstance(found, NoMatch)
    assert ("minor 3" in found.reason, found.passing) == (True, False)


def test_two_pods_with_the_same_part_are_as_good_as_one() -> None:
    assert cards_of(match(HALF, [half("a", 0), half("b", 0)], listed("a", "b"), NOBODY)) == "GPU-0"


def test_a_pod_that_was_answered_is_not_answered_again() -> None:
    pods = [half("ended", 0), half("b", 1)]
    answered = frozenset({Answered("uid-ended", "main", "gpu-core")})
    assert cards_of(match(HALF, pods, listed("ended", "b"), answered)) == "GPU-1"
    assert isinstance(match(HALF, pods, listed("ended"), answered), NoMatch)


def test_of_two_pods_of_one_name_the_later_one_counts() -> None:
    assert cards_of(match(HALF, [half("a", 0, uid="1"), half("a", 1, uid="2")], listed("a"), NOBODY)) == "GPU-1"


def test_containers_come_in_the_kubelets_order() -> None:
    containers = (container("one", core=20, ratio=20), container("two", core=20, ratio=30))
    pod = pod_share("a", [part_of(0, 50, 50)], *containers, container("first", init=True, core=20, ratio=50))
    call, answered, got = ShareCall("gpu-core", 20), NOBODY, []
    has: dict[str, frozenset[str]] = {}
    for _ in range(3):
        found = match(call, [pod], {("default", "a"): has}, answered)
        assert isinstance(found, ShareMatch)
        got.append(found.container.name)
        answered |= {found.answered(call)}
        if not found.container.init:
            has = {**has, found.container.name: frozenset({"gpu-core"})}
    assert got == ["first", "one", "two"]
    again = match(call, [pod], {("default", "a"): {"one": frozenset({"gpu-core"})}}, NOBODY)
    assert isinstance(again, ShareMatch)
    assert again.container.name == "two", "an agent that started meanwhile sees the same"


def test_all_resources_of_a_container_give_the_same_variables() -> None:
    containers = (container("one", core=100, ratio=100), container("two", core=200, ratio=200))
    pod = pod_share("a", [part_of(minor, 100, 100) for minor in (0, 2, 4)], *containers)
    by_core = match(ShareCall("gpu-core", 200), [pod], listed("a"), NOBODY)
    by_ratio = match(ShareCall("gpu-memory-ratio", 200), [pod], listed("a"), NOBODY)
    assert isinstance(by_core, ShareMatch)
    assert by_core == by_ratio
    assert by_core.environment == {"NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-4"}
    assert devices_of(by_core, "gpu") == ("GPU-2", "GPU-4")
    assert devices_of(by_core, "rdma") == ()


@pytest.mark.parametrize(
    "requests", [pytest.param({"gpu.shared": 1}, id="a number alone"), pytest.param({"rdma": 1}, id="a NIC")]
)
def test_a_container_without_gpus_in_a_pod_with_some_sees_none(requests: dict[str, int]) -> None:
    """Without the variable that of its image would count, which is often `all`."""
    pod = pod_share(
        "a", [part_of(0, 50, 50)], container("one", core=50, ratio=50), ContainerShare(name="two", requests=requests)
    )
    ((resource, number),) = requests.items()
    found = match(ShareCall(resource, number), [pod], listed("a"), NOBODY)
    assert isinstance(found, ShareMatch)
    assert found.container.name == "two"
    assert found.environment == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert devices_of(found, "gpu") == ()


def test_the_kubelets_list() -> None:
    response = ListPodResourcesResponse()
    pod = response.pod_resources.add(name="a", namespace="default")
    entry = ContainerDevices(resource_name="kooperator/gpu-core", device_ids=["GPU-0::0"])
    other = ContainerDevices(resource_name="gpu.deckhouse.io/a", device_ids=["GPU-9"])
    pod.containers.add(name="main").devices.extend([entry, other])
    response.pod_resources.add(name="b", namespace="default")
    assert listed_pods(response, SharingNames()) == {
        ("default", "a"): {"main": frozenset({"gpu-core"})},
        ("default", "b"): {},
    }

"""What one container requests of what its pod does, as the environment of containers needs it. Pure."""

from collections.abc import Iterator

from gpuledger.domain.sharing.container_env import ContainerPart
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import ContainerShare


def part_of(pod: PodShare, container: ContainerShare) -> ContainerPart:
    """The part of a container of the pod."""
    before: dict[str, int] = {}
    for one in _beside_before(pod, container):
        for resource, amount in one.requests.items():
            before[resource] = before.get(resource, 0) + amount
    return ContainerPart(container.requests, pod.requests, before)


def _beside_before(pod: PodShare, container: ContainerShare) -> Iterator[ContainerShare]:
    """The containers before this one that run at the same time: sidecars, and before a main container other ones.

    Init containers come first, in their order, and have ended by the time that the next container starts.
    """
    for one in pod.containers:
        if one == container:
            return
        if one.sidecar or not (one.init or container.init):
            yield one

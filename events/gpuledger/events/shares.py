"""What pods hold of a node's shared devices, for the node's agent, which reads nothing but its own node's subjects."""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Name, Payload
from gpuledger.events.publishing import SourceKind, by_service
from gpuledger.events.registry import registry
from gpuledger.events.sharing import CONTAINERS_MAX, Allocation, Amounts, ContainerShare

PODS_MAX = 1024
"""A kubelet runs 110 pods by default, and several hundred at most."""


class PodShare(Payload):
    """A pod, what it and each of its containers request of shared devices, and what it gets."""

    uid: Name
    namespace: Name
    pod: Name
    requests: Amounts = {}
    containers: Annotated[tuple[ContainerShare, ...], Field(max_length=CONTAINERS_MAX)] = ()
    allocation: Allocation


@registry.event("node", "devices-allocated", by_service(SourceKind.EXTENDER), introduced=True)
class NodeDevicesAllocated(Payload):
    """All pods that have devices of the node reserved, the one reserved last at the end. Replaces the previous event.

    It is recorded before a pod is bound, so that the agent knows the pod before its kubelet does; a pod that has ended
    may stand in it until the next one is bound.
    """

    pods: Annotated[tuple[PodShare, ...], Field(max_length=PODS_MAX)] = ()

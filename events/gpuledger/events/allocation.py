"""Allocations: which containers of a node hold which devices, as the node's kubelet lists them.

An allocation's id is `<node>/<namespace>/<pod>/<container>`, because the kubelet does not report the UIDs of pods.
"""

from typing import Annotated

from pydantic import Field

from gpuledger.events.payload import Name, Payload
from gpuledger.events.publishing import DropClass, by_agents
from gpuledger.events.registry import registry

RESOURCES_MAX = 64
DEVICE_IDS_MAX = 4096

DeviceIds = Annotated[tuple[Name, ...], Field(max_length=DEVICE_IDS_MAX)]


class AllocatedDevices(Payload):
    """Devices of one extended resource, by their ids: `<uuid>`, or `<uuid>::<n>` for a slice."""

    resource: Name
    devices: DeviceIds


class AllocatedClaim(Payload):
    """A device that a container holds through a ResourceClaim, as its driver names it."""

    claim: Name
    driver: Name
    pool: Name
    device: Name


@registry.event("allocation", "observed", by_agents(DropClass.ONCE))
class AllocationObserved(Payload):
    """The container holds these devices. Replaces the previous event of the allocation."""

    node: Name
    namespace: Name
    pod: Name
    container: Name
    resources: Annotated[tuple[AllocatedDevices, ...], Field(max_length=RESOURCES_MAX)] = ()
    claims: Annotated[tuple[AllocatedClaim, ...], Field(max_length=DEVICE_IDS_MAX)] = ()


@registry.event("allocation", "ended", by_agents(DropClass.ONCE))
class AllocationEnded(Payload):
    """The container no longer holds any devices."""

"""Allocations: which containers of a node hold which devices, as the node's kubelet lists them.

An allocation's id is `<node>/<namespace>/<pod>/<container>`, because the kubelet does not report the UIDs of pods.
"""

from typing import Annotated, Final

from pydantic import Field

from gpuledger.events.payload import Name, Payload
from gpuledger.events.publishing import DropClass, by_agents
from gpuledger.events.registry import registry

RESOURCES_MAX = 64
DEVICE_IDS_MAX = 4096

UNITS_OF_CONTAINER_MAX = 4096
"""How many units of all resources and claims a container may hold where `Rule.BOUNDS` is enforced."""
UNITS_OF_NODE_MAX = 16_384
"""How many units all containers of a node may hold there at a time; beyond it those reported longest ago end.

It is 256 cards of 64 slices each.
"""

RESOURCE_GROUPS: Final = ("gpu.deckhouse.io/", "cluster.gpu.deckhouse.io/", "nvidia.com/")
"""How the names of the extended resources begin whose devices agents report."""

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

    @property
    def units(self) -> int:
        """How many units the event lists, of all resources and claims."""
        return sum(len(held.devices) for held in self.resources) + len(self.claims)

    def excess(self) -> str | None:
        """More units than a container may hold."""
        if self.units <= UNITS_OF_CONTAINER_MAX:
            return None
        return f"It lists {self.units} units of a container, and {UNITS_OF_CONTAINER_MAX} is the limit."


@registry.event("allocation", "ended", by_agents(DropClass.ONCE))
class AllocationEnded(Payload):
    """The container no longer holds any devices."""

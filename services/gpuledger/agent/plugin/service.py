"""Answers the kubelet for one resource: what there is, what to take, and what a container gets.

It holds the newest list and no queue: a kubelet that reads slowly gets the newest one next. What goes wrong in an
answer is told to the kubelet by status and words, and goes no further.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog

from gpuledger.agent.errors import AllocationError, UnknownUnitError
from gpuledger.agent.hardware.api import CardFacts
from gpuledger.agent.kubelet.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    CDIDevice,
    ContainerAllocateResponse,
    ContainerPreferredAllocationResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    NUMANode,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
    TopologyInfo,
)
from gpuledger.agent.kubelet.rpc import serialized
from gpuledger.agent.plugin.allocate import ContainerAllocation, Handing, allocate
from gpuledger.agent.plugin.cdi import CdiFolders
from gpuledger.agent.plugin.device_list import ListedUnit
from gpuledger.agent.plugin.preferred import preferred

OPTIONS = DevicePluginOptions(get_preferred_allocation_available=True)

Allocated = Callable[[str, frozenset[str]], None]
"""Takes a resource and the ids of its units that containers are to get, before the kubelet hears of it."""

log = structlog.get_logger("gpuledger.agent")


@dataclass(slots=True)
class PluginCounts:
    """What the plugin did since the agent began, over all resources."""

    registrations: int = 0
    allocations: int = 0
    lists_sent: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What answering takes besides the units: `allocated` is called with the ids that containers are to get."""

    handing: Handing
    cdi: CdiFolders | None
    allocated: Allocated


class PluginService:
    """The device plugin service of one resource."""

    def __init__(self, resource: str, means: PluginContext, counts: PluginCounts) -> None:
        self.resource = resource
        self.units: tuple[ListedUnit, ...] = ()
        self.watchers = 0
        """How many streams the kubelet has open."""
        self._cards: tuple[CardFacts, ...] = ()
        self._means = means
        self._counts = counts
        self._changed = asyncio.Event()

    def offer(self, units: tuple[ListedUnit, ...], cards: tuple[CardFacts, ...]) -> None:
        """Replace what there is; whoever watches is told if that differs from the last."""
        self._cards = cards
        if units != self.units:
            self.units = units
            self._changed.set()
            self._changed = asyncio.Event()

    def handlers(self) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """The service's methods, by name."""
        unary = grpc.unary_unary_rpc_method_handler
        return {
            "GetDevicePluginOptions": unary(self._options, Empty.FromString, serialized),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._watch, Empty.FromString, serialized),
            "GetPreferredAllocation": unary(self._preferred, PreferredAllocationRequest.FromString, serialized),
            "Allocate": unary(self._allocate, AllocateRequest.FromString, serialized),
            "PreStartContainer": unary(self._pre_start, PreStartContainerRequest.FromString, serialized),
        }

    async def _options(self, _: Empty, __: object) -> DevicePluginOptions:
        return OPTIONS

    async def _watch(self, _: Empty, context: grpc.aio.ServicerContext[Empty, ListAndWatchResponse]) -> None:
        self.watchers += 1
        try:
            await self._send(context)
        finally:
            self.watchers -= 1

    async def _send(self, context: grpc.aio.ServicerContext[Empty, ListAndWatchResponse]) -> NoReturn:
        sent: tuple[ListedUnit, ...] | None = None
        while True:
            changed = self._changed
            if self.units is sent:
                await changed.wait()
                continue
            sent = self.units
            await context.write(ListAndWatchResponse(devices=map(_device, sent)))
            self._counts.lists_sent += 1

    async def _preferred(self, request: PreferredAllocationRequest, _: object) -> PreferredAllocationResponse:
        units = [device_lists.unit for device_lists in self.units]
        choices = (
            preferred(units, self._cards, one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)
            for one in request.container_requests
        )
        return PreferredAllocationResponse(
            container_responses=[ContainerPreferredAllocationResponse(deviceIDs=choice) for choice in choices]
        )

    async def _allocate(
        self, request: AllocateRequest, context: grpc.aio.ServicerContext[AllocateRequest, AllocateResponse]
    ) -> AllocateResponse:
        try:
            response = self._allocated(request)
        except AllocationError as error:
            self._counts.errors += 1
            log.warning("a container got nothing", resource=self.resource, reason=str(error))
            await context.abort(_status(error), str(error))
        self._counts.allocations += len(response.container_responses)
        self._means.allocated(self.resource, frozenset(_asked(request)))
        return response

    def _allocated(self, request: AllocateRequest) -> AllocateResponse:
        how, cdi = self._means.handing, self._means.cdi
        units = {device_lists.unit.id: device_lists.unit for device_lists in self.units}
        named = cdi.names() if how.by_cdi and cdi is not None else None
        allocations = [allocate(units, one.devices_ids, how, named) for one in request.container_requests]
        return AllocateResponse(container_responses=map(_container, allocations))

    async def _pre_start(self, _: PreStartContainerRequest, __: object) -> PreStartContainerResponse:
        return PreStartContainerResponse()


def _asked(request: AllocateRequest) -> Iterable[str]:
    return (unit_id for one in request.container_requests for unit_id in one.devices_ids)


def _device(device_lists: ListedUnit) -> Device:
    health = "Healthy" if device_lists.healthy else "Unhealthy"
    if device_lists.numa_node is None:
        return Device(ID=device_lists.unit.id, health=health)
    return Device(
        ID=device_lists.unit.id, health=health, topology=TopologyInfo(nodes=[NUMANode(ID=device_lists.numa_node)])
    )


def _container(answer: ContainerAllocation) -> ContainerAllocateResponse:
    return ContainerAllocateResponse(
        envs=answer.envs, cdi_devices=[CDIDevice(name=name) for name in answer.cdi_devices]
    )


def _status(error: AllocationError) -> grpc.StatusCode:
    return grpc.StatusCode.NOT_FOUND if isinstance(error, UnknownUnitError) else grpc.StatusCode.FAILED_PRECONDITION

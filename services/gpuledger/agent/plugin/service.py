"""The device plugin service of one resource: lists its units, prefers some, and allocates them to containers.

The service holds the newest list and no queue: a kubelet that reads slowly gets the newest list next. A request that
fails is answered with a gRPC status and a message, and has no other effect.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog

from gpuledger.agent.errors import AllocationError, UnknownUnitError
from gpuledger.agent.grpc_serving import serialized
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
from gpuledger.agent.plugin.allocate import ContainerAllocation, DeviceInjection, allocate
from gpuledger.agent.plugin.cdi import CdiFolders
from gpuledger.agent.plugin.device_list import ListedUnit
from gpuledger.agent.plugin.preferred import preferred

OPTIONS = DevicePluginOptions(get_preferred_allocation_available=True)

OnAllocated = Callable[[str, frozenset[str]], None]
"""Takes a resource and the ids of its units that containers get, before the kubelet has the response."""

log = structlog.get_logger("gpuledger.agent")


@dataclass(slots=True)
class PluginCounts:
    """What the plugin did since the agent started, over all resources."""

    registrations: int = 0
    allocations: int = 0
    lists_sent: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What the services of all resources share."""

    injection: DeviceInjection
    cdi: CdiFolders | None
    on_allocated: OnAllocated


class PluginService:
    """Serves the device plugin API for one resource."""

    def __init__(self, resource: str, context: PluginContext, counts: PluginCounts) -> None:
        self.resource = resource
        self.units: tuple[ListedUnit, ...] = ()
        self.watchers = 0
        """How many ListAndWatch streams the kubelet has open."""
        self._cards: tuple[CardFacts, ...] = ()
        self._context = context
        self._counts = counts
        self._changed = asyncio.Event()

    def offer(self, units: tuple[ListedUnit, ...], cards: tuple[CardFacts, ...]) -> None:
        """Replace the list; open streams send it if it differs from the last."""
        self._cards = cards
        if units != self.units:
            self.units = units
            self._changed.set()
            self._changed = asyncio.Event()

    def handlers(self) -> Mapping[str, "grpc.RpcMethodHandler[Any, Any]"]:
        """The methods of the service, by name."""
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
        units = [listed.unit for listed in self.units]
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
            response = await self._allocated(request)
        except AllocationError as error:
            self._counts.errors += 1
            log.warning("an allocation failed", resource=self.resource, reason=str(error))
            await context.abort(_status(error), str(error))
        self._counts.allocations += len(response.container_responses)
        self._context.on_allocated(self.resource, frozenset(_requested(request)))
        return response

    async def _allocated(self, request: AllocateRequest) -> AllocateResponse:
        how, cdi = self._context.injection, self._context.cdi
        units = {listed.unit.id: listed.unit for listed in self.units}
        specified = cdi.names() if how.by_cdi and cdi is not None else None
        allocations = [allocate(units, one.devices_ids, how, specified) for one in request.container_requests]
        return AllocateResponse(container_responses=map(container_response, allocations))

    async def _pre_start(self, _: PreStartContainerRequest, __: object) -> PreStartContainerResponse:
        return PreStartContainerResponse()


def _requested(request: AllocateRequest) -> Iterable[str]:
    return (unit_id for one in request.container_requests for unit_id in one.devices_ids)


def _device(listed: ListedUnit) -> Device:
    health = "Healthy" if listed.healthy else "Unhealthy"
    if listed.numa_node is None:
        return Device(ID=listed.unit.id, health=health)
    return Device(ID=listed.unit.id, health=health, topology=TopologyInfo(nodes=[NUMANode(ID=listed.numa_node)]))


def container_response(allocation: ContainerAllocation) -> ContainerAllocateResponse:
    """What one container gets, as a message."""
    return ContainerAllocateResponse(
        envs=allocation.envs, cdi_devices=[CDIDevice(name=name) for name in allocation.cdi_devices]
    )


def _status(error: AllocationError) -> grpc.StatusCode:
    return grpc.StatusCode.NOT_FOUND if isinstance(error, UnknownUnitError) else grpc.StatusCode.FAILED_PRECONDITION

"""The device plugin service of one resource of shared devices.

It differs from that of a pool's units: what a container gets was decided for its pod before, and the ids that the
kubelet chooses only count.
"""

from gpuledger.agent.errors import UnknownUnitError
from gpuledger.agent.kubelet.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
)
from gpuledger.agent.plugin.allocate import ContainerAllocation
from gpuledger.agent.plugin.matching import ShareCall
from gpuledger.agent.plugin.service import PluginContext, PluginCounts, PluginService, container_response
from gpuledger.agent.plugin.share_answers import ShareAnswers
from gpuledger.agent.plugin.share_units import preferred_shares


class ShareService(PluginService):
    """Serves the device plugin API for one resource of shared devices; `short` is its name without the domain."""

    def __init__(
        self, resource: str, context: PluginContext, counts: PluginCounts, short: str, answers: ShareAnswers
    ) -> None:
        super().__init__(resource, context, counts)
        self._short = short
        self._answers = answers

    async def _preferred(self, request: PreferredAllocationRequest, _: object) -> PreferredAllocationResponse:
        choices = [await self._choice(one) for one in request.container_requests]
        return PreferredAllocationResponse(
            container_responses=[ContainerPreferredAllocationResponse(deviceIDs=choice) for choice in choices]
        )

    async def _choice(self, one: ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        devices = await self._answers.preference(ShareCall(self._short, one.allocation_size))
        return preferred_shares(devices, one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)

    async def _allocated(self, request: AllocateRequest) -> AllocateResponse:
        return AllocateResponse(
            container_responses=[
                container_response(await self._of_container(one)) for one in request.container_requests
            ]
        )

    async def _of_container(self, one: ContainerAllocateRequest) -> ContainerAllocation:
        offered = {listed.unit.id for listed in self.units}
        unknown = sorted(set(one.devices_ids) - offered)
        if unknown or not one.devices_ids:
            raise UnknownUnitError(f"There are no units {', '.join(unknown[:5])}; ListAndWatch lists them all.")
        cdi = self._context.cdi if self._context.injection.by_cdi else None
        return await self._answers.answer(
            ShareCall(self._short, len(set(one.devices_ids))), cdi.names if cdi is not None else None
        )

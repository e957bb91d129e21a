"""Asks the runtime which running containers have GPUs that no DeviceAllocations account for, and reports all of them.

Such containers ran before the scheduler knew of sharing, or a device plugin gave them their GPUs since. A pod keeps
what its containers have until its sandbox ends, also while they are down.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError, Message

from gpuledger.api.sharing import NVIDIA_GPU
from gpuledger.events.runtime import CHECKPOINTS_MAX, GpuCheckpoint, NodeGpuCheckpointsObserved
from gpuledger.runtime.clock import Sleep
from gpuledger.runtime.tasks import results_of
from gpuledger.runtimeproxy.creation import FactSink
from gpuledger.runtimeproxy.cri_pb2 import (
    SANDBOX_READY,
    Container,
    ContainerStatusRequest,
    ContainerStatusResponse,
    ListContainersRequest,
    ListContainersResponse,
    ListPodSandboxRequest,
    ListPodSandboxResponse,
    PodSandbox,
)
from gpuledger.runtimeproxy.held_gpus import held_gpus

SERVICE: Final = "/runtime.v1.RuntimeService"
CALL_TIMEOUT_S: Final = 10.0
QUESTIONS_AT_ONCE_MAX: Final = 4
SCAN_PERIOD_S: Final = 60.0
AFTER_CREATION_S: Final = 2.0
"""The containers of a pod are created shortly one after the other."""

RETRY_S: Final = 5.0

ResponseT = TypeVar("ResponseT", bound=Message)

log = structlog.get_logger("gpuledger.runtimeproxy")


class _Running(NamedTuple):
    """A container and the UID of its pod."""

    uid: str
    name: str
    id: str


class RunningContainers:
    """Scans the runtime now and then; `annotation` is the one that pods with DeviceAllocations have."""

    def __init__(
        self, channel: grpc.aio.Channel, annotation: str, facts: FactSink, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._channel = channel
        self._annotation = annotation
        self._facts = facts
        self._sleep = sleep
        self._found: dict[str, tuple[str, ...]] = {}
        self._recorded: NodeGpuCheckpointsObserved | None = None
        self._wake = asyncio.Event()
        self.scans = 0
        self.trouble: str | None = None

    def look_soon(self) -> None:
        """A container with GPUs was created; look before the period is over."""
        self._wake.set()

    async def run(self) -> None:
        """Scan until cancelled; a runtime that does not answer is asked again."""
        while True:
            try:
                await self.scan()
            except (grpc.aio.AioRpcError, DecodeError) as error:
                self._set_trouble(error)
                await self._sleep(RETRY_S)
                continue
            self.trouble = None
            await self._pause()

    async def scan(self) -> None:
        """Ask once, and record all checkpoints if they are not those recorded last."""
        containers = await self._containers()
        await self._ask({one.id for one in containers})
        checkpoints = [
            GpuCheckpoint(uid=one.uid, container=one.name, resource=NVIDIA_GPU, devices=self._found[one.id])
            for one in containers
            if self._found.get(one.id)
        ]
        checkpoints.sort(key=lambda one: (one.uid, one.container))
        observed = NodeGpuCheckpointsObserved(
            checkpoints=tuple(checkpoints[:CHECKPOINTS_MAX]), omitted=max(0, len(checkpoints) - CHECKPOINTS_MAX)
        )
        self.scans += 1
        if observed != self._recorded:
            await self._facts.record(observed)
            self._recorded = observed

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(SCAN_PERIOD_S):
                await self._wake.wait()
        except TimeoutError:
            return
        await self._sleep(AFTER_CREATION_S)
        self._wake.clear()

    async def _containers(self) -> list[_Running]:
        """The newest container of each name, of the pods that run and have no DeviceAllocations."""
        sandboxes = await self._call("ListPodSandbox", ListPodSandboxRequest(), ListPodSandboxResponse)
        pods = {one.id: one.metadata.uid for one in sandboxes.items if self._counts(one)}
        listed = await self._call("ListContainers", ListContainersRequest(), ListContainersResponse)
        newest: dict[tuple[str, str], Container] = {}
        for one in sorted(listed.containers, key=lambda one: one.created_at):
            if one.pod_sandbox_id in pods:
                newest[pods[one.pod_sandbox_id], one.metadata.name] = one
        return [_Running(uid, name, one.id) for (uid, name), one in newest.items()]

    def _counts(self, sandbox: PodSandbox) -> bool:
        return sandbox.state == SANDBOX_READY and self._annotation not in sandbox.annotations

    async def _ask(self, ids: Iterable[str]) -> None:
        """Learn about containers that are new, and forget those that are gone."""
        present = set(ids)
        new = sorted(present - self._found.keys())
        found = await results_of(self._held, new, at_once_max=QUESTIONS_AT_ONCE_MAX)
        before = {one: gpus for one, gpus in self._found.items() if one in present}
        self._found = before | {one: gpus for one, gpus in zip(new, found, strict=True) if gpus is not None}

    async def _held(self, container: str) -> tuple[str, ...] | None:
        request = ContainerStatusRequest(container_id=container, verbose=True)
        try:
            response = await self._call("ContainerStatus", request, ContainerStatusResponse)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:  # it has gone since it was listed
                return None
            raise
        return held_gpus(response.info)

    async def _call(self, method: str, request: Message, response: type[ResponseT]) -> ResponseT:
        call: Any = self._channel.unary_unary(f"{SERVICE}/{method}")
        return response.FromString(await call(request.SerializeToString(), timeout=CALL_TIMEOUT_S))

    def _set_trouble(self, error: Exception) -> None:
        reason = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        trouble = f"The container runtime does not list its containers: {reason}. The proxy asks again."
        if trouble != self.trouble:
            log.warning("running containers are unknown", reason=reason)
        self.trouble = trouble

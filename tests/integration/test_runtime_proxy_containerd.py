"""A real containerd behind the proxy: containers see their pod's GPUs, and everything else is as without it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from gpuledger.events.runtime import NodeContainerDevicesInjected, NodeGpuCheckpointsObserved
from gpuledger.runtimeproxy import cri_pb2 as cri
from gpuledger.runtimeproxy.running import RunningContainers
from gpuledger.runtimeproxy.server import proxying, runtime_channel
from gpuledger.runtimeproxy.traffic import Traffic
from support.container_runtime import kubelet_of
from support.created_containers import NAMES, WHOLE_CARD, RecordedFacts, creation
from support.real_containerd import IMAGE, missing, running_containerd
from support.servers import short_directory
from support.waiting import eventually

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]

CALL_TIMEOUT_S: Final = 60.0
PLUGINS_CARD: Final = "GPU-11111111-2222-3333-4444-555555555555"
ResponseT = TypeVar("ResponseT", bound=Message)


class Node:
    """A kubelet's view of a node: its runtime, through the proxy or directly."""

    def __init__(self, channel: Any, folder: Path) -> None:
        self._channel = channel
        self._folder = folder

    async def call(self, method: str, request: Message, response: type[ResponseT]) -> ResponseT:
        """Call CRI."""
        service = "ImageService" if "Image" in method else "RuntimeService"
        call = self._channel.unary_unary(f"/runtime.v1.{service}/{method}")
        return response.FromString(await call(request.SerializeToString(), timeout=CALL_TIMEOUT_S))

    def pod(self, uid: str, allocated: Any = None) -> cri.PodSandboxConfig:
        """The configuration of a pod on the host's network."""
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name=uid, namespace="team", uid=uid),
            log_directory=str(self._folder / "logs"),
            annotations={} if allocated is None else {NAMES.allocated: json.dumps(allocated)},
        )
        config.linux.security_context.namespace_options.network = cri.NODE
        return config

    async def start(self, pod: cri.PodSandboxConfig, **variables: str) -> str:
        """Run a pod with one container that prints its environment; returns the container's id."""
        sandbox = await self.call("RunPodSandbox", cri.RunPodSandboxRequest(config=pod), cri.RunPodSandboxResponse)
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"),
            image=cri.ImageSpec(image=IMAGE),
            command=["sh", "-c", "env; sleep 1000"],
            envs=[cri.KeyValue(key=key, value=value.encode()) for key, value in variables.items()],
            log_path="main.log",
        )
        create = cri.CreateContainerRequest(pod_sandbox_id=sandbox.pod_sandbox_id, config=config, sandbox_config=pod)
        created = await self.call("CreateContainer", create, cri.CreateContainerResponse)
        start = cri.StartContainerRequest(container_id=created.container_id)
        await self.call("StartContainer", start, cri.StartContainerResponse)
        return created.container_id

    async def environment(self, container: str) -> list[str]:
        """The variables of GPUs that a process in the container has."""
        request = cri.ExecSyncRequest(container_id=container, cmd=["env"], timeout=30)
        output = (await self.call("ExecSync", request, cri.ExecSyncResponse)).stdout.decode()
        return sorted(line for line in output.splitlines() if line.startswith(("NVIDIA_", "CUDA_")))


@asynccontextmanager
async def a_node(facts: RecordedFacts) -> AsyncIterator[tuple[Node, Node, RunningContainers]]:
    """A node through the proxy, the same directly, and what looks for running containers. All pods end with it."""
    with short_directory() as folder:
        async with running_containerd(folder) as socket, runtime_channel(socket) as channel:
            running = RunningContainers(channel, NAMES.allocated, facts)
            proxy = proxying(folder / "p.sock", channel, creation(facts).changes(), Traffic(), drain_max_s=1)
            async with proxy, kubelet_of(folder / "p.sock") as through, kubelet_of(socket) as directly:
                node = Node(through, folder)
                try:
                    yield node, Node(directly, folder), running
                finally:
                    listed = await node.call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse)
                    for one in listed.items:
                        stop = cri.StopPodSandboxRequest(pod_sandbox_id=one.id)
                        await node.call("StopPodSandbox", stop, cri.StopPodSandboxResponse)
                        remove = cri.RemovePodSandboxRequest(pod_sandbox_id=one.id)
                        await node.call("RemovePodSandbox", remove, cri.RemovePodSandboxResponse)


async def test_a_container_of_a_real_runtime_sees_its_pods_gpus_alone() -> None:
    facts = RecordedFacts()
    async with a_node(facts) as (node, _, running):
        ours = await node.start(node.pod("u1", WHOLE_CARD), NVIDIA_VISIBLE_DEVICES=PLUGINS_CARD)
        other = await node.start(node.pod("u2"), NVIDIA_VISIBLE_DEVICES=PLUGINS_CARD)
        plain = await node.start(node.pod("u3"))
        assert await node.environment(ours) == ["NVIDIA_VISIBLE_DEVICES=GPU-a"]
        assert await node.environment(other) == [f"NVIDIA_VISIBLE_DEVICES={PLUGINS_CARD}"]
        assert await node.environment(plain) == ["NVIDIA_VISIBLE_DEVICES=all"], "the image's"
        with pytest.raises(grpc.aio.AioRpcError, match="delete the pod"):
            await node.start(node.pod("u4", "no allocation"))
        await eventually(lambda: _has(facts, NodeContainerDevicesInjected))
        await running.scan()
        (observed,) = [one for one in facts.payloads if isinstance(one, NodeGpuCheckpointsObserved)]
        assert [(one.uid, one.container, one.devices) for one in observed.checkpoints] == [
            ("u2", "main", (PLUGINS_CARD,))
        ]


async def test_answers_of_a_real_runtime_are_the_same_with_and_without_the_proxy() -> None:
    async with a_node(RecordedFacts()) as (node, directly, _):
        container = await node.start(node.pod("u1"))
        questions: list[tuple[str, Message, type[Message]]] = [
            ("Version", cri.VersionRequest(), cri.VersionResponse),
            ("Status", cri.StatusRequest(verbose=True), cri.StatusResponse),
            ("ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse),
            ("ListImages", cri.ListImagesRequest(), cri.ListImagesResponse),
            ("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse),
            ("ContainerStatus", cri.ContainerStatusRequest(container_id=container), cri.ContainerStatusResponse),
        ]
        for method, request, response in questions:
            assert await node.call(method, request, response) == await directly.call(method, request, response), method
        execution = cri.ExecRequest(container_id=container, cmd=["env"], stdout=True)
        attaching = cri.AttachRequest(container_id=container, stdout=True)
        urls = [
            (await node.call("Exec", execution, cri.ExecResponse)).url,
            (await node.call("Attach", attaching, cri.AttachResponse)).url,
        ]
        assert all(url.startswith("http://") for url in urls), "of the runtime's own server, which nobody proxies"
        errors = []
        for one in (node, directly):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.call(
                    "ContainerStatus", cri.ContainerStatusRequest(container_id="x"), cri.ContainerStatusResponse
                )
            errors.append((refused.value.code(), refused.value.details()))
        assert errors[0] == errors[1]
        assert errors[0][0] is grpc.StatusCode.NOT_FOUND


async def _has(facts: RecordedFacts, kind: type) -> bool:
    await asyncio.sleep(0)
    return any(isinstance(one, kind) for one in facts.payloads)

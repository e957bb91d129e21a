"""What the proxy finds out about running containers, by asking a runtime over its socket."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpuledger.events.runtime import GpuCheckpoint, NodeGpuCheckpointsObserved
from gpuledger.runtimeproxy import cri_pb2 as cri
from gpuledger.runtimeproxy.running import RunningContainers
from gpuledger.runtimeproxy.server import runtime_channel
from support.container_runtime import ContainerRuntime, RuntimeAnswer, running_runtime
from support.created_containers import NAMES, RecordedFacts
from support.waiting import eventually

SERVICE = "/runtime.v1.RuntimeService"


class Node:
    """A runtime with pods, and what was found out about them."""

    def __init__(self, runtime: ContainerRuntime, scanner: RunningContainers, facts: RecordedFacts) -> None:
        self.runtime, self.scanner, self.facts = runtime, scanner, facts
        self.sandboxes: list[cri.PodSandbox] = []
        self.containers: list[cri.Container] = []
        self.environment: dict[str, str] = {}
        runtime.answers[f"{SERVICE}/ListPodSandbox"] = lambda _: cri.ListPodSandboxResponse(
            items=self.sandboxes
        ).SerializeToString()
        runtime.answers[f"{SERVICE}/ListContainers"] = lambda _: cri.ListContainersResponse(
            containers=self.containers
        ).SerializeToString()
        runtime.answers[f"{SERVICE}/ContainerStatus"] = self._status

    def _status(self, message: bytes) -> bytes:
        request = cri.ContainerStatusRequest.FromString(message)
        assert request.verbose
        env = [f"NVIDIA_VISIBLE_DEVICES={self.environment[request.container_id]}"]
        details = json.dumps({"runtimeSpec": {"process": {"env": env}}})
        return cri.ContainerStatusResponse(info={"info": details}).SerializeToString()

    def pod(self, uid: str, *containers: str, gpus: str = "GPU-a", ready: bool = True, annotations: Any = None) -> None:
        """A pod with containers that all have the same GPUs."""
        state = cri.SANDBOX_READY if ready else cri.SANDBOX_NOTREADY
        metadata = cri.PodSandboxMetadata(uid=uid)
        self.sandboxes.append(
            cri.PodSandbox(id=f"s-{uid}", metadata=metadata, state=state, annotations=annotations or {})
        )
        for name in containers:
            self.container(uid, name, 0, gpus)

    def container(self, uid: str, name: str, attempt: int, gpus: str) -> None:
        """One more container."""
        identity = f"{uid}-{name}-{attempt}"
        self.containers.append(
            cri.Container(
                id=identity,
                pod_sandbox_id=f"s-{uid}",
                metadata=cri.ContainerMetadata(name=name, attempt=attempt),
                created_at=attempt,
            )
        )
        self.environment[identity] = gpus

    def questions(self) -> int:
        """How often the runtime was asked about one container."""
        return sum(call.method.endswith("ContainerStatus") for call in self.runtime.calls)


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    with tempfile.TemporaryDirectory(prefix="gpuledger-cri-") as name:
        folder, facts = Path(name), RecordedFacts()
        async with running_runtime(folder) as runtime, runtime_channel(runtime.path) as channel:
            yield Node(runtime, RunningContainers(channel, NAMES.allocated, facts), facts)


def observed(*found: tuple[str, str, str]) -> NodeGpuCheckpointsObserved:
    return NodeGpuCheckpointsObserved(
        checkpoints=tuple(
            GpuCheckpoint(uid=uid, container=name, resource="nvidia.com/gpu", devices=tuple(gpus.split(",")))
            for uid, name, gpus in found
        )
    )


async def test_pods_of_before_sharing_are_reported_and_others_are_not(node: Node) -> None:
    node.pod("u2", "b", "a", gpus="GPU-a,GPU-b")
    node.pod("u1", "main")
    node.pod("u3", "main", annotations={NAMES.allocated: "{}"})
    node.pod("u4", "main", gpus="all")
    node.pod("u5", "main", ready=False)
    await node.scanner.scan()
    assert node.facts.payloads == [
        observed(("u1", "main", "GPU-a"), ("u2", "a", "GPU-a,GPU-b"), ("u2", "b", "GPU-a,GPU-b"))
    ]


async def test_changes_alone_are_reported_and_only_new_containers_asked_about(node: Node) -> None:
    await node.scanner.scan()
    node.pod("u1", "main")
    await node.scanner.scan()
    await node.scanner.scan()
    node.container("u1", "main", 1, "GPU-b")
    await node.scanner.scan()
    node.sandboxes[0].state = cri.SANDBOX_NOTREADY
    await node.scanner.scan()
    assert node.facts.payloads == [
        observed(),
        observed(("u1", "main", "GPU-a")),
        observed(("u1", "main", "GPU-b")),
        observed(),
    ]
    assert node.questions() == 2


async def test_a_container_that_goes_meanwhile_is_none(node: Node) -> None:
    node.pod("u1", "main")
    node.runtime.answers[f"{SERVICE}/ContainerStatus"] = RuntimeAnswer(messages=(), code=grpc.StatusCode.NOT_FOUND)
    await node.scanner.scan()
    assert node.facts.payloads == [observed()]


async def test_a_runtime_that_does_not_answer_is_asked_again_and_a_creation_leads_to_a_look(node: Node) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        node.runtime.answers[f"{SERVICE}/ListPodSandbox"] = lambda _: b""
        await asyncio.sleep(0)

    node.runtime.answers[f"{SERVICE}/ListPodSandbox"] = RuntimeAnswer(messages=(), code=grpc.StatusCode.UNAVAILABLE)
    scanner: Any = RunningContainers(node.scanner._channel, NAMES.allocated, node.facts, sleep=sleep)
    running = asyncio.create_task(scanner.run())
    await eventually(lambda: _is(scanner.scans == 1))
    assert (pauses, scanner.trouble) == ([5.0], None)
    scanner.look_soon()
    await eventually(lambda: _is(scanner.scans == 2))
    running.cancel()


async def _is(holds: bool) -> bool:
    return holds

"""Requests to create containers, as a kubelet makes them, and what tests need to change them."""

import json
from collections.abc import Mapping
from typing import Any, Final

from gpuledger.api.sharing import SharingNames
from gpuledger.events.payload import Payload
from gpuledger.runtimeproxy.creation import ContainerCreation
from gpuledger.runtimeproxy.cri_pb2 import ContainerConfig, CreateContainerRequest, KeyValue, PodSandboxConfig
from gpuledger.runtimeproxy.injection import DeviceNaming
from gpuledger.runtimeproxy.node_view import NodeView

NAMES: Final = SharingNames()
WHOLE_CARD: Final = {
    "gpu": [
        {
            "minor": 0,
            "id": "GPU-a",
            "resources": {"kooperator/gpu-core": "100", "kooperator/gpu-memory-ratio": "100"},
        }
    ]
}


class RecordedFacts:
    """Keeps the facts."""

    def __init__(self) -> None:
        self.payloads: list[Payload] = []

    async def record(self, payload: Payload) -> None:
        """Keep one."""
        self.payloads.append(payload)


def create_request(allocated: Any = None, name: str = "main", **variables: str) -> CreateContainerRequest:
    """A container of pod `team/train` with UID `u1`; `allocated` None: without DeviceAllocations."""
    text = allocated if isinstance(allocated, str) else json.dumps(allocated)
    pod = PodSandboxConfig(annotations={} if allocated is None else {NAMES.allocated: text})
    pod.metadata.name, pod.metadata.namespace, pod.metadata.uid = "train", "team", "u1"
    config = ContainerConfig(envs=[KeyValue(key=key, value=value.encode()) for key, value in variables.items()])
    config.metadata.name, config.metadata.attempt = name, 2
    return CreateContainerRequest(pod_sandbox_id="s1", config=config, sandbox_config=pod)


def variables_of(request: CreateContainerRequest) -> Mapping[str, str]:
    """The environment of the container."""
    return {one.key: one.value.decode() for one in request.config.envs}


def creation(
    facts: RecordedFacts, node: NodeView | Exception | None = None, unassigned: list[None] | None = None
) -> ContainerCreation:
    """The change under test; an exception as the node's view is raised when it is needed."""

    def view() -> NodeView:
        if isinstance(node, Exception):
            raise node
        return node or NodeView()

    seen: list[None] = [] if unassigned is None else unassigned
    return ContainerCreation(NAMES, DeviceNaming(), view, facts, lambda: seen.append(None))

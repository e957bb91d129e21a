"""Shares of devices for tests of the agent: what a node shares, pods that hold parts of it, and a board that knows."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuledger.agent.board import Board
from gpuledger.agent.hardware.api import Survey
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import AllocatedDevice, ContainerShare, NodeDevicesShared, SharedDevice
from support.kubelet_parts import card

GIB = 1024**3
MEMORY = 80 * GIB
CORE, RATIO, SPREAD = "kooperator/gpu-core", "kooperator/gpu-memory-ratio", "kooperator/gpu.shared"


def shared_gpu(minor: int, *, healthy: bool = True) -> SharedDevice:
    """The n-th card, shared."""
    resources = {"gpu-core": 100, "gpu-memory-ratio": 100, "gpu-memory": MEMORY}
    return SharedDevice(type="gpu", minor=minor, id=f"GPU-{minor}", healthy=healthy, resources=resources)


def shared_nic(minor: int) -> SharedDevice:
    """The n-th NIC, shared."""
    return SharedDevice(type="rdma", minor=minor, id=f"0000:0{minor}:00.0", healthy=True, resources={"rdma": 100})


def node_of(*devices: SharedDevice) -> NodeDevicesShared:
    """A node that shares these devices."""
    return NodeDevicesShared(devices=devices)


def sharing_board(cards: int, *more: SharedDevice) -> Board:
    """The board of a node that shares so many healthy cards, and further devices."""
    board = Board()
    board.put(
        survey=Survey(tuple(map(card, range(cards)))),
        unfit={},
        shared=node_of(*map(shared_gpu, range(cards)), *more),
    )
    return board


def part_of(minor: int, core: int, ratio: int) -> AllocatedDevice:
    """A part of the n-th card."""
    resources = {"gpu-core": core, "gpu-memory-ratio": ratio, "gpu-memory": ratio * MEMORY // 100}
    return AllocatedDevice(minor=minor, id=f"GPU-{minor}", resources=resources)


def container(name: str, *, init: bool = False, **requests: int) -> ContainerShare:
    """A container; `core` and `ratio` stand for the resources."""
    return ContainerShare(name=name, requests=amounts(requests), init=init)


def amounts(requests: Mapping[str, int]) -> dict[str, int]:
    """Amounts by short name."""
    names = {"core": "gpu-core", "ratio": "gpu-memory-ratio", "spread": "gpu.shared"}
    return {names.get(name, name): amount for name, amount in requests.items()}


def pod_share(
    name: str, devices: Sequence[AllocatedDevice], *containers: ContainerShare, uid: str | None = None, **more: Any
) -> PodShare:
    """A pod that holds GPUs; without containers it has one that requests all of it."""
    total = {
        "core": sum(one.resources["gpu-core"] for one in devices),
        "ratio": sum(one.resources["gpu-memory-ratio"] for one in devices),
    }
    return PodShare(
        uid=uid or f"uid-{name}",
        namespace="default",
        pod=name,
        requests=amounts(total),
        containers=containers or (ContainerShare(name="main", requests=amounts(total)),),
        allocation={"gpu": tuple(devices), **more},
    )

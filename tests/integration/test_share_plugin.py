"""Shares of devices with a kubelet that behaves as a real one: each pod gets its own cards, or nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import orjson
import pytest

from gpuledger.agent.board import Board, ResourceOffer
from gpuledger.agent.kubelet.pod_resources import PodResources
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.part import DevicePlugin, PluginSettings
from gpuledger.agent.plugin.share_answers import LOOKS_MAX
from gpuledger.events.allocation import AllocationObserved
from gpuledger.events.shares import PodShare
from gpuledger.events.sharing import AllocatedDevice, NodeDevicesShared
from support.events import hour
from support.kubelet import FakeKubelet, a_kubelet
from support.kubelet_parts import Listens, Remembers, address, hasty, running, whole_cards
from support.shares import (
    CORE,
    GIB,
    RATIO,
    SPREAD,
    container,
    node_of,
    part_of,
    pod_share,
    shared_gpu,
    shared_nic,
    sharing_board,
)
from support.waiting import eventually

POOL = "gpu.deckhouse.io/a"
RDMA = "kooperator/rdma"


@pytest.fixture
async def kubelet(root: Path) -> AsyncIterator[FakeKubelet]:
    async with a_kubelet(root) as one:
        yield one


class Node:
    """An agent's plugin and what it finds out from the kubelet, with the board that they share."""

    def __init__(self, kubelet: FakeKubelet, board: Board, **settings: object) -> None:
        self.kubelet, self.board = kubelet, board
        self.pods = PodResources(
            "n1", board, Remembers(), clock=lambda: hour(1), socket=kubelet.pods_socket, sleep=hasty
        )
        self.plugin = DevicePlugin(
            board,
            PluginSettings(kubelet.plugins, **settings),  # type: ignore[arg-type]
            on_allocated=self.pods.on_allocated,
            list_pods=self.pods.list_pods,
            sleep=hasty,
        )

    async def knows(self, *resources: str) -> None:
        """Wait until the kubelet knows exactly these resources, with healthy units."""

        async def so() -> bool:
            healthy = {name for name in self.kubelet.resources if "Healthy" in self.kubelet.health(name).values()}
            return healthy == set(resources)

        await eventually(so)

    async def admit(self, pod: str, core: int, ratio: int, container: str = "main") -> dict[str, str]:
        """Give a container its units, as a kubelet that admits its pod; returns its variables."""
        envs = [
            dict((await self.kubelet.allocate(resource, number, pod, container)).envs)
            for resource, number in ((RATIO, ratio), (CORE, core))
        ]
        assert envs[0] == envs[1]
        return envs[0]

    def cards(self, pod: str, resource: str = CORE) -> set[str]:
        """The cards whose units the kubelet gave a pod's container."""
        return {each.partition("::")[0] for each in self.kubelet.held["default", pod, "main"][resource]}


@asynccontextmanager
async def a_node(kubelet: FakeKubelet, board: Board, **settings: object) -> AsyncIterator[Node]:
    node = Node(kubelet, board, **settings)
    async with running(node.plugin):
        await node.knows(CORE, RATIO, SPREAD)
        yield node


def half(name: str, minor: int) -> PodShare:
    return pod_share(name, [part_of(minor, 50, 50)])


def visible(minors: Sequence[int], share: AllocatedDevice) -> dict[str, str]:
    """The variables of a container that has a part of these cards."""
    limits = {f"CUDA_DEVICE_MEMORY_LIMIT_{place}": str(share.resources["gpu-memory"]) for place in range(len(minors))}
    cards = {"NVIDIA_VISIBLE_DEVICES": ",".join(f"GPU-{minor}" for minor in minors)}
    return cards | limits | {"CUDA_DEVICE_SM_LIMIT": str(share.resources["gpu-core"])}


async def test_pods_get_the_cards_that_were_chosen_for_them_in_whatever_order_they_come(kubelet: FakeKubelet) -> None:
    board = sharing_board(8)
    pods = [half("a", 5), half("b", 0), half("c", 5), pod_share("d", [part_of(1, 100, 100), part_of(2, 100, 100)])]
    board.put(allocated=tuple(pods))
    async with a_node(kubelet, board) as node:
        assert await node.admit("c", 50, 50) == visible([5], part_of(5, 50, 50))
        assert await node.admit("d", 200, 200) == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}
        assert await node.admit("b", 50, 50) == visible([0], part_of(0, 50, 50))
        assert await node.admit("a", 50, 50) == visible([5], part_of(5, 50, 50))
        assert [node.cards(name) for name in "abcd"] == [{"GPU-5"}, {"GPU-0"}, {"GPU-5"}, {"GPU-1", "GPU-2"}]
        assert kubelet.complaints == []


async def test_an_allocation_waits_for_its_list(kubelet: FakeKubelet) -> None:
    board = sharing_board(2)
    async with a_node(kubelet, board) as node:
        admitting = asyncio.create_task(node.admit("a", 50, 50))

        async def is_looking() -> bool:
            return kubelet.lists_served > 1

        await eventually(is_looking)
        board.put(allocated=(half("a", 1),))
        assert await admitting == visible([1], part_of(1, 50, 50))


async def test_a_pod_that_nobody_reserved_devices_for_gets_none(kubelet: FakeKubelet) -> None:
    board = sharing_board(2)
    board.put(allocated=(half("a", 1),))
    async with a_node(kubelet, board) as node:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.allocate(CORE, 50, "stranger")
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "default/a have 50 of gpu-core reserved for a container" in (refused.value.details() or "")
        assert kubelet.lists_served > LOOKS_MAX
        assert await node.admit("a", 50, 50) == visible([1], part_of(1, 50, 50))
        assert node.plugin.counts.errors == 1


async def test_without_the_kubelets_word_nobody_gets_anything(kubelet: FakeKubelet) -> None:
    board = sharing_board(2)
    board.put(allocated=(half("a", 1),))
    async with a_node(kubelet, board) as node:
        kubelet.refuses_lists = True
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await node.admit("a", 50, 50)
        assert "does not say which pods it has" in (refused.value.details() or "")
        kubelet.refuses_lists = False
        assert await node.admit("a", 50, 50) == visible([1], part_of(1, 50, 50))


async def test_an_agent_that_starts_between_binding_and_allocation(kubelet: FakeKubelet) -> None:
    board = sharing_board(2)
    board.put(allocated=(half("a", 1), half("b", 0)))
    async with a_node(kubelet, board) as node:
        await node.admit("b", 50, 50)
        assert (await kubelet.allocate(RATIO, 50, "a")).envs == visible([1], part_of(1, 50, 50))
    await node.knows()
    again = sharing_board(2)
    async with a_node(kubelet, again):
        again.put(allocated=board.state.allocated)
        assert (await kubelet.allocate(CORE, 50, "a")).envs == visible([1], part_of(1, 50, 50))


async def test_a_card_turns_unhealthy_and_the_node_stops_sharing(kubelet: FakeKubelet) -> None:
    board = sharing_board(2)
    async with a_node(kubelet, board) as node:
        board.put(unfit={address(0): "XID 79"})

        async def half_is_left() -> bool:
            health = kubelet.health(CORE)
            return {one for one in health if health[one] == "Healthy"} == {f"GPU-1::{n}" for n in range(100)}

        await eventually(half_is_left)
        board.put(shared=NodeDevicesShared(enabled=False))
        await node.knows()

        async def sockets_are_gone() -> bool:
            return {path.name for path in kubelet.plugins.iterdir()} == {"kubelet.sock"}

        await eventually(sockets_are_gone)


async def test_shares_come_back_after_the_kubelet_restarts(kubelet: FakeKubelet) -> None:
    board = sharing_board(1)
    board.put(allocated=(half("a", 0), half("b", 0)))
    async with a_node(kubelet, board) as node:
        await node.admit("a", 50, 50)
        await kubelet.restart()
        kubelet.resources.clear()
        await node.knows(CORE, RATIO, SPREAD)
        assert await node.admit("b", 50, 50) == visible([0], part_of(0, 50, 50))


async def test_pools_and_nics_beside_shares(kubelet: FakeKubelet) -> None:
    board = sharing_board(3)
    shared = node_of(shared_gpu(0), shared_gpu(1), shared_nic(0))
    board.put(shared=shared, offers=(ResourceOffer(POOL, whole_cards(2)),))
    nic = AllocatedDevice(minor=0, id="0000:00:00.0", resources={"rdma": 50})
    pod = pod_share("a", [part_of(1, 50, 50)], container("main", core=50, ratio=50, rdma=50), rdma=(nic,))
    board.put(allocated=(pod,))
    node = Node(kubelet, board)
    async with running(node.plugin):
        await node.knows(CORE, RATIO, SPREAD, RDMA, POOL)
        envs = await node.admit("a", 50, 50)
        assert dict((await kubelet.allocate(RDMA, 50, "a")).envs) == envs == visible([1], part_of(1, 50, 50))
        assert node.cards("a", RDMA) == {"0000:00:00.0"}
        assert (await kubelet.allocate(POOL, 1, "other")).envs == {"NVIDIA_VISIBLE_DEVICES": "GPU-2"}


async def test_containers_of_a_pod_share_what_it_has(kubelet: FakeKubelet) -> None:
    board = sharing_board(1)
    containers = (container("main", core=20, ratio=25), container("side", core=20, ratio=50))
    board.put(allocated=(pod_share("a", [part_of(0, 40, 75)], *containers),))
    async with a_node(kubelet, board) as node:
        main = await node.admit("a", 20, 25)
        side = await node.admit("a", 20, 50, "side")
        assert [one["CUDA_DEVICE_MEMORY_LIMIT_0"] for one in (main, side)] == [str(20 * GIB), str(40 * GIB)]
        assert {one["CUDA_DEVICE_SM_LIMIT"] for one in (main, side)} == {"20"}


async def test_cdi_names_beside_the_limits(kubelet: FakeKubelet, root: Path) -> None:
    board, folder = sharing_board(2), root / "cdi"
    board.put(allocated=(half("a", 1), half("b", 0)))
    folder.mkdir()
    specification = {"kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1"}]}
    (folder / "nvidia.json").write_bytes(orjson.dumps(specification))
    settings = {"injection": DeviceInjection("cdi"), "cdi_folders": (folder,)}
    async with a_node(kubelet, board, **settings):
        given = await kubelet.allocate(CORE, 50, "a")
        assert [one.name for one in given.cdi_devices] == ["nvidia.com/gpu=GPU-1"]
        limits = {"CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_SM_LIMIT"}
        assert set(given.envs) == {*limits, "NVIDIA_VISIBLE_DEVICES"}
        assert given.envs["NVIDIA_VISIBLE_DEVICES"] == "void", "not what the image has, which may be all"
        with pytest.raises(grpc.aio.AioRpcError, match=r"No CDI specification names nvidia\.com/gpu=GPU-0"):
            await kubelet.allocate(CORE, 50, "b")


async def test_the_ledger_learns_which_cards_a_container_has(kubelet: FakeKubelet) -> None:
    board, heard = sharing_board(2), Listens()
    board.put(allocated=(half("a", 1),))
    async with a_node(kubelet, board) as node, running(node.pods, heard):
        await node.admit("a", 50, 50)

        async def is_recorded() -> bool:
            return "n1/default/a/main" in heard.current

        await eventually(is_recorded)
        fact: AllocationObserved = heard.current["n1/default/a/main"]
        assert {(one.resource, one.devices) for one in fact.resources} <= {(CORE, ("GPU-1",)), (RATIO, ("GPU-1",))}
        assert board.state.in_use is not None
        assert len(board.state.in_use[CORE]) == 50

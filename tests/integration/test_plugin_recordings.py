"""What goes over the wire, byte by byte, by the field numbers of the kubelet's APIs: no message of ours is used here.

Numbers and names are Kubernetes' (k8s.io/kubelet/pkg/apis: deviceplugin v1beta1, podresources v1). The messages of the
kubelet also hold fields that nobody here knows, as a newer one's do.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gpuledger.agent.board import Board, ResourceOffer
from gpuledger.agent.kubelet.pod_resources import PodResources
from gpuledger.agent.kubelet.sockets import socket_name
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.part import DevicePlugin, PluginSettings
from gpuledger.events.allocation import AllocatedClaim, AllocatedDevices, AllocationObserved
from support.kubelet_parts import Listens, Remembers, board_of, card, hasty, hasty_once, running, slices
from support.waiting import eventually

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
POOL = b"gpu.deckhouse.io/a"
ENDPOINT = socket_name(POOL.decode()).encode()
TEXTS = 2
"""The wire type of texts and messages."""


def text(number: int, *parts: bytes) -> bytes:
    """A field that is a text or a message, at most 127 bytes long."""
    value = b"".join(parts)
    assert len(value) < 128
    return bytes([number << 3 | TEXTS, len(value)]) + value


def number(field: int, value: int) -> bytes:
    """A field that is a number from 0 to 127."""
    return bytes([field << 3, value])


REGISTER = text(1, b"v1beta1") + text(2, ENDPOINT) + text(3, POOL) + text(4, number(2, 1))

ON_NUMA_NODE_1 = text(3, text(1, number(1, 1)))
ON_NUMA_NODE_0 = text(3, text(1))
"""As a default, 0 is not written."""


def listing(second: bytes) -> bytes:
    """Two devices; the second has this health."""
    return text(1, text(1, b"GPU-0::0"), text(2, b"Healthy"), ON_NUMA_NODE_1) + text(
        1, text(1, b"GPU-1::0"), text(2, second), ON_NUMA_NODE_0
    )


PREFERRED = text(1, text(1, b"GPU-0::0"), text(1, b"GPU-1::0"), text(2, b"GPU-1::0"), number(3, 1), text(9, b"new"))
PREFERRED_ANSWER = text(1, text(1, b"GPU-1::0"))

ALLOCATE = text(1, text(1, b"GPU-1::0"), text(1, b"GPU-0::0")) + text(1, text(1, b"GPU-0::0"), text(9, b"new"))
ALLOCATE_ANSWER = text(
    1,
    text(1, text(1, b"NVIDIA_VISIBLE_DEVICES"), text(2, b"GPU-1,GPU-0")),
    text(5, text(1, b"nvidia.com/gpu=GPU-1")),
    text(5, text(1, b"nvidia.com/gpu=GPU-0")),
) + text(1, text(1, text(1, b"NVIDIA_VISIBLE_DEVICES"), text(2, b"GPU-0")), text(5, text(1, b"nvidia.com/gpu=GPU-0")))

CONTAINER = [
    text(1, b"main"),
    text(2, text(1, POOL), text(2, b"GPU-0::0"), text(2, b"GPU-1::0"), text(3, text(1, number(1, 1)))),
    text(3, bytes([0, 1])),  # packed cpu_ids
    text(4, text(1, b"memory"), number(2, 64)),
    text(
        5,
        text(2, b"claim"),
        text(3, b"ns"),
        text(4, text(1, text(1, b"x/y=z")), text(2, b"d"), text(3, b"p"), text(4, b"g")),
    ),
]


def long_text(field: int, value: bytes) -> bytes:
    """A field that is a text or a message, from 128 to 16383 bytes long."""
    return bytes([field << 3 | TEXTS, len(value) & 127 | 128, len(value) >> 7]) + value


PODS = long_text(1, text(1, b"pod") + text(2, b"ns") + long_text(3, b"".join(CONTAINER)))


@asynccontextmanager
async def answering(socket: Path, service: str, method: str, answer: bytes) -> AsyncIterator[list[bytes]]:
    """A kubelet that answers one method with the same bytes; gives what it was asked, as bytes."""
    requests: list[bytes] = []

    async def handle(request: bytes, _: Any) -> bytes:
        requests.append(request)
        return answer

    server = grpc.aio.server()
    handlers: dict[str, Any] = {method: grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield requests
    finally:
        await server.stop(None)


@asynccontextmanager
async def a_plugin(
    root: Path, injection: DeviceInjection, noticed: asyncio.Event | None = None
) -> AsyncIterator[tuple[list[bytes], Any, Board]]:
    """A plugin of two slices that was registered: what the kubelet was asked, and a way to the plugin.

    It withdraws units after the test `noticed` that the list is empty.
    """
    cards = [card(0, numa_node=1), card(1, numa_node=0)]
    board = board_of(ResourceOffer(POOL.decode(), slices(0, 1) + slices(1, 1)), cards=cards)
    board.put(unfit={cards[1].address: "XID 79"})
    plugin = DevicePlugin(board, PluginSettings(root, injection), sleep=hasty_once(noticed or asyncio.Event()))
    kubelet = answering(root / "kubelet.sock", "v1beta1.Registration", "Register", b"")
    async with kubelet as requests, running(plugin):

        async def registered() -> list[bytes]:
            return requests

        await eventually(registered)
        async with grpc.aio.insecure_channel(f"unix:{root / ENDPOINT.decode()}") as channel:
            yield requests, channel, board


async def test_registration(root: Path) -> None:
    async with a_plugin(root, DeviceInjection()) as (requests, channel, _):
        assert requests == [REGISTER]
        assert await channel.unary_unary("/v1beta1.DevicePlugin/GetDevicePluginOptions")(b"") == number(2, 1)


async def test_lists(root: Path) -> None:
    async with a_plugin(root, DeviceInjection()) as (_, channel, board):
        watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
        async with asyncio.timeout(60):
            assert await watch.read() == listing(b"Unhealthy")
            board.put(unfit={})
            assert await watch.read() == listing(b"Healthy")
            board.put(offers=())
            assert await watch.read() == b""
        watch.cancel()


async def has_ended(watch: Any) -> bool:
    """Whether a stream's next word is that it is over."""
    try:
        return bool(await watch.read() == grpc.aio.EOF)
    except grpc.aio.AioRpcError:
        return True


def wipe(folder: Path) -> None:
    """Remove every socket, as a kubelet does that begins."""
    for path in folder.iterdir():
        path.unlink()


async def test_a_pool_that_leaves(root: Path) -> None:
    socket, noticed = root / ENDPOINT.decode(), asyncio.Event()
    async with a_plugin(root, DeviceInjection(), noticed) as (_, channel, board):
        watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
        async with asyncio.timeout(60):
            assert await watch.read() == listing(b"Unhealthy")
            board.put(offers=())
            assert await watch.read() == b""
            noticed.set()
            assert await has_ended(watch)

        async def is_gone() -> bool:
            return not socket.exists()

        await eventually(is_gone)


async def test_a_kubelet_that_restarts(root: Path) -> None:
    async with a_plugin(root, DeviceInjection()) as (requests, _, _):
        wipe(root)
        async with answering(root / "kubelet.sock", "v1beta1.Registration", "Register", b"") as anew:

            async def registered() -> list[bytes]:
                return anew

            await eventually(registered)
            assert (requests, anew) == ([REGISTER], [REGISTER])
            channel: Any = grpc.aio.insecure_channel(f"unix:{root / ENDPOINT.decode()}")
            async with channel:
                watch = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
                assert await watch.read() == listing(b"Unhealthy")
                watch.cancel()


async def test_choices_and_allocations(root: Path) -> None:
    async with a_plugin(root, DeviceInjection("both")) as (_, channel, _):
        assert await channel.unary_unary("/v1beta1.DevicePlugin/GetPreferredAllocation")(PREFERRED) == PREFERRED_ANSWER
        assert await channel.unary_unary("/v1beta1.DevicePlugin/PreStartContainer")(text(1, b"GPU-0::0")) == b""
        allocate = channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        assert await allocate(ALLOCATE) == ALLOCATE_ANSWER
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await allocate(text(1, text(1, b"GPU-9::0")))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        assert "GPU-9::0" in (refused.value.details() or "")


async def test_pod_resources(root: Path) -> None:
    board, listens = Board(), Listens()
    async with answering(root / "kubelet.sock", "v1.PodResourcesLister", "List", PODS) as requests:
        socket = root / "kubelet.sock"
        async with running(
            PodResources("w1", board, Remembers(), clock=lambda: NOON, socket=socket, sleep=hasty), listens
        ):

            async def recorded() -> list[object]:
                return list(listens.facts)

            await eventually(recorded)
        assert set(requests) == {b""}
        assert [fact.data for fact in listens.facts] == [
            AllocationObserved(
                node="w1",
                namespace="ns",
                pod="pod",
                container="main",
                resources=(AllocatedDevices(resource=POOL.decode(), devices=("GPU-0::0", "GPU-1::0")),),
                claims=(AllocatedClaim(claim="claim", driver="d", pool="p", device="g"),),
            )
        ]

"""The runtime proxy as a process: it serves, refuses a second one, leaves facts, and ends in an orderly way."""

import asyncio
import signal
from typing import Any

import grpc.aio
import pytest

from gpuledger.events.runtime import NodeContainerDevicesInjected, NodeContainerDevicesRefused
from gpuledger.runtimeproxy.cri_pb2 import CreateContainerRequest
from support.container_runtime import CREATE, EVENTS, VERSION, RuntimeAnswer, kubelet_of, running_runtime, unary
from support.created_containers import WHOLE_CARD, create_request, variables_of
from support.proxy_process import ProxyProcess, a_proxy
from support.servers import short_directory
from support.waiting import eventually


async def test_a_container_gets_its_devices_and_the_facts_wait_on_disk() -> None:
    with short_directory() as root:
        async with running_runtime(root) as runtime, a_proxy(root) as proxy, kubelet_of(proxy.listen) as kubelet:
            request = create_request(WHOLE_CARD, NVIDIA_VISIBLE_DEVICES="GPU-x")
            await unary(kubelet, CREATE, request.SerializeToString())
            (seen,) = [call for call in runtime.calls if call.method == CREATE]
            assert variables_of(CreateContainerRequest.FromString(seen.messages[0])) == {
                "NVIDIA_VISIBLE_DEVICES": "GPU-a"
            }
            with pytest.raises(grpc.aio.AioRpcError, match="delete the pod"):
                await unary(kubelet, CREATE, create_request("{").SerializeToString())

            async def both() -> bool:
                kinds = {proxy.facts.read(name).type for name in proxy.facts.names()}
                return kinds >= {NodeContainerDevicesInjected.TYPE, NodeContainerDevicesRefused.TYPE}

            await eventually(both)
            metrics = await proxy.metrics()
            assert "gpuledger_runtime_proxy_containers_injected_total 1.0" in metrics
            assert "gpuledger_runtime_proxy_containers_refused_total 1.0" in metrics
            assert f'gpuledger_runtime_proxy_calls_total{{method="{CREATE}"}} 2.0' in metrics


async def test_one_proxy_serves_and_the_next_takes_over_after_a_kill() -> None:
    with short_directory() as root:
        async with running_runtime(root), a_proxy(root) as proxy:
            second = ProxyProcess(root)
            assert "Another proxy serves" in await second.start()
            assert await second.code() == 5
            async with kubelet_of(proxy.listen) as kubelet:
                await unary(kubelet, VERSION)
                await proxy.end(signal.SIGKILL)
                assert proxy.listen.exists()
                assert "is up" in await proxy.start()
                await eventually(lambda: _answers(kubelet))
            assert await proxy.end(signal.SIGTERM) == 0
            assert not proxy.listen.exists()


async def test_an_orderly_end_lets_calls_finish() -> None:
    with short_directory() as root:
        go_on = asyncio.Event()
        async with running_runtime(root) as runtime, a_proxy(root) as proxy, kubelet_of(proxy.listen) as kubelet:
            runtime.answers[VERSION] = RuntimeAnswer(messages=(b"done",), hold=go_on)
            runtime.answers[EVENTS] = RuntimeAnswer(messages=(b"one",), hold=asyncio.Event())
            events: Any = kubelet.unary_stream(EVENTS)(b"", timeout=60)
            await events.read()
            pulling = asyncio.create_task(unary(kubelet, VERSION))
            await eventually(lambda: _is(any(call.method == VERSION for call in runtime.calls)))
            ending = asyncio.create_task(proxy.end(signal.SIGTERM))
            with pytest.raises(grpc.aio.AioRpcError):
                await events.read()
            assert not ending.done()
            go_on.set()
            assert await pulling == b"done"
            assert await ending == 0


async def _is(holds: bool) -> bool:
    return holds


async def _answers(kubelet: Any) -> bool:
    try:
        await unary(kubelet, VERSION)
    except grpc.aio.AioRpcError:
        return False
    return True

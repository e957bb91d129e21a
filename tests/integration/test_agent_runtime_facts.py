"""A node with a runtime proxy and an agent: what the proxy does reaches the ledger, and the node's offer the proxy."""

import asyncio
import signal
from typing import Final

import grpc.aio
import pytest

from gpuledger.events.runtime import (
    NodeContainerDevicesInjected,
    NodeContainerDevicesRefused,
    NodeGpuCheckpointsObserved,
)
from gpuledger.local.servers.nats import NatsServer
from gpuledger.runtimefacts.folder import NODE as NODE_FILE
from support.agent_process import NODE, a_place, publish
from support.container_runtime import CREATE, kubelet_of, running_runtime, unary
from support.created_containers import WHOLE_CARD, create_request
from support.ledgers import jetstream_ledger
from support.proxy_process import a_proxy
from support.servers import short_directory
from support.sharing import gpu, shared
from support.waiting import eventually

BY_MINOR: Final = {"gpu": [{"minor": 1, "resources": WHOLE_CARD["gpu"][0]["resources"]}]}


async def test_a_nodes_proxy_and_agent_work_together_also_after_each_was_away(fresh_nats: NatsServer) -> None:
    with short_directory() as root:
        environ = {"GPULEDGER_RUNTIME_PROXY_DIR": str(root / "dir")}
        async with (
            running_runtime(root) as runtime,
            a_proxy(root) as proxy,
            kubelet_of(proxy.listen) as kubelet,
            a_place(fresh_nats, environ=environ) as place,
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="agent reports UUIDs"):
                await unary(kubelet, CREATE, create_request(BY_MINOR).SerializeToString())
            await place.agent.start()
            (refused,) = await place.recorded_at_least(1, NodeContainerDevicesRefused)
            assert refused.reason == "UnnamedDevice"
            await place.recorded_at_least(1, NodeGpuCheckpointsObserved)

            async with jetstream_ledger(fresh_nats.url) as ledger:
                await publish(ledger, "/services/sharing", NODE, shared(gpu(0), gpu(1)), 1)
            await eventually(lambda: asyncio.to_thread((root / "dir" / NODE_FILE).exists))
            await place.agent.kill()
            await unary(kubelet, CREATE, create_request(BY_MINOR).SerializeToString())
            assert [call.method for call in runtime.calls].count(CREATE) == 1
            await proxy.end(signal.SIGTERM)
            await place.agent.start()
            (injected,) = await place.recorded_at_least(1, NodeContainerDevicesInjected)
            assert injected.devices == ("GPU-1",)
            await place.nothing_is_lost()
            assert await asyncio.to_thread(proxy.facts.names) == []

"""Lists for a kubelet that reads at its own pace."""

import asyncio
from typing import Any

from gpuledger.agent.kubelet.deviceplugin_pb2 import Empty, ListAndWatchResponse
from gpuledger.agent.plugin.allocate import DeviceInjection
from gpuledger.agent.plugin.device_list import ListedUnit
from gpuledger.agent.plugin.service import PluginContext, PluginCounts, PluginService
from gpuledger.runtime.tasks import end
from support.kubelet_parts import whole_cards
from support.waiting import eventually


def units(*indexes: int) -> tuple[ListedUnit, ...]:
    return tuple(ListedUnit(unit, healthy=True, numa_node=None) for unit in whole_cards(*indexes))


class Reader:
    """Takes lists when it is let."""

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def write(self, message: ListAndWatchResponse) -> None:
        self.lists.append([device.ID for device in message.devices])
        await self.reads.wait()

    async def got(self, count: int) -> None:
        async def so() -> bool:
            return len(self.lists) >= count

        await eventually(so)


async def test_only_what_differs_is_sent_and_what_was_overtaken_is_not() -> None:
    counts, reader = PluginCounts(), Reader()
    service = PluginService("gpu.deckhouse.io/a", PluginContext(DeviceInjection(), None, lambda *_: None), counts)
    service.offer(units(0), ())
    context: Any = reader
    watch = asyncio.create_task(service._watch(Empty(), context))
    await reader.got(1)
    service.offer(units(0), ())
    for _ in range(10):
        await asyncio.sleep(0)  # it has every chance to send the same again
    assert reader.lists == [["GPU-0"]]
    reader.reads.clear()
    service.offer(units(1), ())
    await reader.got(2)
    for index in range(2, 6):
        service.offer(units(index), ())
    reader.reads.set()
    await reader.got(3)
    assert reader.lists == [["GPU-0"], ["GPU-1"], ["GPU-5"]]
    assert service.watchers == 1
    await end([watch])
    assert service.watchers == 0
    assert counts.lists_sent == 3

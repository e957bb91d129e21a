"""Follows what other people do to the pods of the demo namespace.

Changes wait in a bounded queue; while it is full the stream waits. Nothing is done about them here.
"""

import asyncio
from contextlib import aclosing
from typing import Final

import structlog

from gpuledger.kube.client import KubeClient, Object
from gpuledger.kube.names import PODS
from gpuledger.kube.watch import Changes, Interrupted, Listed, Reflector, Sleep
from gpuledger.simulation.kubernetes import DEMO

QUEUE_MAX: Final = 256

log = structlog.get_logger("gpuledger.simulation")

Seen = Listed[Object] | Changes[Object]


class Follower:
    """Reads the changes of pods."""

    def __init__(self, client: KubeClient, *, sleep: Sleep) -> None:
        self._reflector = Reflector(client, PODS, lambda pod: pod, selection=DEMO, sleep=sleep)
        self._queue: asyncio.Queue[Seen] = asyncio.Queue(QUEUE_MAX)

    async def run(self) -> None:
        """Follow for ever."""
        async with aclosing(self._reflector.run()) as seen:
            async for one in seen:
                if isinstance(one, Interrupted):
                    log.warning("pods cannot be followed", reason=str(one.error), pause_s=one.pause_s)
                else:
                    await self._queue.put(one)

    def taken(self) -> list[Seen]:
        """What was seen since the last call."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

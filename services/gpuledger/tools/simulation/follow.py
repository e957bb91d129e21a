"""Follows what others do to objects that the simulation looks at: pods of the demo namespace, and GPUDevices.

ChangeBatch wait in a bounded queue; while it is full the stream waits. Nothing is done about them here.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, Generic, TypeVar

import structlog

from gpuledger.api.kinds import Resource
from gpuledger.edge.kube.client import ALL, KubeClient, Object, Selection
from gpuledger.edge.kube.reflector import ChangeBatch, Interrupted, Listed, Reflector
from gpuledger.runtime.clock import Sleep

T = TypeVar("T")

QUEUE_MAX: Final = 256

log = structlog.get_logger("gpuledger.simulation")


class Follower(Generic[T]):
    """Reads the changes of one kind of object; `read` makes of each what is kept of it."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        read: Callable[[Object], T],
        *,
        selection: Selection = ALL,
        sleep: Sleep,
    ) -> None:
        self._resource = resource
        self._reflector = Reflector(client, resource, read, selection=selection, sleep=sleep)
        self._queue: asyncio.Queue[Listed[T] | ChangeBatch[T]] = asyncio.Queue(QUEUE_MAX)

    async def run(self) -> None:
        """Follow for ever."""
        async with aclosing(self._reflector.run()) as seen:
            async for one in seen:
                if isinstance(one, Interrupted):
                    kind, reason = self._resource.plural, str(one.error)
                    log.warning("a kind cannot be followed", kind=kind, reason=reason, pause_s=one.pause_s)
                else:
                    await self._queue.put(one)

    def taken(self) -> list[Listed[T] | ChangeBatch[T]]:
        """What was seen since the last call."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

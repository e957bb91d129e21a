"""Errors of cards from the kernel's log, for as long as the driver refuses to report them to the agent.

The log is read with each poll, so an error is noticed some seconds late; errors of before the first read are passed
over, because they may be of any time.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import structlog

from gpuledger.agent.hardware.api import Unregistered, Xid
from gpuledger.agent.hardware.errors import HardwareError
from gpuledger.agent.hardware.kernel_log import KernelLogTail

log = structlog.get_logger("gpuledger.agent")

ReadLog = Callable[[], Awaitable[str]]
"""Reads the kernel's log; raises HardwareError where that is impossible."""


class HeardErrors(NamedTuple):
    """The errors of cards that the driver does not report, and the cards whose errors reach the agent in no way."""

    xids: tuple[Xid, ...]
    unheard: Mapping[str, Unregistered]


class KernelErrors:
    """Hears cards through the kernel's log; without `read` no card is heard so."""

    def __init__(self, node: str, read: ReadLog | None) -> None:
        self._node = node
        self._read = read
        self._tail: KernelLogTail | None = None

    async def hear(self, unregistered: Mapping[str, Unregistered]) -> HeardErrors:
        """What was written since the last call about cards that the driver refuses to register."""
        if self._read is None or not unregistered:
            self._tail = None
            return HeardErrors((), unregistered)
        try:
            text = await self._read()
        except HardwareError as error:
            self._tail = None
            also = {address: why._replace(message=f"{why.message} {error}") for address, why in unregistered.items()}
            return HeardErrors((), also)
        if self._tail is None:
            self._tail = KernelLogTail()
            log.info("errors of cards are read from the kernel's log", node=self._node, addresses=list(unregistered))
        xids = tuple(xid for xid in self._tail.take(text) if xid.address in unregistered)
        return HeardErrors(xids, {})

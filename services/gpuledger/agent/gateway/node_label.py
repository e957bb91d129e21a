"""The node's label, as watchers recorded it, for who may report on this node.

What the ledger has is kept for a while. While it does not answer, or not to this agent, the last value stands.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog

from gpuledger.events.errors import EventError
from gpuledger.healthreports.node_label import label_in
from gpuledger.ledger.api import LedgerQueries
from gpuledger.ledger.errors import LedgerError
from gpuledger.ledger.permissions import node_labels_subject

KEPT_S: Final = 30.0
"""How long a value counts, and how long nobody asks again after the ledger did not answer."""

QUERY_TIMEOUT_S: Final = 2.0

Connect = Callable[[], AbstractAsyncContextManager[LedgerQueries]]
"""Connects to the ledger; raises LedgerError where it cannot be queried."""

log = structlog.get_logger("gpuledger.agent")


class NodeLabel:
    """The value of one label of the node; `monotonic` counts in seconds."""

    def __init__(self, node: str, label: str, connect: Connect, monotonic: Callable[[], float]) -> None:
        self._node = node
        self._label = label
        self._connect = connect
        self._monotonic = monotonic
        self._reading = asyncio.Lock()
        self._value = ""
        self._until_s: float | None = None

    async def value(self) -> str:
        """The label's value; empty where the node has no such label, or nobody can tell."""
        async with self._reading:
            if self._until_s is None or self._until_s <= self._monotonic():
                await self._renew()
            return self._value

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(QUERY_TIMEOUT_S), self._connect() as ledger:
                message = await ledger.newest(node_labels_subject(self._node))
                self._value = "" if message is None else label_in(message.data, self._node, self._label)
        except (LedgerError, EventError, TimeoutError) as error:
            log.warning("the node's label is unknown", label=self._label, reason=str(error) or "no answer in time")
        self._until_s = self._monotonic() + KEPT_S

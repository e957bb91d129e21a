"""Reads a log across its generations: the closed ones first, then the current one, and the next when that is closed.

Sequences go on from one generation to the next, so whoever reads here sees one log, with no place twice and none left
out. A reader that waits in a generation while it is closed reads the rest of it before it goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Protocol

from gpuledger.events.position import Generations, Offset, is_at_or_after, is_same, latest
from gpuledger.events.subjects import ALL
from gpuledger.ledger.api import MESSAGES_PER_BATCH_MAX, Message
from gpuledger.ledger.closed import ClosedGenerations
from gpuledger.ledger.generation_log import GenerationLog, GenerationReader
from gpuledger.ledger.identity import Anchor, anchor_of


class Log(Protocol):
    """What a spanning reader reads."""

    @property
    def generations(self) -> Generations:
        """The generations, which grow as they are closed."""
        ...

    async def log_of(self, generation: int) -> GenerationLog:
        """The log of one generation."""
        ...


class SpanningReader:
    """See `gpuledger.ledger.api.Reader`."""

    def __init__(
        self,
        log: Log,
        closed: ClosedGenerations,
        after: Offset,
        subject_filter: str,
        anchor: Anchor | None,
    ) -> None:
        self._log = log
        self._closed = closed
        self._after = after
        self._filter = subject_filter
        self._anchor = anchor
        self._generation = log.generations.current
        self._past: AsyncGenerator[list[Message]] | None = None
        self._left: list[Message] = []
        self._current: GenerationReader | None = None
        self._end: Offset | None = None
        self._stack = AsyncExitStack()

    async def next_batch(self, limit: int = MESSAGES_PER_BATCH_MAX, timeout_s: float | None = None) -> list[Message]:
        """See `gpuledger.ledger.api.Reader.next_batch`; of closed generations it waits for as long as that takes."""
        batch = await self._next_of_past(limit)
        if not batch:
            batch = await self._next_of_current(limit, timeout_s)
        if batch:
            last = batch[-1]
            self._after = last.sequence
        return batch

    async def begin(self) -> None:
        """Begin behind the place that was given."""
        begins = self._log.generations.behind(self._generation)
        if not is_at_or_after(self._after, begins):
            past = self._closed.history(self._after, begins, self._filter)
            self._past = await self._stack.enter_async_context(aclosing(past))
        else:
            await self._open()

    async def aclose(self) -> None:
        """End the reading."""
        await self._stack.aclose()

    def wake(self) -> None:
        """The log has another generation; whoever waits looks whether it is time to go on there."""
        if self._current is not None:
            self._current.wake()

    async def _open(self) -> None:
        """Read the generation that it has got to."""
        behind = latest([self._after, self._log.generations.behind(self._generation)])
        anchor = None if self._anchor is None or not is_same(self._anchor.sequence, behind) else self._anchor
        log = await self._log.log_of(self._generation)
        self._current = await self._stack.enter_async_context(log.reading(behind, self._filter, anchor))

    async def _next_of_past(self, limit: int) -> list[Message]:
        if not self._left and self._past is not None:
            self._left = await anext(self._past, [])
            if not self._left:
                self._past = None
                await self._stack.aclose()
                await self._open()
            else:
                last = self._left[-1]
                self._anchor = anchor_of(last.sequence, last.subject, last.data)
        batch, self._left = self._left[:limit], self._left[limit:]
        return batch

    async def _next_of_current(self, limit: int, timeout_s: float | None) -> list[Message]:
        clock = asyncio.get_running_loop().time
        deadline = None if timeout_s is None else clock() + timeout_s
        while True:
            if await self._is_read():
                await self._go_on()
            assert self._current is not None, "it reads the past first"
            left_s = None if deadline is None else max(0.0, deadline - clock())
            batch = await self._current.next_batch(limit, left_s)
            if batch or (deadline is not None and clock() >= deadline):
                return batch

    async def _is_read(self) -> bool:
        """Whether the generation is closed, and everything in it was handed out."""
        if self._generation == self._log.generations.current:
            return False
        if self._end is None:
            end = self._log.generations.end(self._generation)
            self._end = end if self._filter == ALL else await self._last_in_closed()
        return is_at_or_after(self._after, self._end)

    async def _last_in_closed(self) -> Offset:
        log = await self._log.log_of(self._generation)
        return await log.last_sequence(self._filter)

    async def _go_on(self) -> None:
        """Read the generation behind the one that was closed."""
        generations = self._log.generations
        assert self._current is not None, "a generation was read"
        self._anchor = self._current.anchor
        await self._stack.aclose()
        self._generation = generations.after(self._generation)
        self._end = None
        await self._open()


@asynccontextmanager
async def spanning(reader: SpanningReader) -> AsyncIterator[SpanningReader]:
    """The reader, reading while the block runs."""
    try:
        await reader.begin()
        yield reader
    finally:
        await reader.aclose()

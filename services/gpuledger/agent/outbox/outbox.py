"""The outbox: persists the facts that the agent's parts record, and publishes them in order, each once in effect.

A fact is on disk before `record` returns, and leaves it when the ledger has acknowledged it. The disk is used in a
thread of its own, so that the event loop never waits for it, and facts that arrive together are written together. A
ledger that is unavailable, or refuses, delays only the publishing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final, ParamSpec, TypeVar

import structlog

from gpuledger.agent.outbox.bounds import DEFAULT_SIZES, Sizes
from gpuledger.agent.outbox.clock import Monotonic, Times
from gpuledger.agent.outbox.entry import AgentIdentity, Entry, check, source_of
from gpuledger.agent.outbox.errors import OutboxError
from gpuledger.agent.outbox.spool import open_spool
from gpuledger.agent.outbox.store import OpenSpool, OutboxStatus, OutboxStore
from gpuledger.agent.part import AgentFact
from gpuledger.ledger.api import LedgerWriter
from gpuledger.ledger.errors import EventRefusedError, LedgerError
from gpuledger.runtime.backoff import Backoff, Jitter, Retries, system_jitter
from gpuledger.runtime.clock import Clock, NewId, Sleep, random_id, system_clock
from gpuledger.runtime.tasks import run_until_one_fails

RETRY: Final = Backoff(first_s=0.2, max_s=15.0)
"""Its jitter keeps the agents of a fleet from coming back all at once."""

CHECK_PERIOD_S: Final = 5.0
"""How often the outbox checks the clock, and a disk that took no writes."""

log = structlog.get_logger("gpuledger.agent")

Connect = Callable[[], AbstractAsyncContextManager[LedgerWriter]]
"""Connects to the ledger; raises LedgerUnavailableError while it is unavailable."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

P = ParamSpec("P")
T = TypeVar("T")


class Outbox:
    """The outbox of an agent, and the `StateStore` of its parts; `open_outbox` makes it.

    `trouble` says why the ledger takes no events, None while it does; `recorded` counts the events that the ledger has
    acknowledged since the process started.
    """

    def __init__(self, store: OutboxStore, source: str, *, clock: Clock, sleep: Sleep, jitter: Jitter) -> None:
        self.trouble: str | None = None
        self.recorded = 0
        self._store = store
        self._source = source
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._arrived: deque[AgentFact] = deque()
        self._pending = asyncio.Event()
        self._idle = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="outbox")

    @property
    def status(self) -> OutboxStatus:
        """How many events wait, where, and how many were dropped."""
        return self._store.status

    @property
    def oldest_age_s(self) -> float:
        """How long ago the oldest waiting event happened; 0 where none waits."""
        oldest_at = self.status.oldest_at
        return 0.0 if oldest_at is None else max(0.0, (self._clock() - oldest_at).total_seconds())

    def describe(self) -> dict[str, object]:
        """Its state, as JSON values."""
        status = self.status
        return {
            "recorded": self.recorded,
            "waiting": status.waiting,
            "waiting_for_s": round(self.oldest_age_s, 3),
            "dropped": status.dropped,
            "durable": status.durable,
            "ledger": self.trouble or "ok",
            "disk": status.trouble or "ok",
        }

    async def record(self, facts: Sequence[AgentFact]) -> None:
        """Persist facts as the agent's next events: on disk when this returns, unless `status.durable` is False.

        Raises:
            SubjectError: no subject can name what a fact is about; none of the facts was persisted.
        """
        for fact in facts:
            check(self._source, fact)
        if facts:
            self._arrived.extend(facts)
            await self._in_worker(self._record_arrived, asyncio.get_running_loop())

    @property
    def is_durable(self) -> bool:
        """See `gpuledger.agent.part.DurableStore.is_durable`."""
        return self.status.durable

    def has_room(self, events: int, size: int) -> bool:
        """See `gpuledger.agent.part.DurableStore.has_room`."""
        return self._store.has_room(events, size)

    async def record_with(self, facts: Sequence[AgentFact], name: str, value: bytes) -> None:
        """See `gpuledger.agent.part.DurableStore.record_with`.

        Raises:
            SubjectError: no subject can name what a fact is about; nothing was persisted.
            StateStoreFullError: the value is too large, or one too many; nothing was persisted.
        """
        for fact in facts:
            check(self._source, fact)
        await self._in_worker(self._record_with, asyncio.get_running_loop(), facts, name, value)

    def get(self, name: str) -> bytes | None:
        """See `gpuledger.agent.part.StateStore.get`."""
        return self._store.values.get(name)

    async def put(self, name: str, value: bytes) -> None:
        """See `gpuledger.agent.part.StateStore.put`.

        Raises:
            StateStoreFullError: the value is too large, or one too many.
        """
        await self._in_worker(self._store.put, name, value)

    async def run(self, connect: Connect) -> None:
        """Publish for ever."""
        await run_until_one_fails([self._publish_forever(connect), self._check_forever()])

    async def drained(self) -> None:
        """Return when no event waits."""
        await self._idle.wait()

    async def open(self) -> None:
        """Resume where the last run ended.

        Raises:
            FolderTakenError: another agent uses the state folder.
        """
        await self._in_worker(self._store.open)

    async def close(self) -> None:
        """End cleanly: waiting events stay on disk for the next run."""
        try:
            await self._in_worker(self._record_arrived, asyncio.get_running_loop())
            await self._in_worker(self._store.close)
        finally:
            self._worker.shutdown(wait=False)

    async def _in_worker(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(work, *args, **kwargs))

    def _record_arrived(self, loop: asyncio.AbstractEventLoop) -> None:
        """Persist all facts that have arrived in one transaction; the callers of these find nothing left to do."""
        facts: list[AgentFact] = []
        while self._arrived:
            facts.append(self._arrived.popleft())
        if not facts:
            return
        try:
            self._store.record(facts)
        except BaseException:
            self._arrived.extendleft(reversed(facts))  # other callers must not find them persisted
            raise
        loop.call_soon_threadsafe(self._notify)

    def _record_with(
        self, loop: asyncio.AbstractEventLoop, facts: Sequence[AgentFact], name: str, value: bytes
    ) -> None:
        self._record_arrived(loop)  # the facts that others recorded before
        self._store.put(name, value, facts)
        loop.call_soon_threadsafe(self._notify)

    def _notify(self) -> None:
        self._idle.clear()
        self._pending.set()

    async def _publish_forever(self, connect: Connect) -> None:
        retries = Retries(RETRY, self._jitter)
        while True:
            recorded = self.recorded
            try:
                async with connect() as ledger:
                    await self._publish_all(ledger)
            except (LedgerError, OutboxError) as error:
                self.trouble = str(error)
            if self.recorded != recorded:
                retries.reset()
            pause_s = retries.pause_s()
            log.warning(
                "waiting for the ledger", reason=self.trouble, waiting=self.status.waiting, pause_s=round(pause_s, 3)
            )
            await self._sleep(pause_s)

    async def _publish_all(self, ledger: LedgerWriter) -> None:
        self.trouble = None
        while True:
            self._pending.clear()
            if entries := await self._in_worker(self._store.head):
                await self._publish(ledger, entries)
                self.trouble = None
                continue
            if not self._pending.is_set():
                self._idle.set()
            await self._pending.wait()

    async def _publish(self, ledger: LedgerWriter, entries: Sequence[Entry]) -> None:
        try:
            await ledger.publish_many([entry.message for entry in entries])
        except EventRefusedError:
            for entry in entries:
                await self._publish_one(ledger, entry)
            return
        await self._acknowledged(entries)

    async def _publish_one(self, ledger: LedgerWriter, entry: Entry) -> None:
        try:
            await ledger.publish_many([entry.message])
        except EventRefusedError as error:
            log.error("an event is dropped, because the ledger will never take it", reason=str(error))
            await self._in_worker(self._store.refuse, entry)
            return
        await self._acknowledged([entry])

    async def _acknowledged(self, entries: Sequence[Entry]) -> None:
        self.recorded += len(entries)
        await self._in_worker(self._store.acknowledged, entries)

    async def _check_forever(self) -> None:
        while True:
            await self._sleep(CHECK_PERIOD_S)
            waiting = self.status.waiting
            await self._in_worker(self._store.check)
            if self.status.waiting != waiting:
                self._notify()


def boot_id() -> str:
    """The id of the node's boot; where the system has none, every start counts as one."""
    try:
        return BOOT_ID.read_text().strip() or random_id()
    except OSError:
        return random_id()


@asynccontextmanager
async def open_outbox(
    folder: Path,
    node: str,
    *,
    version: str,
    hardware: str,
    sizes: Sizes = DEFAULT_SIZES,
    clock: Clock = system_clock,
    monotonic: Monotonic = monotonic,
    new_id: NewId = random_id,
    boot: str | None = None,
    sleep: Sleep = asyncio.sleep,
    jitter: Jitter = system_jitter,
    open_spool: OpenSpool = open_spool,
) -> AsyncIterator[Outbox]:
    """The outbox of a node's agent in its state folder, closed at the end.

    `version` is the build's, `hardware` the kind of hardware that the agent sees, and `boot` the id of the node's boot
    (None: the system's).

    Raises:
        FolderTakenError: another agent uses the folder.
    """
    identity = AgentIdentity(node, source_of(node), version, hardware)
    times = Times(clock, monotonic)
    store = OutboxStore(
        folder,
        identity,
        times=times,
        new_id=new_id,
        boot=boot or boot_id(),
        sizes=sizes,
        open_spool=open_spool,
    )
    outbox = Outbox(store, identity.source, clock=clock, sleep=sleep, jitter=jitter)
    await outbox.open()
    try:
        yield outbox
    finally:
        await outbox.close()

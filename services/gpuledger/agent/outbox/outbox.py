"""Brings what the agent's parts tell into the ledger: in order, each once in effect, however long the ledger is away.

What is told is on disk before anybody is told so, and leaves the disk when the ledger has acknowledged it. The disk is
used in one thread, so that the event loop never waits for it; what is told together is kept together. A ledger that is
away, or is not as it must be, stops nothing but the sending.
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
"""How often the clock is looked at, and a disk that takes nothing."""

log = structlog.get_logger("gpuledger.agent")

Connect = Callable[[], AbstractAsyncContextManager[LedgerWriter]]
"""Connects to the ledger; raises LedgerUnavailableError while it is away."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

P = ParamSpec("P")
T = TypeVar("T")


class Outbox:
    """The outbox of an agent, which keeps values for its parts as well (`Keep`); `open_outbox` makes it."""

    def __init__(self, store: OutboxStore, source: str, *, clock: Clock, sleep: Sleep, jitter: Jitter) -> None:
        self.trouble: str | None = None
        """Why the ledger cannot be written to; None where it can, as far as is known."""
        self.recorded = 0
        """How many events the ledger has acknowledged since the process began."""
        self._store = store
        self._source = source
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._arrived: deque[AgentFact] = deque()
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="outbox")

    @property
    def status(self) -> OutboxStatus:
        """How much waits, where, and what was dropped."""
        return self._store.status

    @property
    def waiting(self) -> int:
        """How many events the ledger has not acknowledged."""
        return self.status.waiting

    @property
    def dropped(self) -> int:
        """How many events were given up since the process began."""
        return self.status.dropped

    @property
    def durable(self) -> bool:
        """Whether what is told is on disk when `tell` returns."""
        return self.status.durable

    @property
    def oldest_age_s(self) -> float:
        """How long ago the first event that waits happened; 0 where none does."""
        oldest_at = self.status.oldest_at
        return 0.0 if oldest_at is None else max(0.0, (self._clock() - oldest_at).total_seconds())

    def describe(self) -> dict[str, object]:
        """How it stands, as JSON values."""
        return {
            "recorded": self.recorded,
            "waiting": self.waiting,
            "waiting_for_s": round(self.oldest_age_s, 3),
            "dropped": self.dropped,
            "durable": self.durable,
            "ledger": self.trouble or "ok",
            "disk": self.status.trouble or "ok",
        }

    async def record(self, facts: Sequence[AgentFact]) -> None:
        """Keep facts as the agent's next events; they are on disk when this returns, unless `durable` is False.

        Raises:
            SubjectError: a fact is about something that no subject can name; none of them was kept.
        """
        for fact in facts:
            check(self._source, fact)
        if facts:
            self._arrived.extend(facts)
            await self._do(self._take_arrived, asyncio.get_running_loop())

    def get(self, name: str) -> bytes | None:
        """See `gpuledger.agent.part.Keep.get`."""
        return self._store.values.get(name)

    async def put(self, name: str, value: bytes) -> None:
        """See `gpuledger.agent.part.Keep.put`.

        Raises:
            KeepError: the value is too large, or one too many.
        """
        await self._do(self._store.put, name, value)

    async def run(self, connect: Connect) -> None:
        """Record for ever."""
        await run_until_one_fails([self._record(connect), self._check()])

    async def drained(self) -> None:
        """Return when nothing waits any more."""
        await self._idle.wait()

    async def open(self) -> None:
        """Go on where the last run ended.

        Raises:
            FolderTakenError: another agent works in the state folder.
        """
        await self._do(self._store.open)

    async def close(self) -> None:
        """End cleanly: what waits is kept for the next run."""
        try:
            await self._do(self._take_arrived, asyncio.get_running_loop())
            await self._do(self._store.close)
        finally:
            self._worker.shutdown(wait=False)

    async def _do(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(work, *args, **kwargs))

    def _take_arrived(self, loop: asyncio.AbstractEventLoop) -> None:
        """Keep all that arrived until now at once; who told it later finds it kept."""
        facts: list[AgentFact] = []
        while self._arrived:
            facts.append(self._arrived.popleft())
        if not facts:
            return
        try:
            self._store.record(facts)
        except BaseException:
            self._arrived.extendleft(reversed(facts))  # whoever else waits for them must not find them kept
            raise
        loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._idle.clear()
        self._wanted.set()

    async def _record(self, connect: Connect) -> None:
        retries = Retries(RETRY, self._jitter)
        while True:
            recorded = self.recorded
            try:
                async with connect() as ledger:
                    await self._send_all(ledger)
            except (LedgerError, OutboxError) as error:
                self.trouble = str(error)
            if self.recorded != recorded:
                retries.reset()
            pause_s = retries.pause_s()
            log.warning("waiting for the ledger", reason=self.trouble, waiting=self.waiting, pause_s=round(pause_s, 3))
            await self._sleep(pause_s)

    async def _send_all(self, ledger: LedgerWriter) -> None:
        self.trouble = None
        while True:
            self._wanted.clear()
            if entries := await self._do(self._store.head):
                await self._send(ledger, entries)
                self.trouble = None
                continue
            if not self._wanted.is_set():
                self._idle.set()
            await self._wanted.wait()

    async def _send(self, ledger: LedgerWriter, entries: Sequence[Entry]) -> None:
        try:
            await ledger.publish_many([entry.message for entry in entries])
        except EventRefusedError:
            for entry in entries:
                await self._send_one(ledger, entry)
            return
        await self._done(entries)

    async def _send_one(self, ledger: LedgerWriter, entry: Entry) -> None:
        try:
            await ledger.publish_many([entry.message])
        except EventRefusedError as error:
            log.error("an event is dropped, because the ledger will never take it", reason=str(error))
            await self._do(self._store.refuse, entry)
            return
        await self._done([entry])

    async def _done(self, entries: Sequence[Entry]) -> None:
        self.recorded += len(entries)
        await self._do(self._store.done, entries)

    async def _check(self) -> None:
        while True:
            await self._sleep(CHECK_PERIOD_S)
            waiting = self.waiting
            await self._do(self._store.check)
            if self.waiting != waiting:
                self._wake()


def boot_id() -> str:
    """What names the time since the node began to run; where the system does not say, each start is taken for one."""
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

    `version` is the build's, `hardware` says what kind of hardware the agent sees, `boot` in which of the node's boots
    it is (None: as the system says).

    Raises:
        FolderTakenError: another agent works in the folder.
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
